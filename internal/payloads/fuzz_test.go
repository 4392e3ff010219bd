package payloads

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
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
		if encoded, err := (JSON{}).Encode(v); err == nil { // a NaN has no encoding
			var back document
			if !utf8.ValidString(name) { // it comes back with replacement characters
				name = strings.ToValidUTF8(name, "\ufffd")
				if err := (JSON{}).Decode(encoded, &back); err != nil {
					t.Fatalf("%s: %v", encoded, err)
				}
				encoded, _ = JSON{}.Encode(back)
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
			if (JSON{}).Decode(doc, into) != nil {
				continue
			}
			encoded, err := JSON{}.Encode(reflect.ValueOf(into).Elem().Interface())
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
	encoded, err := JSON{}.Encode(v)
	if err != nil {
		return // a NaN
	}
	var back T
	if err := (JSON{}).Decode(encoded, &back); err != nil {
		t.Fatalf("%s: %v", encoded, err)
	}
	if text, ok := any(v).(string); (!ok || utf8.ValidString(text)) && !reflect.DeepEqual(back, v) {
		t.Fatalf("%#v becomes %#v", v, back)
	}
}

// stable decodes an encoded value, and fails the test unless that encodes to the same bytes.
func stable(t *testing.T, encoded []byte, into any) {
	t.Helper()
	if err := (JSON{}).Decode(encoded, into); err != nil {
		t.Fatalf("%s into %T: %v", encoded, into, err)
	}
	again, err := JSON{}.Encode(reflect.ValueOf(into).Elem().Interface())
	if err != nil || !bytes.Equal(again, encoded) {
		t.Fatalf("%s becomes %s, %v", encoded, again, err)
	}
}
