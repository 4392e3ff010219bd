package store

import (
	"bytes"
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// A flush first locks every run that it changes, in order of run_id. Otherwise two processes that finish each other's runs'
// children would wait for each other.
const lockRuns = `
SELECT r.run_id
FROM (SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id) ORDER BY 1) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE
) r`

const lockFreeRuns = `
SELECT r.run_id
FROM (SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id) ORDER BY 1) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE SKIP LOCKED
) r`

// lockFree locks the runs that nobody else has locked. It returns them, and those that do not exist: nobody can lock a
// parent that was deleted, and it never comes back.
func (s *Store) lockFree(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]uuid.UUID, error) {
	var free, missing []uuid.UUID
	b := &pgx.Batch{}
	b.Queue(lockFreeRuns, s.namespace, array(ids))
	b.Queue(missingRuns, s.namespace, array(ids))
	err := exchange(ctx, tx, brief, b, collect(&free, pgx.RowTo[uuid.UUID]), collect(&missing, pgx.RowTo[uuid.UUID]))
	return append(free, missing...), err
}

// A change first locks the run and the parent that it may wake, in order of run_id.
const lockForChange = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.namespace_id = $1 AND r.run_id IN ($2, coalesce(
	(SELECT q.parent_run_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1), $2))
ORDER BY r.run_id
FOR UPDATE`

func (s *Store) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return ask(ctx, tx, lockForChange, []any{s.namespace, id}, nil)
}
