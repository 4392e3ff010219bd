package plainjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestErrorsQuoteNoValues(t *testing.T) {
	t.Parallel()
	const mark = "7359182"
	for name, tt := range map[string]struct {
		data string
		into any
		says string
	}{
		"number": {`{"A":` + mark + `}`, new(struct{ A int8 }), "cannot unmarshal number into Go struct field .A of " +
			"type int8"},
		"key": {`{"` + mark + `":1}`, new(map[int8]int), "cannot unmarshal number into Go value of type int8"},
		"quoted number": {`{"A":"x` + mark + `"}`, new(struct {
			A int `json:",string"`
		}), "json: invalid use of ,string struct tag, trying to unmarshal a value into int"},
		"literal": {`"` + mark + `x"`, new(json.Number), "json: invalid number literal, trying to unmarshal a " +
			"value into Number"},
		"inner":      {`"` + mark + `"`, new(innerInt), "json: cannot unmarshal string into Go value of type int"},
		"own type":   {`"` + mark + `"`, new(ownTypeError), "json: cannot unmarshal value into Go value of type int"},
		"time":       {`"` + mark + `"`, new(time.Time), "*time.ParseError"},
		"wrong type": {`"` + mark + `"`, new(int), "cannot unmarshal string into Go value of type int"},
		"syntax":     {`x` + mark, new(int), "invalid character 'x' looking for beginning of value"},
	} {
		raw := Unmarshal([]byte(tt.data), tt.into)
		err := WithoutValues(raw)
		if err == nil || strings.Contains(err.Error(), mark) || !strings.Contains(err.Error(), tt.says) ||
			!errors.Is(err, raw) {
			t.Errorf("%s: %v, of %v; want %q", name, err, raw, tt.says)
		}
	}
	_, raw := Marshal(json.Number("x" + mark))
	if err := WithoutValues(raw); err == nil || strings.Contains(err.Error(), mark) || !errors.Is(err, raw) {
		t.Errorf("a wrong number to encode: %v, of %v", err, raw)
	}
	if WithoutValues(nil) != nil {
		t.Error("nil becomes an error")
	}
}

// Types whose UnmarshalJSON calls Unmarshal, or returns an error that looks as if it did.
type (
	innerInt     int
	ownTypeError int
)

func (i *innerInt) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*int)(i)); err != nil {
		return fmt.Errorf("%s is no amount: %w", data, err)
	}
	return nil
}

func (*ownTypeError) UnmarshalJSON(data []byte) error {
	return &json.UnmarshalTypeError{Value: string(data), Type: reflect.TypeFor[int]()}
}

// A wrongType is an error whose methods panic if it is a nil pointer.
type wrongType struct{ err error }

func (w *wrongType) Error() string { return w.err.Error() }
func (w *wrongType) Unwrap() error { return w.err }

// Types whose UnmarshalJSON returns a nil pointer as its error.
type (
	nilError     struct{}
	nilTypeError struct{}
)

func (*nilError) UnmarshalJSON([]byte) error     { return (*wrongType)(nil) }
func (*nilTypeError) UnmarshalJSON([]byte) error { return (*json.UnmarshalTypeError)(nil) }

// The methods of an application's error may panic, and do so if a nil pointer is returned as one.
func TestErrorsWhoseMethodsPanic(t *testing.T) {
	t.Parallel()
	for want, into := range map[string]any{
		"*plainjson.wrongType":     new(nilError),
		"*json.UnmarshalTypeError": new(nilTypeError),
	} {
		if err := WithoutValues(Unmarshal([]byte("1"), into)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one that names %s", err, want)
		}
	}
}
