package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// ErrRunFinished reports that the run is over.
var ErrRunFinished = errors.New("run is over")

// ErrRunActive reports that the run is not over.
var ErrRunActive = errors.New("run is not over")

// A run whose steps are being deleted does not count as existing.
const runStatus = `
SELECT r.status FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'`

func (s *conn) status(ctx context.Context, tx pgx.Tx, id uuid.UUID) (string, error) {
	status, err := pg.AskOne[string](ctx, tx, runStatus, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	return status, err
}
