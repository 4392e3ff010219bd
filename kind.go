package kagzi

import (
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/kinds"
	"github.com/kagzi/kagzi/kind"
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
func KindOf(err error) kind.Kind { return kinds.Of(err) }

// Permanent marks err as not worth another attempt. It keeps err's text, chain and kind. If err is also marked with
// [RetryAfter], the outer mark counts. Permanent(nil) is nil.
func Permanent(err error) error { return kinds.Permanent(err) }

// RetryAfter marks err as worth another attempt, whatever its kind, after at least d: the time in an HTTP header
// Retry-After, for example. The policy's MaxAttempts still applies, and so does a longer backoff; but if the step has a
// [Limit] that honours such pauses, the attempt does not count. It keeps err's text, chain and kind. If err is also
// marked [Permanent], the outer mark counts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error { return kinds.RetryAfter(err, d) }

// HTTPStatus returns the status with which an HTTP handler should answer for an error from Kagzi:
//
//   - 200: nil
//   - 404: [ErrNotFound]
//   - 409: [ErrIDConflict], [ErrIDTaken], [ErrRunFinished], [ErrRunActive], admin.ErrCompensated,
//     admin.ErrNoDoubt
//   - 413: [ErrPayloadTooLarge]
//   - 429: [ErrKeyFull], [ErrInboxFull]
//   - 503: the database is away, slow, busy or not migrated, a lock is held, or the handler's context was cancelled
//   - 400: Kagzi refused a call for its arguments
//
// Otherwise [KindOf] decides: not found is 404, unauthorized 403, a bad request 400, a failed validation 422, cancelled
// 409, rate limited 429, timeout and deadline 504, a network failure 502, unavailable 503. Of a *[RunError],
// unauthorized and a bad request are 500, because the workflow made the request. All other errors are 500.
func HTTPStatus(err error) int {
	run, failed := errors.AsType[*RunError](err)
	return kinds.HTTPStatus(err, failed && (run.Kind == kind.BadRequest || run.Kind == kind.Unauthorized))
}
