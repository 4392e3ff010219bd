package kagzi

import (
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
)

// HTTPStatus returns the status with which an HTTP handler should answer for an error from Kagzi:
//
//   - 200: nil
//   - 404: [ErrNotFound]
//   - 409: [ErrIDConflict], [ErrIDTaken], [ErrRunFinished], [ErrRunActive], admin.ErrCompensated
//   - 413: [ErrPayloadTooLarge]
//   - 429: [ErrKeyFull], [ErrInboxFull]
//   - 503: the database is away, slow, busy or not migrated, a lock is held, or the handler's context was cancelled
//   - 400: Kagzi refused a call for its arguments
//
// Otherwise [KindOf] decides: not found is 404, unauthorized 403, a bad request 400, a failed validation 422, cancelled
// 409, rate limited 429, timeout and deadline 504, a network failure 502, unavailable 503. Of a *[RunError],
// unauthorized and a bad request are 500, because the workflow made the request. All other errors are 500.
func HTTPStatus(err error) int {
	if err == nil {
		return http.StatusOK
	}
	for _, s := range []struct {
		status int
		errs   []error
	}{
		{http.StatusConflict, []error{ErrIDConflict, ErrIDTaken, ErrRunFinished, ErrRunActive, core.ErrCompensated}},
		{http.StatusNotFound, []error{ErrNotFound}},
		{http.StatusRequestEntityTooLarge, []error{ErrPayloadTooLarge}},
	} {
		for _, target := range s.errs {
			if errors.Is(err, target) {
				return s.status
			}
		}
	}
	if run, ok := errors.AsType[*RunError](err); ok && (run.Kind == kind.BadRequest || run.Kind == kind.Unauthorized) {
		return http.StatusInternalServerError // it is the workflow that made the request
	}
	if declaredKind(err) == "" { // a declared kind is more specific than the cause behind it
		if status := databaseStatus(err); status != 0 {
			return status
		}
	}
	return kindStatus(KindOf(err))
}

// databaseStatus returns the status for an error from the database, or 0 for any other error.
func databaseStatus(err error) int {
	_, answered := errors.AsType[*pgconn.PgError](err)
	switch pg.Classify(err) {
	case pg.ClassAway, pg.ClassBusy, pg.ClassUnable, pg.ClassConflict, pg.ClassLocked, pg.ClassClosed:
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
	if KindOf(err) == kind.Cancelled {
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
