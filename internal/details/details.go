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
	record *Record
}

// A Record is the details of a recorded failure.
type Record struct {
	Stored []byte
	By     any                  // what has encoded them
	Decode func(into any) error // decodes Stored
	Wrong  func(err error)      // is called if Decode fails; nil: nothing is
}

// With returns err with details.
func With(err error, value any) *Error { return &Error{err: err, value: value} }

// Recorded returns the details of a record as an error.
func Recorded(r *Record) error { return &Error{record: r} }

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

// Value returns the details as they were given to With; nil if they are recorded.
func (e *Error) Value() any { return e.value }

// Into decodes the details into a value. Those that are not recorded yet are encoded as JSON before, so that both are
// alike.
func (e *Error) Into(value any) (err error) {
	if r := e.record; r != nil {
		if err = r.Decode(value); err != nil && r.Wrong != nil {
			r.Wrong(err)
		}
		return err
	}
	defer caught(&err)
	text, err := json.Marshal(e.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// Stored returns the details as by stores them: as they are recorded already, or encoded.
func (e *Error) Stored(by any, encode func(value any) ([]byte, error)) (stored []byte, err error) {
	value := e.value
	if r := e.record; r != nil {
		if r.By == by {
			return r.Stored, nil
		}
		var text json.RawMessage // of another client, with another key perhaps
		if err = r.Decode(&text); err != nil {
			return nil, err
		}
		value = text
	}
	defer caught(&err)
	if stored, err = encode(value); err != nil {
		return nil, err
	}
	return stored, nil
}

// caught makes a panic in a method of a user's value an error. It is deferred.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("it panics: a %T", v)
	}
}
