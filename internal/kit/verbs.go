package kit

import (
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
)

// Methods returns every method that a program can call with a client: "Get" of c itself, "Publish" of its topic.Client,
// "Health" of its admin.Client, and "Runs.Resume" of a noun of that.
func Methods(c *kagzi.Client) iter.Seq2[string, reflect.Value] {
	prefixes := []string{"", "", ""}
	of := []reflect.Value{reflect.ValueOf(c), reflect.ValueOf(topic.New(c)), reflect.ValueOf(admin.New(c))}
	for field, noun := range of[2].Elem().Fields() {
		if field.IsExported() {
			prefixes, of = append(prefixes, field.Name+"."), append(of, noun)
		}
	}
	return func(yield func(string, reflect.Value) bool) {
		for i, v := range of {
			for m, call := range v.Methods() {
				if !yield(prefixes[i]+m.Name, call) {
					return
				}
			}
		}
	}
}

// WantEvents compares a run's events, without their times, and without its failed attempts.
func (k *Kit) WantEvents(ref kagzi.Ref, want ...admin.LogEntry) {
	k.T.Helper()
	got, err := admin.New(k.Client).Runs.Log(k.Ctx, ref)
	if err != nil {
		k.T.Fatal(err)
	}
	got = slices.DeleteFunc(got, func(e admin.LogEntry) bool { return e.Event == "ATTEMPT_FAILED" })
	for i := range got {
		if i > 0 && got[i].At.Before(got[i-1].At) || got[i].At.IsZero() {
			k.T.Errorf("events are out of order: %+v", got)
		}
		got[i].At = time.Time{}
	}
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		k.T.Errorf("events %+v, want %+v", got, want)
	}
}
