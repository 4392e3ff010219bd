// Package failure has the errors that Kagzi makes of what happens to runs: of a kind, permanent, or so that their run is
// quarantined. The kinds are those of package kagzi, by their names.
package failure

import (
	"errors"
	"reflect"
)

// An Error gives an error a kind, and says whether another attempt may help.
type Error struct {
	Kind        string
	Err         error
	Permanent   bool // another attempt would not help, whatever the kind
	Quarantined bool // its run is left to people, to be resumed once its code, or its data, is right
}

// Of gives err a kind.
func Of(kind string, err error) error { return &Error{Kind: kind, Err: err} }

// Permanent gives err a kind, and says that another attempt would not help.
func Permanent(kind string, err error) error { return &Error{Kind: kind, Err: err, Permanent: true} }

// BadRequest is err as the failure of a call that is wrong. No further attempt makes it right.
func BadRequest(err error) error { return Permanent(KindBadRequest, err) }

// Quarantine is err as the failure of a run that is left to people. Only Kagzi itself makes one: the kind of an error that
// user code returns decides nothing.
func Quarantine(kind string, err error) error {
	return &Error{Kind: kind, Err: err, Permanent: true, Quarantined: true}
}

// IsQuarantine reports whether err itself quarantines its run. A child's failure in err's chain does not.
func IsQuarantine(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Quarantined
}

// Error returns the text of the error that has the kind.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error that has the kind.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's kind.
func (e *Error) Is(target error) bool { return IsKind(target, e.Kind) }

// IsKind reports whether target is that kind: a constant of type kagzi.Kind.
func IsKind(target error, kind string) bool {
	return target != nil && reflect.TypeOf(target).Kind() == reflect.String && target.Error() == kind
}

// IsOf reports whether err, or an Error in its chain, is of the kind.
func IsOf(err error, kind string) bool { return errors.Is(err, name(kind)) }

// A name is a kind as a target of errors.Is.
type name string

func (n name) Error() string { return string(n) }

// ErrDeadline is the failure of a run that is over its Timeout.
var ErrDeadline = Of(KindDeadline, errors.New("the run's Timeout has passed"))

// The names of the kinds that Kagzi gives itself.
const (
	KindTimeout        = "timeout"
	KindDatabase       = "database"
	KindUnavailable    = "unavailable"
	KindUnknown        = "unknown"
	KindPanic          = "panic"
	KindBadRequest     = "bad_request"
	KindValidation     = "validation"
	KindBadInput       = "bad_input"
	KindCancelled      = "cancelled"
	KindDeadline       = "deadline"
	KindCrashLoop      = "crash_loop"
	KindNondeterminism = "nondeterminism"
	KindUnreadable     = "unreadable"
)
