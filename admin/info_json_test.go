package admin_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// filled sets every field of a struct to something.
func filled(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Interface().(type) {
		case time.Time:
			f.Set(reflect.ValueOf(time.Date(2026, 11, 22, 1, 2, 3, 456789000, time.UTC)))
			continue
		case time.Duration:
			f.SetInt(int64(90 * time.Minute))
			continue
		case json.RawMessage:
			f.SetBytes([]byte(`{"a":[1,"x"]}`))
			continue
		}
		switch f.Kind() {
		case reflect.Struct:
			filled(f)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			if e := f.Elem(); e.Kind() == reflect.Struct {
				filled(e)
			} else {
				e.SetFloat(0.5)
			}
		case reflect.String:
			f.SetString("text of " + v.Type().Field(i).Name)
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Float64:
			f.SetFloat(0.5)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
		case reflect.Slice:
			f.Set(reflect.Append(f, reflect.New(f.Type().Elem()).Elem()))
			switch e := f.Index(0); e.Kind() {
			case reflect.Struct:
				filled(e)
			case reflect.Int:
				e.SetInt(7)
			default:
				e.SetString("text")
			}
		default:
			panic("no value for a " + f.Type().String())
		}
	}
}

// fieldsOf returns the number of fields of a struct, with those of the structs that it embeds.
func fieldsOf(typ reflect.Type) (n int) {
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Anonymous {
			n += fieldsOf(f.Type)
		} else {
			n++
		}
	}
	return n
}

// Limits have their rates in one style, and durations as text.
func TestLimitsAsJSON(t *testing.T) {
	t.Parallel()
	rate := admin.Rate{Starts: 1, Per: 10 * time.Millisecond, Burst: 2}
	each := admin.KeyLimits{MaxRunning: 2, Rate: admin.Rate{Starts: 10}, Weight: 3}
	for want, v := range map[string]any{
		`{"queue":"shop","max_running":5,"rate":{"starts":1,"per":"10ms","burst":2},` +
			`"each_key":{"max_running":2,"rate":{"starts":10},"weight":3},"hold":true,"running":1}`: admin.QueueInfo{
			QueueLimits: admin.QueueLimits{Queue: "shop", MaxRunning: 5, Rate: rate, EachKey: each, Hold: true},
			Running:     1,
		},
		`{"key":"tenant-7","limits":{},"running":0,"waiting":0}`: admin.KeyInfo{
			Key: "tenant-7",
		},
		`{"name":"openai","burst":1,"running":0,"waiting":0,"every":"1m30s"}`: admin.LimitInfo{
			Name: "openai", Every: 90 * time.Second, Burst: 1,
		},
		`{"name":"openai","rate":{"starts":1,"per":"10ms","burst":2},"honor_retry_after":true}`: admin.StepLimit{
			Name: "openai", Rate: rate, HonorRetryAfter: true,
		},
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%T: %s, %v; want %s", v, got, err, want)
		}
	}
	if err := json.Unmarshal([]byte(`{"starts":1,"per":"soon"}`), new(admin.Rate)); err == nil {
		t.Error("a rate per soon is read")
	}
}

// Information about runs, schedules and workers becomes JSON with conventional names and without zero times, and can be
// read back.
func TestInfosAsJSON(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, zero := range []any{
		kagzi.RunInfo{},
		kagzi.StepAttempt{},
		admin.MessageInfo{},
		admin.ScheduleInfo{},
		admin.WorkerInfo{},
		admin.LogEntry{},
		admin.StrandedRuns{},
		admin.LocalWorker{},
		kagzi.Started{},
		admin.TopicInfo{},
		admin.ConsumerTopic{},
		admin.ConsumerInfo{},
		admin.Stats{},
		admin.WorkflowStats{},
		admin.FailStats{},
		admin.FailureGroup{},
		admin.QueueStats{},
		admin.Rates{},
		admin.RunCount{},
		admin.QueueLimits{},
		admin.QueueInfo{},
		admin.KeyLimits{},
		admin.KeyInfo{},
		admin.StepLimit{},
		admin.LimitInfo{},
		admin.Rate{},
	} {
		typ := reflect.TypeOf(zero)
		short, err := json.Marshal(zero)
		if err != nil || strings.Contains(string(short), "0001-01-01") || strings.Contains(string(short), "null") {
			t.Errorf("%v: %s, %v", typ, short, err)
		}
		v := reflect.New(typ).Elem()
		filled(v)
		long, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(long, &fields); err != nil {
			t.Fatal(err)
		}
		for field := range fields {
			if !name.MatchString(field) {
				t.Errorf("%v: field %q", typ, field)
			}
		}
		if n := fieldsOf(typ); len(fields) != n {
			t.Errorf("%v: %d of %d fields: %s", typ, len(fields), n, long)
		}
		for _, from := range [][]byte{long, short} {
			back := reflect.New(typ)
			if err := json.Unmarshal(from, back.Interface()); err != nil {
				t.Fatal(err)
			}
			want := v.Interface()
			if string(from) == string(short) {
				want = zero
			}
			if !reflect.DeepEqual(back.Elem().Interface(), want) {
				t.Errorf("%v: from %s came %+v, want %+v", typ, from, back.Elem(), want)
			}
		}
	}
}

// If a Codec's output is not JSON, the other fields are still encoded.
func TestInfosWithOtherPayloadsAsJSON(t *testing.T) {
	t.Parallel()
	bytes := json.RawMessage("\x00\xff{")
	info := kagzi.RunInfo{ID: "1", Input: bytes, Output: json.RawMessage(`[1]`)}
	text, err := json.Marshal(info)
	if err != nil || !strings.Contains(string(text), `"input_base64":"AP97"`) ||
		!strings.Contains(string(text), `"output":[1]`) {
		t.Errorf("%s, %v", text, err)
	}
	var back kagzi.RunInfo
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, info) {
		t.Errorf("%+v, %v", back, err)
	}
	for _, v := range []any{
		kagzi.StepAttempt{Input: bytes, Output: bytes},
		admin.MessageInfo{Payload: bytes},
		admin.ScheduleInfo{Input: bytes, Every: 90 * time.Minute},
		admin.ConsumerInfo{State: bytes},
	} {
		text, err := json.Marshal(v)
		back := reflect.New(reflect.TypeOf(v))
		if err == nil {
			err = json.Unmarshal(text, back.Interface())
		}
		if err != nil || !reflect.DeepEqual(back.Elem().Interface(), v) {
			t.Errorf("%s, %v", text, err)
		}
	}
	if text, err := json.Marshal(admin.ScheduleInfo{Every: 90 * time.Minute}); err != nil ||
		!strings.Contains(string(text), `"every":"1h30m"`) {
		t.Errorf("%s, %v", text, err)
	}
}
