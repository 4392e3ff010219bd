package kagzi

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A Kind classifies a failure, survives replay and is itself an error: errors.Is(err, kagzi.KindTimeout). That finds the
// kinds of errors of steps and runs, and your own. [KindOf] classifies all others, such as what Kagzi refuses.
//
// Declare your own: const Declined kagzi.Kind = "card_declined". A kind of your own is worth another
// attempt, as long as the error is not marked [Permanent].
type Kind string

// Kinds that Kagzi gives. Those up to Unknown are worth another attempt.
const (
	KindNetwork        Kind = "network"
	KindTimeout        Kind = "timeout"
	KindDatabase       Kind = "database"
	KindRateLimited    Kind = "rate_limited"
	KindUnavailable    Kind = "unavailable"
	KindUnknown        Kind = "unknown"
	KindPanic          Kind = "panic" // also a function that called runtime.Goexit
	KindNotFound       Kind = "not_found"
	KindUnauthorized   Kind = "unauthorized"
	KindBadRequest     Kind = "bad_request"
	KindValidation     Kind = "validation"
	KindBadInput       Kind = "bad_input" // a stored input that no longer decodes into the workflow's type
	KindCancelled      Kind = "cancelled"
	KindDeadline       Kind = "deadline"       // the run's Timeout
	KindCrashLoop      Kind = "crash_loop"     // the run kept killing its workers
	KindCompensation   Kind = "compensation"   // what Compensate registered failed for good
	KindNondeterminism Kind = "nondeterminism" // code and history cannot both be right
	KindUnreadable     Kind = "unreadable"     // what the run has recorded could not be read, again and again
)

// Error makes a Kind an error.
func (k Kind) Error() string { return string(k) }

// retryable reports whether a failure of this kind is worth another attempt. Kinds that users declare are.
func (k Kind) retryable() bool {
	switch k {
	case KindPanic, KindNotFound, KindUnauthorized, KindBadRequest, KindValidation, KindBadInput, KindCancelled,
		KindDeadline, KindCrashLoop, KindCompensation, KindNondeterminism, KindUnreadable:
		return false
	}
	return true
}

// KindOf returns the kind of err: the outermost one in its chain (a Kind, a [StepError], a [RunError]), else
// by classification. It is "" for nil.
//
// Classification knows the errors of contexts (timeout, cancelled; but a step that returns context.Canceled while its own
// context goes on has failed with unknown), of net, net/url and the system's sockets
// (timeout, network), of pgx by their SQLSTATE (a violated constraint is validation, a statement that cannot
// work is bad_request, a permission missing is unauthorized, the rest is database, and so is every failure
// to connect, since a database restarts), sql.ErrNoRows and fs.ErrNotExist (not_found), fs.ErrPermission
// (unauthorized), Kagzi's own refusals (bad_request), and every error with a method StatusCode or HTTPStatusCode that
// returns an HTTP status as int. What it does not know is unknown.
func KindOf(err error) (kind Kind) {
	if err == nil {
		return ""
	}
	// The methods of a user's error may panic, above all on a nil pointer in the interface.
	defer func() {
		if recover() != nil {
			kind = KindUnknown
		}
	}()
	if k := declaredKind(err); k != "" {
		return cmp.Or(Kind(text.Sanitize(string(k), maxNameBytes)), KindUnknown) // it is stored
	}
	return classify(err)
}

// declaredKind returns the outermost kind in err's chain, or "".
func declaredKind(err error) (kind Kind) {
	walkErrors(err, func(err error) bool {
		switch e := err.(type) {
		case Kind:
			kind = e
		case *StepError:
			kind = e.Kind
		case *RunError:
			kind = e.Kind
		case *failure.Panic:
			kind = KindPanic
		case *failure.Error:
			kind = Kind(e.Kind)
		case interface{ As(any) bool }:
			e.As(&kind)
		}
		return kind != ""
	})
	return kind
}

