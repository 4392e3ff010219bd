package store

import (
	"bytes"
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// compareIDs orders runs as the statements lock them, by run_id.
func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// A transaction first locks every run that it changes, in order of run_id. Otherwise two processes would wait for each
// other if each finishes children of the other's runs.
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

// lockFree locks the runs that no other transaction has locked. It returns these, and those that do not exist: a parent
// that was deleted cannot be locked, and never comes back.
func (s *conn) lockFree(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]uuid.UUID, error) {
	var free, missing []uuid.UUID
	b := &pgx.Batch{}
	b.Queue(lockFreeRuns, s.namespace, array(ids))
	b.Queue(missingRuns, s.namespace, array(ids))
	err := pg.Exchange(ctx, tx, pg.Brief, b, pg.Collect(&free, pgx.RowTo[uuid.UUID]), pg.Collect(&missing,
		pgx.RowTo[uuid.UUID]))
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

// lock locks the run and its parent until the end of tx.
func (s *conn) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return pg.Ask(ctx, tx, lockForChange, []any{s.namespace, id}, nil)
}
