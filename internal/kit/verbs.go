package kit

import (
	"reflect"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// WantEvents compares a run's events, without their times.
func (k *Kit) WantEvents(ref kagzi.Ref, want ...admin.LogEntry) {
	k.T.Helper()
	got, err := admin.New(k.Client).RunLog(k.Ctx, ref)
	if err != nil {
		k.T.Fatal(err)
	}
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
