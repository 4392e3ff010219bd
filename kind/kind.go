// Package kind has the kinds of failures. A program that tells failures apart imports it beside package kagzi, which
// finds the kind of any error with KindOf:
//
//	if errors.Is(err, kind.Timeout) {
//		…
//	}
package kind

// A Kind classifies a failure. It survives replay, and is itself an error, so that errors.Is(err, kind.Timeout) finds
// it in the errors of steps and runs. kagzi.KindOf classifies all other errors.
//
// Declare kinds of your own:
//
//	const Declined kind.Kind = "card_declined"
//
// They are worth another attempt, unless the error is marked with kagzi.Permanent.
type Kind string

// Kinds that Kagzi gives to failures that are worth another attempt.
const (
	Network     Kind = "network"
	Timeout     Kind = "timeout"
	Database    Kind = "database"
	RateLimited Kind = "rate_limited"
	Unavailable Kind = "unavailable"
	Unknown     Kind = "unknown"
)

// Kinds that Kagzi gives to failures that are not worth another attempt.
const (
	Panic          Kind = "panic" // a panic, or a function that called runtime.Goexit
	NotFound       Kind = "not_found"
	Unauthorized   Kind = "unauthorized"
	BadRequest     Kind = "bad_request"
	Validation     Kind = "validation"
	BadInput       Kind = "bad_input" // a stored input that no longer decodes into the workflow's type
	Cancelled      Kind = "cancelled"
	Deadline       Kind = "deadline"       // the time of the run's Timeout, ExecutionTimeout or StartWithin has passed
	CrashLoop      Kind = "crash_loop"     // the run kept killing its workers
	InDoubt        Kind = "in_doubt"       // a step with AtMostOnce was called, and what it has done is not known
	Compensation   Kind = "compensation"   // a registered compensation failed for good
	Nondeterminism Kind = "nondeterminism" // the code contradicts the run's history
	Unreadable     Kind = "unreadable"     // the run's records could not be read, or its values sealed, again and again
)

// Error returns the kind's name, and makes a Kind an error.
func (k Kind) Error() string { return string(k) }

// Retryable reports whether a failure of this kind is worth another attempt. Kinds that users declare are.
func (k Kind) Retryable() bool {
	switch k {
	case Panic, NotFound, Unauthorized, BadRequest, Validation, BadInput, Cancelled,
		Deadline, CrashLoop, InDoubt, Compensation, Nondeterminism, Unreadable:
		return false
	}
	return true
}
