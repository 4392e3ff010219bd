package plainjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// WithoutValues returns an error of Marshal or Unmarshal whose text quotes nothing of the value: the texts of errors
// are stored and logged where the value itself is not. The original error is the one that errors.Unwrap returns. An
// error of a type's own MarshalJSON or MarshalText keeps its text, which is that of the application's code. One of
// UnmarshalJSON or UnmarshalText does not: those of time.Time, netip.Addr and many others quote what they cannot parse.
func WithoutValues(err error) (out error) {
	defer func() {
		if recover() != nil { // a method of an application's error
			out = leftOut(err, err)
		}
	}()
	if err == nil {
		return nil
	}
	if bare := bareOf(err); bare != nil {
		return bare
	}
	inner := innermost(err)
	if bare := bareOf(inner); bare != nil { // an UnmarshalJSON called Unmarshal, and added words of its own
		return &hidden{bare.Error(), err}
	}
	return leftOut(err, inner)
}

// kinds are the kinds of JSON values, as an UnmarshalTypeError names them.
var kinds = []string{"string", "number", "bool", "array", "object", "null"}

// bareOf returns an error of encoding/json itself without the value that it may quote, or nil if err is another error.
func bareOf(err error) error {
	switch e := err.(type) {
	case *json.SyntaxError, *json.InvalidUnmarshalError, *json.MarshalerError, *json.UnsupportedTypeError,
		*json.UnsupportedValueError:
		return err // a SyntaxError names one character
	case *json.UnmarshalTypeError:
		if slices.Contains(kinds, e.Value) {
			return err
		}
		bare := *e
		if bare.Value, _, _ = strings.Cut(e.Value, " "); !slices.Contains(kinds, bare.Value) {
			bare.Value = "value"
		}
		return &hidden{bare.Error(), err}
	}
	for _, prefix := range []string{
		"json: invalid use of ,string struct tag, trying to unmarshal ",
		"json: invalid number literal, trying to unmarshal ",
	} {
		if text := err.Error(); strings.HasPrefix(text, prefix) {
			if i := strings.LastIndex(text, " into "); i >= 0 { // a type follows
				return &hidden{prefix + "a value" + text[i:], err}
			}
		}
	}
	return nil
}

// leftOut returns err with a text that names the type of a part of it.
func leftOut(err, part error) error {
	return &hidden{fmt.Sprintf("json: a part of the value is wrong for its type; the text of the error, a %T, is "+
		"left out because it may quote the value", part), err}
}

// innermost returns the last error of err's chain, whose type says most.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// A hidden is an error with another text.
type hidden struct {
	text string
	err  error
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }
