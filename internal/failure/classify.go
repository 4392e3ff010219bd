package failure

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/kind"
)

// Classify returns the kind of an error of Postgres, an HTTP client, the network or a system's socket, or "" for any
// other.
func Classify(err error) kind.Kind {
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
	}
	return ""
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
	Walk(err, func(err error) bool {
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
	return Walk(err, func(err error) bool {
		e, ok := err.(interface{ Timeout() bool })
		return ok && e.Timeout()
	})
}

func isNetwork(err error) bool {
	return Walk(err, func(err error) bool {
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

// IsBadURL reports whether err says that a URL cannot be parsed.
func IsBadURL(err error) bool {
	e, ok := errors.AsType[*url.Error](err)
	return ok && isParse(e)
}

func isParse(e *url.Error) bool { return strings.EqualFold(e.Op, "parse") }

// Walk calls visit for err and what it wraps, in the order of errors.Is, until visit returns true.
func Walk(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if Walk(err, visit) {
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
