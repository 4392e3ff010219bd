// Package failure has the errors that Kagzi makes for runs: of a kind, permanent, or so that their run
// is quarantined.
package failure

import (
	"errors"

	"github.com/kagzi/kagzi/kind"
)

// An Error gives an error a kind, and says whether another attempt may help.
type Error struct {
	Kind        kind.Kind
	Err         error
	Permanent   bool // another attempt would not help, whatever the kind
	Quarantined bool // its run is left to people, to be resumed once its code, or its data, is right
}

// Of gives err a kind.
func Of(k kind.Kind, err error) error { return &Error{Kind: k, Err: err} }

// Permanent gives err a kind, and says that another attempt would not help.
func Permanent(k kind.Kind, err error) error { return &Error{Kind: k, Err: err, Permanent: true} }

// BadRequest is err as the failure of a call that is wrong. No further attempt makes it right.
func BadRequest(err error) error { return Permanent(kind.BadRequest, err) }

// Quarantine is err as the failure of a run that is left to people. Only Kagzi itself makes one: the kind of an error
// that user code returns decides nothing.
func Quarantine(k kind.Kind, err error) error {
	return &Error{Kind: k, Err: err, Permanent: true, Quarantined: true}
}

// Recorded is what is in the chain of a recorded failure: its kind, and its details, nil if it has none.
func Recorded(k kind.Kind, permanent bool, details error) error {
	if details == nil {
		details = errUndetailed
	}
	return &Error{Kind: k, Err: details, Permanent: permanent}
}

var errUndetailed = errors.New("no details")

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

// IsKind reports whether target is the kind k.
func IsKind(target error, k kind.Kind) bool {
	t, ok := target.(kind.Kind)
	return ok && t == k
}

// ErrDeadline is the failure of a run that is over its Timeout, and ErrNotBegun that of one that is over its
// StartWithin.
var (
	ErrDeadline = Of(kind.Deadline, errors.New("the run's Timeout or ExecutionTimeout has passed"))
	ErrNotBegun = Of(kind.Deadline, errors.New("no worker has taken the run within its StartWithin"))
)
