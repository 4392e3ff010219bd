package kinds

import (
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
)

// HTTPStatus returns the status with which a handler answers for err: see kagzi.HTTPStatus. ofWorkflow says that the
// failure is a wrong request that a workflow has made.
func HTTPStatus(err error, ofWorkflow bool) int {
	if err == nil {
		return http.StatusOK
	}
	for _, s := range []struct {
		status int
		errs   []error
	}{
		{http.StatusConflict, []error{
			core.ErrIDConflict, core.ErrIDTaken, core.ErrRunFinished, core.ErrRunActive, core.ErrCompensated,
			core.ErrNoDoubt,
		}},
		{http.StatusNotFound, []error{core.ErrNotFound}},
		{http.StatusRequestEntityTooLarge, []error{payloads.ErrTooLarge}},
	} {
		for _, target := range s.errs {
			if errors.Is(err, target) {
				return s.status
			}
		}
	}
	if ofWorkflow {
		return http.StatusInternalServerError
	}
	if declared(err) == "" { // a declared kind is more specific than the cause behind it
		if status := databaseStatus(err); status != 0 {
			return status
		}
	}
	return kindStatus(Of(err))
}

// databaseStatus returns the status for an error from the database, or 0 for any other error.
func databaseStatus(err error) int {
	_, answered := errors.AsType[*pgconn.PgError](err)
	switch pg.Classify(err) {
	case pg.ClassAway, pg.ClassBusy, pg.ClassUnable, pg.ClassConflict, pg.ClassLocked, pg.ClassMoved, pg.ClassClosed:
		return http.StatusServiceUnavailable
	case pg.ClassLate:
		if answered {
			return http.StatusServiceUnavailable
		}
	case pg.ClassForbidden:
		return http.StatusInternalServerError
	case pg.ClassOther:
		if answered {
			return http.StatusInternalServerError
		}
	}
	if Of(err) == kind.Cancelled {
		return http.StatusServiceUnavailable
	}
	return 0
}

func kindStatus(k kind.Kind) int {
	switch k {
	case kind.NotFound:
		return http.StatusNotFound
	case kind.Unauthorized:
		return http.StatusForbidden
	case kind.BadRequest:
		return http.StatusBadRequest
	case kind.Validation:
		return http.StatusUnprocessableEntity
	case kind.Cancelled:
		return http.StatusConflict
	case kind.RateLimited:
		return http.StatusTooManyRequests
	case kind.Timeout, kind.Deadline:
		return http.StatusGatewayTimeout
	case kind.Network:
		return http.StatusBadGateway
	case kind.Unavailable, kind.Database:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
