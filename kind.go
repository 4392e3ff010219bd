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
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// KindOf returns the kind of err: the outermost kind in its chain (a [kind.Kind], a [StepError], a [RunError]), else the kind by
// classification. It returns "" for nil.
//
// These errors are classified:
//
//   - errors of contexts: timeout, cancelled. But a step that returns context.Canceled while its own context goes on has
//     failed with unknown.
//   - errors of net, net/url and the system's sockets: timeout, network.
//   - errors of pgx, by their SQLSTATE: a violated constraint is validation, a statement that cannot work is bad_request, a
//     missing permission is unauthorized, and the rest is database. So is every failure to connect, since a database restarts.
//   - sql.ErrNoRows and fs.ErrNotExist: not_found. fs.ErrPermission: unauthorized.
//   - Kagzi's own refusals: bad_request.
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
		return cmp.Or(kind.Kind(text.Sanitize(string(k), maxNameBytes)), kind.Unknown) // it is stored
	}
	return classify(err)
}

// declaredKind returns the outermost kind in err's chain, or "".
func declaredKind(err error) (found kind.Kind) {
	walkErrors(err, func(err error) bool {
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

// classify goes from the most specific evidence to the least: a context's end explains the broken connection that it caused, and
// a missing socket is a network error before it is a file not found.
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
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return kind.Database
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return sqlStateKind(e.Code)
	}
	if k := httpKind(httpStatus(err)); k != "" {
		return k
	}
	switch {
	case isTimeout(err):
		return kind.Timeout
	case isNetwork(err):
		return kind.Network
	case errors.Is(err, driver.ErrBadConn):
		return kind.Database
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrNotFound):
		return kind.NotFound
	case errors.Is(err, fs.ErrPermission):
		return kind.Unauthorized
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder), errors.Is(err, migrations.ErrNewer):
		return kind.Unavailable // until somebody has migrated the database, or deployed the program
	case errors.Is(err, store.ErrIsolation):
		return kind.BadRequest
	case isBadURL(err), errors.Is(err, ErrPayloadTooLarge), errors.Is(err, ErrIDConflict),
		errors.Is(err, ErrIDTaken), errors.Is(err, ErrRunFinished), errors.Is(err, ErrCompensated), errors.Is(err, engine.ErrForeignGoroutine):
		return kind.BadRequest
	}
	if isRefusal(err) {
		return kind.BadRequest
	}
	return kind.Unknown
}

// isRefusal reports whether Kagzi refused a call for its arguments. Such an error has Kagzi's prefix and wraps no other error.
// Three errors of the same form are not about the arguments: a run is still active, or work was interrupted.
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
func sqlStateKind(code string) kind.Kind {
	switch code {
	case "42501": // insufficient_privilege
		return kind.Unauthorized
	case "57014": // query_canceled: statement_timeout
		return kind.Timeout
	}
	class := code[:min(len(code), 2)]
	switch class {
	case "22", "23", "44": // data exception, constraint violation, WITH CHECK OPTION
		return kind.Validation
	case "42": // syntax error, undefined table
		return kind.BadRequest
	}
	return kind.Database // 08, 40, 53, 55, 57, XX and whatever a trigger raises
}

// httpKind classifies an HTTP status. It returns "" for one that is no failure.
func httpKind(status int) kind.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return kind.Unauthorized
	case http.StatusNotFound, http.StatusGone:
		return kind.NotFound
	case http.StatusRequestTimeout:
		return kind.Timeout
	case http.StatusUnprocessableEntity:
		return kind.Validation
	case http.StatusTooManyRequests:
		return kind.RateLimited
	case http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly:
		return kind.Unknown // the next attempt may pass: 409 is also "your first attempt is still under way"
	case http.StatusInternalServerError:
		return kind.Unknown
	}
	switch {
	case 400 <= status && status < 500:
		return kind.BadRequest
	case 500 < status && status < 600:
		return kind.Unavailable
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
