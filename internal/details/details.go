// Package details has what an error carries beyond its kind and its text: see kind.WithDetails.
package details

import (
	"encoding/json"
	"errors"
	"fmt"
)

// An Error is an error with details, or the details of a recorded failure.
type Error struct {
	err    error // nil if it is recorded
	value  any   // as given to With
	stored []byte
	decode func(stored []byte, into any) error
}

// With returns err with details.
func With(err error, value any) *Error { return &Error{err: err, value: value} }

// Recorded returns the details that the record of a failure has, nil if it has none. decode decodes them.
func Recorded(stored []byte, decode func(stored []byte, into any) error) error {
	if stored == nil {
		return nil
	}
	return &Error{stored: stored, decode: decode}
}

func (e *Error) Error() string {
	if e.err == nil {
		return "details"
	}
	return e.err.Error()
}

// Unwrap returns the error that was given details.
func (e *Error) Unwrap() error { return e.err }

// In returns the first details in err's chain, nil if there are none.
func In(err error) (found *Error) {
	defer func() { _ = recover() }() // a method of a user's error
	found, _ = errors.AsType[*Error](err)
	return found
}

// Into decodes the details into a value. Those that are not recorded yet are encoded as JSON before, so that both are
// alike.
func (e *Error) Into(value any) error {
	if e.decode != nil {
		return e.decode(e.stored, value)
	}
	text, err := json.Marshal(e.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// Stored returns the details as they are stored: as they are recorded already, or encoded.
func (e *Error) Stored(encode func(value any) ([]byte, error)) (stored []byte, err error) {
	if e.decode != nil {
		return e.stored, nil
	}
	defer func() { // a method of a user's value
		if v := recover(); v != nil {
			stored, err = nil, fmt.Errorf("it panics: a %T", v)
		}
	}()
	if stored, err = encode(e.value); err != nil {
		return nil, err
	}
	return stored, nil
}
