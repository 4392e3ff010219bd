package names_test

import (
	"context"
	"reflect"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
)

// A variant is a value with a name in one place.
type variant struct {
	place string
	value reflect.Value
}

var (
	work    = kagzi.Define[int, int]("base")
	message = kagzi.DefineSignal[int]("base")
	about   = topic.Define[int]("base")
)

func consumer(name string, cfg topic.ConsumerConfig) topic.Consumer {
	return topic.DefineConsumer(name, cfg)
}

// built has the values of types whose fields are not exported, by place.
func built(s string) []any {
	type named struct {
		place string
		value any
	}
	var out []any
	for _, n := range []named{
		{"Call.Workflow", kagzi.Define[int, int](s).With(1)},
		{"Message.Signal", kagzi.DefineSignal[int](s).With(1)},
		{"Message.Key", message.For(s).With(1)},
		{"Message.ID", message.With(1).WithID(kagzi.ID(s))},
		{"Message.Header", message.With(1).WithHeaders(kagzi.Headers{s: "v"})},
		{"Message.HeaderValue", message.With(1).WithHeaders(kagzi.Headers{"h": s})},
		{"NewEvent.Topic", topic.Define[int](s).With(1)},
		{"NewEvent.ID", about.With(1).WithID(kagzi.ID(s))},
		{"NewEvent.Title", about.With(1).Title(s)},
		{"Consumer.Name", consumer(s, topic.ConsumerConfig{})},
		{"Consumer.Group", consumer("base", topic.ConsumerConfig{Group: s})},
		{"Topic.Name", topic.Define[int](s)},
	} {
		out = append(out, n.place, n.value)
	}
	for place, option := range options(s) {
		if option, ok := option.(kagzi.StartOption); ok {
			out = append(out, "Call."+place, work.With(1, option))
		}
	}
	return out
}

// options has each option that takes a name, by place.
func options(s string) map[string]any {
	return map[string]any{
		"Actor": kagzi.Actor(s), "Reason": kagzi.Reason(s), "Forget": admin.Forget(s), "Group": kagzi.Group(s),
		"Key": kagzi.Key(s), "ID": kagzi.ID(s), "Queue": kagzi.Queue(s),
		"Headers": kagzi.Headers{s: "v"}, "HeaderValue": kagzi.Headers{"h": s}, "Metadata": kagzi.Metadata{s: "v"},
		"MetadataValue": kagzi.Metadata{"m": s},
		"Batch":         kagzi.Batch{Key: s}, "Debounce": kagzi.Debounce{Key: s, Delay: time.Second},
		"IfActive": kagzi.IfActive(s), "IfEnded": kagzi.IfEnded(s), "WhenFull": kagzi.WhenFull(s),
		"Limit": kagzi.Limit(s), "Isolation": kagzi.Isolation(s), "Message": kagzi.DefineSignal[int](s).With(1),
		"MessageID": message.With(1).WithID(kagzi.ID(s)),
	}
}

// base returns a value without hostile names.
func base(t reflect.Type) reflect.Value {
	for _, v := range []any{
		context.Background(),
		kagzi.RunFilter{Workflow: "base"},
		work.With(1),
		[]kagzi.Call{work.With(1)},
		message.With(1), about.With(1),
		[]topic.NewEvent{about.With(1)},
		consumer("base", topic.ConsumerConfig{}), kagzi.ID("base"), "base", 1, time.Now(), kagzi.Key("base"),
		admin.KeyFilter{Queue: "base"},
		admin.StepLimit{Name: "base", MaxRunning: 1},
		admin.QueueLimits{Queue: "base"},
		admin.KeyLimits{Weight: 2},
		admin.Target{Queue: "base"},
		kagzi.Schedule{Name: "base", Cron: "0 0 * * *", Run: work.With(1)},
	} {
		if reflect.TypeOf(v) == t {
			return reflect.ValueOf(v)
		}
	}
	switch t {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(context.Background())
	case reflect.TypeFor[kagzi.Ref]():
		return reflect.ValueOf(kagzi.ID("base"))
	case reflect.TypeFor[topic.AnyTopic]():
		return reflect.ValueOf(about)
	}
	return reflect.Zero(t)
}

// variants returns the values of type t with s in each place of b that can have a name.
func variants(t reflect.Type, b reflect.Value, s string) (all []variant) {
	put := func(place string, v any) { all = append(all, variant{place, reflect.ValueOf(v)}) }
	list := built(s)
	for i := 0; i < len(list); i += 2 {
		v := reflect.ValueOf(list[i+1])
		if v.Type() == t || t == reflect.TypeFor[topic.AnyTopic]() && v.Type() == reflect.TypeFor[topic.Topic[int]]() {
			put(list[i].(string), list[i+1])
		}
	}
	if len(all) > 0 {
		return all
	}
	switch {
	case t == reflect.TypeFor[kagzi.Ref]():
		put("ID", kagzi.ID(s))
		put("RunID", kagzi.RunID(s))
		put("RunInfo", kagzi.RunInfo{ID: kagzi.RunID(s)})
		put("Started", kagzi.Started{ID: kagzi.RunID(s)})
	case t == reflect.TypeFor[admin.CountBy]():
		put("CountBy", admin.CountField(s))
	case t.Kind() == reflect.String:
		all = append(all, variant{t.Name(), reflect.ValueOf(s).Convert(t)})
	case t.Kind() == reflect.Interface: // of options
		for place, o := range options(s) {
			if reflect.TypeOf(o).Implements(t) && t.NumMethod() > 0 {
				put(place, o)
			}
		}
	case t.Kind() == reflect.Slice:
		of := reflect.Value{}
		if b.IsValid() && b.Len() > 0 {
			of = b.Index(0)
		}
		for _, v := range variants(t.Elem(), of, s) {
			one := reflect.MakeSlice(t, 1, 1)
			one.Index(0).Set(v.value)
			all = append(all, variant{v.place, one})
		}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		for place, pair := range map[string][2]string{"key": {s, "v"}, "value": {"k", s}} {
			if t.Elem().Kind() != reflect.String && place == "value" {
				continue
			}
			m := reflect.MakeMap(t)
			v := reflect.New(t.Elem()).Elem()
			if v.Kind() == reflect.String {
				v.SetString(pair[1])
			}
			m.SetMapIndex(reflect.ValueOf(pair[0]).Convert(t.Key()), v)
			all = append(all, variant{place, m})
		}
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			var of reflect.Value
			if b.IsValid() {
				of = b.Field(i)
			}
			for _, v := range variants(f.Type, of, s) {
				c := reflect.New(t).Elem()
				if b.IsValid() {
					c.Set(b)
				}
				c.Field(i).Set(v.value)
				place := f.Name
				if v.place != "" && v.place != f.Type.Name() {
					place += "." + v.place
				}
				all = append(all, variant{t.Name() + "." + place, c})
			}
		}
	}
	return all
}
