package payloads

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

type (
	word    string
	grade   uint8
	address struct {
		Street string `json:"street,omitempty"`
		Zip    *int
	}
	base  struct{ ID int64 }
	order struct {
		base
		address
		Name    word
		Rows    []address
		ByName  map[word]address
		ByID    map[int32][]float32
		Grades  []grade
		Hash    [4]byte
		Raw     []byte
		Ratio   float64
		Paid    bool
		Number  json.Number
		_       any
		Ignored any `json:"-"`
	}
	list   struct{ Next *list }
	ping   struct{ Pong []pong }
	pong   struct{ Ping *ping }
	embeds struct{ *base }
	itself *itself
	quoted struct {
		N *int `json:",string"`
	}
	marshals struct{}
	texts    int
	keyed    map[texts]int
	numbers  map[float64]int
	dynamic  struct{ V any }
	timed    struct {
		At   time.Time
		Then *time.Time
	}
	embedsTime struct{ time.Time }
)

type (
	newer   struct{ N int }
	younger struct{ N int }
	flags   map[bool]int
)

func (*newer) UnmarshalJSONFrom() error { return nil }
func (younger) MarshalJSONTo() error    { return nil }

func (*marshals) UnmarshalJSON([]byte) error { return errors.New("never") }
func (*texts) UnmarshalText([]byte) error    { return errors.New("never") }

// The values of these types need not be decoded to know that they can be.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		0, int8(0), uintptr(0), "", false, float32(0), word(""),
		[]byte{},
		struct{}{},
		order{},
		&order{},
		[]*order{},
		[3]map[string]order{},
		json.Number(""),
	} {
		typ := reflect.TypeOf(v)
		for range 2 {
			if !roundTrips(typ) {
				t.Errorf("values of %v are decoded", typ)
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			in := reflect.New(typ).Elem()
			fill(random, in)
			data, err := (JSON{}).Encode(in.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err = (JSON{}).Decode(data, reflect.New(typ).Interface()); err != nil {
				t.Fatalf("%v does not decode %s: %v", typ, data, err)
			}
		}
	}
	early := time.Unix(-1<<35, 1).In(time.FixedZone("", 53*60+28))
	for _, at := range []time.Time{{}, time.Now(), time.Unix(1<<37, 1), early} {
		data, err := (JSON{}).Encode(timed{At: at, Then: &at})
		if err == nil {
			err = (JSON{}).Decode(data, new(timed))
		}
		if err != nil || !roundTrips(reflect.TypeFor[timed]()) {
			t.Errorf("%v: %v", at, err)
		}
	}
}

// fill sets v to a random value.
func fill(r *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[json.Number]() {
		v.SetString("1e999")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() || v.Type().Field(i).Anonymous {
				fill(r, f)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		b := make([]byte, r.IntN(10))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(r.IntN(2) > 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(r.NormFloat64() * math.Pow(10, float64(r.IntN(60)-30)))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(r.Uint64())
	}
}

// The values of these types are decoded: of each, one does not decode, or its type has methods.
func TestDoesNotRoundTrip(t *testing.T) {
	t.Parallel()
	long := &list{}
	for range 20_000 {
		long = &list{long}
	}
	for _, v := range []any{
		dynamic{json.Number("1e999")}, long, embeds{&base{}}, marshals{}, texts(0), []texts{1}, keyed{1: 1},
	} {
		typ := reflect.TypeOf(v)
		data, err := (JSON{}).Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if roundTrips(typ) || (JSON{}).Decode(data, reflect.New(typ).Interface()) == nil {
			t.Errorf("values of %v are not decoded, or all of them decode", typ)
		}
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[any](), reflect.TypeFor[error](), reflect.TypeFor[ping](), reflect.TypeFor[[]pong](),
		reflect.TypeFor[itself](), reflect.TypeFor[newer](), reflect.TypeFor[younger](), reflect.TypeFor[flags](),
		reflect.TypeFor[quoted](), reflect.TypeFor[numbers](), reflect.TypeFor[embedsTime](),
		reflect.TypeFor[chan int](),
		reflect.TypeFor[json.RawMessage](), reflect.TypeFor[complex64](), reflect.TypeFor[func()](),
	} {
		if roundTrips(typ) {
			t.Errorf("values of %v are not decoded", typ)
		}
	}
}

// A Codec or a Sealer of the application may do anything with a value.
func TestOnlyTheDefaultCodecIsTrusted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Coder{
		"a Codec":  {Codec: brokenCodec{}, Max: 100},
		"a Sealer": {Codec: JSON{}, Sealer: brokenSealer{}, Max: 100},
	} {
		if err := DecodableAs(1)(c, Subject{Kind: "it"}, []byte("1")); err == nil {
			t.Errorf("%s: the value is not decoded", name)
		}
	}
}

type brokenCodec struct {
	JSON
	_ map[string]int
}

func (brokenCodec) Decode([]byte, any) error { return errors.New("broken") }

type brokenSealer struct{}

func (brokenSealer) Seal(data []byte) ([]byte, error) { return data, nil }
func (brokenSealer) Open([]byte) ([]byte, error)      { return nil, errors.New("broken") }
func (brokenSealer) HashKey() []byte                  { return nil }
