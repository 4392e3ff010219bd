package kagzi

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// KindOf returns the kind of err, "" for nil: the outermost kind in its chain (a [kind.Kind], a [StepError], a
// [RunError]), else that by classification:
//
//   - errors of contexts: timeout, cancelled. But a step that returns context.Canceled while its own context goes on
//     has failed with unknown.
//   - errors of net, net/url and the system's sockets: timeout, network.
//   - errors of pgx, by SQLSTATE: validation for a violated constraint, bad_request for a wrong statement, unauthorized
//     for a missing permission, else database, also for a failure to connect.
//   - sql.ErrNoRows and fs.ErrNotExist: not_found. fs.ErrPermission: unauthorized.
//   - Kagzi's refusals: bad_request.
//   - errors with a method StatusCode or HTTPStatusCode that returns an HTTP status as int: by that status.
//
// All others are unknown.
func KindOf(err error) (found kind.Kind) {
	if err == nil {
		return ""
	}
	// The methods of a user's error may panic, above all on a nil pointer in the interface.
	defer func() {
		if recover() != nil {
			found = kind.Unknown
		}
	}()
	if k := declaredKind(err); k != "" {
		return cmp.Or(kind.Kind(text.Sanitize(string(k), valid.MaxNameBytes)), kind.Unknown) // it is stored
	}
	return classify(err)
}

// declaredKind returns the outermost kind in err's chain, or "".
func declaredKind(err error) (found kind.Kind) {
	failure.Walk(err, func(err error) bool {
		switch e := err.(type) {
		case kind.Kind:
			found = e
		case *StepError:
			found = e.Kind
		case *RunError:
			found = e.Kind
		case *failure.Panic:
			found = kind.Panic
		case *failure.Error:
			found = e.Kind
		case interface{ As(any) bool }:
			e.As(&found)
		}
		return found != ""
	})
	return found
}

// classify goes from the most specific evidence to the least: a context's end explains the broken connection that it
// caused, and a missing socket is a network error before it is a file not found.
func classify(err error) kind.Kind {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return kind.Timeout
	case errors.Is(err, context.Canceled):
		return kind.Cancelled
	}
	if _, ok := errors.AsType[*store.MissingRights](err); ok {
		return kind.Unauthorized
	}
	if k := failure.Classify(err); k != "" {
		return k
	}
	switch {
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrNotFound):
		return kind.NotFound
	case errors.Is(err, fs.ErrPermission):
		return kind.Unauthorized
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder),
		errors.Is(err, migrations.ErrNewer):
		return kind.Unavailable // until an operator has migrated the database, or deployed the program
	case errors.Is(err, pg.ErrIsolation):
		return kind.BadRequest
	case errors.Is(err, ErrKeyFull), errors.Is(err, ErrInboxFull):
		return kind.RateLimited // a slot becomes free, or the run reads messages
	case failure.IsBadURL(err), errors.Is(err, ErrPayloadTooLarge), errors.Is(err, ErrIDConflict),
		errors.Is(err, ErrIDTaken), errors.Is(err, ErrRunFinished), errors.Is(err, core.ErrCompensated),
		errors.Is(err, replay.ErrForeignGoroutine):
		return kind.BadRequest
	}
	if isRefusal(err) {
		return kind.BadRequest
	}
	return kind.Unknown
}

// isRefusal reports whether Kagzi refused a call for its arguments. Such an error has Kagzi's prefix and wraps no other
// error. Three errors of the same form are not about the arguments: a run is still active, or work was interrupted.
func isRefusal(err error) bool {
	for _, other := range []error{ErrRunActive, ErrLeaseLost, ErrShutdown} {
		if errors.Is(err, other) {
			return false
		}
	}
	return failure.Walk(err, func(err error) bool {
		switch err.(type) {
		case *StepError, *RunError, *DivergenceError:
			return false
		case interface{ Unwrap() error }, interface{ Unwrap() []error }:
			return false
		}
		return strings.HasPrefix(err.Error(), "kagzi: ")
	})
}

// Permanent marks err as not worth another attempt. It keeps err's text, chain and kind. If err is also marked with
// [RetryAfter], the outer mark counts. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, permanent: true}
}

// RetryAfter marks err as worth another attempt, whatever its kind, after at least d: the time in an HTTP header
// Retry-After, for example. The policy's MaxAttempts still applies, and so does a longer backoff; but if the step has a
// [Limit] that honours such pauses, the attempt does not count. It keeps err's text, chain and kind. If err is also
// marked [Permanent], the outer mark counts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, after: min(max(d, 0), duration.Longest)}
}

// A markedError is an error marked by Permanent or RetryAfter.
type markedError struct {
	err       error
	permanent bool
	after     time.Duration
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

// isPermanent reports whether err is not worth another attempt: by its outermost mark, else by its kind.
func isPermanent(err error) bool {
	if err == nil {
		return false
	}
	if m, ok := outermostMark(err); ok {
		return m.permanent
	}
	return !KindOf(err).Retryable()
}

// retryAfter returns the wait that err's outermost mark asks for.
func retryAfter(err error) (time.Duration, bool) {
	m, ok := outermostMark(err)
	return m.after, ok && !m.permanent
}

func outermostMark(err error) (mark markedError, found bool) {
	defer func() {
		if recover() != nil { // a method of a user's error
			mark, found = markedError{}, false
		}
	}()
	found = failure.Walk(err, func(err error) bool {
		switch e := err.(type) {
		case *markedError:
			mark = *e
			return true
		case *StepError:
			mark.permanent = e.permanent
			return e.permanent
		case *failure.Error:
			mark.permanent = e.Permanent
			return e.Permanent
		}
		return false
	})
	return mark, found
}
