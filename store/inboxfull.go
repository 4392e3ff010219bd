package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// ErrMessageNotFound reports that the run has no message with this ID.
var ErrMessageNotFound = errors.New("message not found")

// A fullInbox is ErrInboxFull of a run.
type fullInbox struct{ run uuid.UUID }

func (e *fullInbox) Error() string { return ErrInboxFull.Error() }

// Unwrap returns ErrInboxFull.
func (e *fullInbox) Unwrap() error { return ErrInboxFull }

// Health finds the run by this time. storeMessages resets it.
const noteFullInbox = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE kagzi.workflow_runs r
SET inbox_full_at = clock.now
FROM clock
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.inbox_full_at IS NULL AND r.finished_at IS NULL`

// noteRefusal marks the run that has refused a message with err, if one has. The message was not stored, so the mark
// is a change of its own. In a transaction of the caller it is a part of that: a rollback leaves no mark. An error is
// dropped, because the next message that the run refuses marks it.
func (s *conn) noteRefusal(ctx context.Context, tx pgx.Tx, err error) {
	if full, ok := errors.AsType[*fullInbox](err); ok {
		_ = s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
			return pg.Ask(ctx, tx, noteFullInbox, []any{s.namespace, full.run}, nil)
		})
	}
}
