package plainjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// A loud and a quiet type have the kinds of scalars, and methods that encoding/json must call.
type loud string

func (l loud) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(string(l))) }
func (l *loud) UnmarshalJSON([]byte) error  { *l = "loud"; return nil }

type quiet int

func (quiet) MarshalText() ([]byte, error) { return nil, errors.New("quiet") }

func TestMarshalIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	values := []any{
		nil, true, false,
		struct{}{},
		0, 1, -1, math.MaxInt, math.MinInt, int64(math.MinInt64), int64(math.MaxInt64), int32(7), uint(7), 1.5,
		math.NaN(),
		"", "a", "a b~!", `"`, `\`, "<", ">", "&", "\x00", "\x1f", "\x7f", "\xff", "é", "\u2028",
		strings.Repeat("x", 1000),
		loud("a"), quiet(1), []byte("a"),
		[]int{1},
		map[string]int{"a": 1},
		struct{ A int }{1},
		new(int), make(chan int), (*string)(nil),
	}
	for c := range 300 {
		values = append(values, string(rune(c)), string([]byte{byte(c)}))
	}
	for _, v := range values {
		got, err := Marshal(v)
		want, wantErr := json.Marshal(v)
		if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("Marshal(%T %v): %q, %v; want %q, %v", v, v, got, err, want, wantErr)
		}
	}
}

// targets returns pointers to values of many types, which are not zero.
func targets() []any {
	n, n64, n8, u, f, yes, s, l, q, a, bytes := 7, int64(7), int8(7), uint(7), 7.5, true, "seven", loud("seven"),
		quiet(7), any(7), []byte("seven")
	var none map[string]string
	return []any{
		&n, &n64, &n8, &u, &f, &yes, &s, &l, &q, &a, &bytes, new(struct{}), &struct {
			A int
		}{7}, &map[string]int{"a": 7}, &none, &map[string]string{"a": "7"}, (*map[string]string)(nil), new(*int),
		new(json.RawMessage),
		nil, 7, "seven", (*int)(nil), (*int64)(nil), (*string)(nil), (*bool)(nil), (*any)(nil), (*struct{})(nil),
	}
}

var documents = []string{
	"", " ", "null", "true", "false", "tru", " true", "true ", "True", "{}", "{ }", `{"A":1}`, "[]", "[1]", "{", "1 2",
	`{"a":"b"}`, `{"a": "b", "c": "d"}`, `{"a":"b","c":""}`, `{"":""}`, `{"a":"b","a":"c"}`, `{"a":"b",}`,
	`{"a":"b", }`, `{,"a":"b"}`, `{"a" :"b"}`, `{"a":  "b"}`, `{"a"}`, `{"a":}`,
	`{"a":"b"}}`, `{"a":"b"`, `{"a":"}`, `{"a":"b""c":"d"}`, `{"a","b"}`, `{"a":"b":"c"}`, `{"a":"\n"}`, `{"\"":"b"}`,
	`{"a":1}`, `{"a":null}`, `{"a":"é"}`, `{"a":"b"} `, `{"a":"b" }`, `{"a":"b","c"}`, `{"a":"b" , "c":"d"}`,
	"0", "-0", "-", "+1", "00", "01", "-01", "1", "-1", "12", "1.0", "1e3", "1_0", "0x1", "127", "128", "-128", "-129",
	"999999999999999999", "-999999999999999999",
	"1000000000000000000", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
	"123456789012345678901234567890", " 1", "1\n",
	`""`, `"`, `"a"`, `"a`, `a"`, `"a"b"`, `"a\"`, `"\\"`, `"\u0041"`, `"<&>"`, "\"\x00\"", "\"\n\"", "\"\x7f\"",
	"\"\xff\"", `"é"`, "\"\u2028\"", ` "a"`, `"a" `, `"a b"`, `"""`,
}

func TestUnmarshalIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, doc := range documents {
		compare(t, []byte(doc))
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc))
	}
	f.Fuzz(compare)
}

// compare decodes doc into all targets, and compares them and the errors with those of encoding/json.
func compare(t *testing.T, doc []byte) {
	got, want := targets(), targets()
	for i := range got {
		err, wantErr := Unmarshal(doc, got[i]), json.Unmarshal(doc, want[i])
		if !reflect.DeepEqual(got[i], want[i]) || !reflect.DeepEqual(err, wantErr) {
			t.Errorf("Unmarshal(%q, %T): %#v, %v; want %#v, %v", doc, got[i], got[i], err, want[i], wantErr)
		}
	}
}

func BenchmarkInt(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var n int
		data, _ := Marshal(123456)
		if err := Unmarshal(data, &n); err != nil {
			b.Fatal(err)
		}
	}
}
