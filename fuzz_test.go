package kagzi

import (
	"bytes"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/text"
)

// A document has fields of the kinds that inputs and results have.
type document struct {
	Name    string            `json:"name"`
	Count   int64             `json:"count,omitempty"`
	Rate    float64           `json:"rate"`
	Data    []byte            `json:"data"`
	Labels  map[string]string `json:"labels,omitempty"`
	At      time.Duration     `json:"at"`
	Next    *document         `json:"next,omitempty"`
	Unknown any               `json:"unknown"`
}

// What the Codec has encoded it decodes, and encodes again to the same bytes: Kagzi compares inputs by them. It decodes
// no other text that it would write differently a second time.
func FuzzCodec(f *testing.F) {
	f.Add("plain", int64(1), 0.5, []byte("data"),
		[]byte(`{"name":"x","next":{"name":"y"},"unknown":[1,"\u2028",null]}`))
	f.Add("a\x00\xff<&>\u2028", int64(-1), 1e300, []byte(nil), []byte(`{"name":"\ud800","rate":1e400}`))
	f.Add("", int64(0), math.Copysign(0, -1), []byte{}, []byte(`{"NAME":1}{}`))
	f.Add(`a "quoted" \ text`, int64(math.MinInt64), math.MaxFloat64, []byte("x"), []byte(`"\""`))
	f.Fuzz(func(t *testing.T, name string, count int64, rate float64, data, doc []byte) {
		v := document{
			Name: name, Count: count, Rate: rate, Data: data, Labels: map[string]string{name: name},
			At: time.Duration(count), Unknown: name,
		}
		if encoded, err := (jsonCodec{}).Encode(v); err == nil { // a NaN has no encoding
			var back document
			if !utf8.ValidString(name) { // it comes back with replacement characters
				name = strings.ToValidUTF8(name, "\ufffd")
				if err := (jsonCodec{}).Decode(encoded, &back); err != nil {
					t.Fatalf("%s: %v", encoded, err)
				}
				encoded, _ = jsonCodec{}.Encode(back)
			}
			stable(t, encoded, &back)
			if v.Name == name && !reflect.DeepEqual(back, v) && !(len(data) == 0 && len(back.Data) == 0) {
				t.Fatalf("%+v becomes %+v", v, back)
			}
		}
		scalar(t, name)
		scalar(t, count)
		scalar(t, int(count))
		scalar(t, rate)
		scalar(t, data)
		for _, into := range []any{
			new(document), new(string), new(int), new([]byte), new(map[string]string),
			new(any),
		} {
			if (jsonCodec{}).Decode(doc, into) != nil {
				continue
			}
			encoded, err := jsonCodec{}.Encode(reflect.ValueOf(into).Elem().Interface())
			if err != nil {
				t.Fatalf("%q decodes into %T, which does not encode: %v", doc, into, err)
			}
			stable(t, encoded, reflect.New(reflect.TypeOf(into).Elem()).Interface())
		}
	})
}

// scalar fails the test unless v is the same after it was encoded and decoded. A text that is not UTF-8 is not.
func scalar[T any](t *testing.T, v T) {
	t.Helper()
	encoded, err := jsonCodec{}.Encode(v)
	if err != nil {
		return // a NaN
	}
	var back T
	if err := (jsonCodec{}).Decode(encoded, &back); err != nil {
		t.Fatalf("%s: %v", encoded, err)
	}
	if text, ok := any(v).(string); (!ok || utf8.ValidString(text)) && !reflect.DeepEqual(back, v) {
		t.Fatalf("%#v becomes %#v", v, back)
	}
}

// stable decodes what was encoded, and fails the test unless that encodes to the same bytes.
func stable(t *testing.T, encoded []byte, into any) {
	t.Helper()
	if err := (jsonCodec{}).Decode(encoded, into); err != nil {
		t.Fatalf("%s into %T: %v", encoded, into, err)
	}
	again, err := jsonCodec{}.Encode(reflect.ValueOf(into).Elem().Interface())
	if err != nil || !bytes.Equal(again, encoded) {
		t.Fatalf("%s becomes %s, %v", encoded, again, err)
	}
}

// Headers that are accepted are stored and read back as they are. Headers are inherited without a change of the
// parent's.
func FuzzHeaders(f *testing.F) {
	f.Add("tenant=acme\ntraceparent=00-1", "tenant=other")
	f.Add("a=\x00", "=b")
	f.Add("\xff=\xff", strings.Repeat("x", 256)+"=y")
	f.Add("a=\U0010ffff\na=\u2028", "")
	f.Fuzz(func(t *testing.T, own, inherited string) {
		h, base := headersOf(own), headersOf(inherited)
		for _, some := range []Headers{h, base} {
			if err := some.validate(); err != nil {
				if line := err.Error(); !strings.HasPrefix(line, "kagzi: ") || len(line) > 700 || !text.IsSane(line) ||
					strings.ContainsAny(line, "\n\t") {
					t.Fatalf("no short clean line: %q", line)
				}
				return
			}
			if back := storedHeaders(some.stored()); !maps.Equal(back, some) {
				t.Fatalf("%q becomes %q", some, back)
			}
		}
		before := maps.Clone(base)
		all := h.over(base)
		if !maps.Equal(before, base) {
			t.Fatalf("%q became %q", before, base)
		}
		for name, value := range all {
			want, ok := h[name]
			if !ok {
				want = base[name]
			}
			if value != want {
				t.Fatalf("%q over %q has %q for %q", h, base, value, name)
			}
		}
		union := maps.Clone(base)
		maps.Copy(union, h)
		if len(all) != len(union) {
			t.Fatalf("%q over %q is %q", h, base, all)
		}
	})
}

func headersOf(lines string) Headers {
	h := Headers{}
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, "=")
		h[name] = value
	}
	return h
}

// A cursor is the ID of the last thing of a page. Another text is refused in a short line, and an ID means what it
// says.
func FuzzCursors(f *testing.F) {
	for _, cursor := range []string{
		"", "0199f0c5-7a5e-7000-8000-000000000001",
		"{0199f0c5-7a5e-7000-8000-000000000001}", "urn:uuid:0199f0c5-7a5e-7000-8000-000000000001",
		"0199f0c57a5e70008000000000000001", "x\x00y", strings.Repeat("9", 100_000),
	} {
		f.Add(cursor)
	}
	c := &Client{cfg: ClientConfig{Namespace: "test"}}
	f.Fuzz(func(t *testing.T, cursor string) {
		want, wrong := uuid.Parse(cursor)
		runs, err := c.choice(RunFilter{After: RunID(cursor)})
		workers, workersErr := WorkerFilter{After: cursor}.choice()
		for _, got := range []struct {
			id  uuid.UUID
			err error
		}{{runs.After, err}, {workers.After, workersErr}} {
			switch {
			case cursor == "" && got.id == uuid.Nil && got.err == nil:
			case (got.err == nil) != (wrong == nil), got.err == nil && got.id != want:
				t.Fatalf("cursor %.60q: %v, %v; want %v, %v", cursor, got.id, got.err, want, wrong)
			case got.err != nil && (len(got.err.Error()) > 500 || !text.IsSane(got.err.Error())):
				t.Fatalf("no short clean line: %q", got.err)
			}
		}
	})
}