// classify goes from what says most to what says least: a context's end explains the broken connection
// that it caused, and a socket that does not exist is a network error before it is a file not found.
func classify(err error) Kind {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return KindTimeout
	case errors.Is(err, context.Canceled):
		return KindCancelled
	}
	if _, ok := errors.AsType[*store.MissingRights](err); ok {
		return KindUnauthorized
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return KindDatabase
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return sqlStateKind(e.Code)
	}
	if k := httpKind(httpStatus(err)); k != "" {
		return k
	}
	switch {
	case isTimeout(err):
		return KindTimeout
	case isNetwork(err):
		return KindNetwork
	case errors.Is(err, driver.ErrBadConn):
		return KindDatabase
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrNotFound):
		return KindNotFound
	case errors.Is(err, fs.ErrPermission):
		return KindUnauthorized
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder), errors.Is(err, migrations.ErrNewer):
		return KindUnavailable // until somebody has migrated the database, or deployed the program
	case errors.Is(err, store.ErrIsolation):
		return KindBadRequest
	case isBadURL(err), errors.Is(err, ErrPayloadTooLarge), errors.Is(err, ErrIDConflict),
		errors.Is(err, ErrIDTaken), errors.Is(err, ErrRunFinished), errors.Is(err, ErrCompensated), errors.Is(err, engine.ErrForeignGoroutine):
		return KindBadRequest
	}
	if isRefusal(err) {
		return KindBadRequest
	}
	return KindUnknown
}

// isRefusal reports whether Kagzi refused a call for what it was given. Those errors have no error behind them, and a
// prefix. Of what is said in the same way, it is not about the call that a run is still active, or that work was
// interrupted.
func isRefusal(err error) bool {
	for _, other := range []error{ErrRunActive, ErrLeaseLost, ErrShutdown} {
		if errors.Is(err, other) {
			return false
		}
	}
	return walkErrors(err, func(err error) bool {
		switch err.(type) {
		case *StepError, *RunError, *DivergenceError:
			return false
		case interface{ Unwrap() error }, interface{ Unwrap() []error }:
			return false
		}
		return strings.HasPrefix(err.Error(), "kagzi: ")
	})
}

// sqlStateKind classifies an error that Postgres reported.
func sqlStateKind(code string) Kind {
	switch code {
	case "42501": // insufficient_privilege
		return KindUnauthorized
	case "57014": // query_canceled: statement_timeout
		return KindTimeout
	}
	class := code[:min(len(code), 2)]
	switch class {
	case "22", "23", "44": // data exception, constraint violation, WITH CHECK OPTION
		return KindValidation
	case "42": // syntax error, undefined table
		return KindBadRequest
	}
	return KindDatabase // 08, 40, 53, 55, 57, XX and whatever a trigger raises
}

// httpKind classifies an HTTP status; "" says that it is no failure.
func httpKind(status int) Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return KindUnauthorized
	case http.StatusNotFound, http.StatusGone:
		return KindNotFound
	case http.StatusRequestTimeout:
		return KindTimeout
	case http.StatusUnprocessableEntity:
		return KindValidation
	case http.StatusTooManyRequests:
		return KindRateLimited
	case http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly:
		return KindUnknown // the next attempt may pass: 409 is also "your first attempt is still under way"
	case http.StatusInternalServerError:
		return KindUnknown
	}
	switch {
	case 400 <= status && status < 500:
		return KindBadRequest
	case 500 < status && status < 600:
		return KindUnavailable
	}
	return ""
}

// httpStatus returns the HTTP status in err's chain, or 0.
func httpStatus(err error) (status int) {
	walkErrors(err, func(err error) bool {
		switch e := err.(type) {
		case interface{ StatusCode() int }:
			status = e.StatusCode()
		case interface{ HTTPStatusCode() int }:
			status = e.HTTPStatusCode()
		}
		return status != 0
	})
	return status
}

func isTimeout(err error) bool {
	return walkErrors(err, func(err error) bool {
		e, ok := err.(interface{ Timeout() bool })
		return ok && e.Timeout()
	})
}

func isNetwork(err error) bool {
	return walkErrors(err, func(err error) bool {
		switch e := err.(type) {
		case *net.OpError, *net.DNSError:
			return true
		case *url.Error:
			return !isParse(e) // the rest comes from a round trip
		case syscall.Errno:
			return e == syscall.ECONNREFUSED || e == syscall.ECONNRESET || e == syscall.ECONNABORTED ||
				e == syscall.EPIPE || e == syscall.EHOSTUNREACH || e == syscall.ENETUNREACH
		}
		return err == io.ErrUnexpectedEOF || err == net.ErrClosed
	})
}

func isBadURL(err error) bool {
	e, ok := errors.AsType[*url.Error](err)
	return ok && isParse(e)
}

func isParse(e *url.Error) bool { return strings.EqualFold(e.Op, "parse") }

// walkErrors calls visit for err and what it wraps, in the order of errors.Is, until visit returns true.
func walkErrors(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if walkErrors(err, visit) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}
