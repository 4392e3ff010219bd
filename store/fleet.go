package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// ErrWorkerNotFound reports that the namespace has no such worker: it never had, or the worker was pruned.
var ErrWorkerNotFound = errors.New("worker not found")

// Statuses of a worker.
const (
	Online   = "ONLINE"
	Draining = "DRAINING"
	Offline  = "OFFLINE"
)

// findWorker returns the worker's status.
func (s Workers) findWorker(ctx context.Context, db pg.DB, id uuid.UUID) (status string, err error) {
	status, err = pg.AskOne[string](ctx, db, clause.FindWorker, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrWorkerNotFound
	}
	return status, err
}

const whyLost = `
SELECT coalesce(e.detail, '') FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1
	AND e.event = 'LOST'`

// WhyLost returns the logged reason for which the worker was declared dead; "" if there is none or it cannot be read.
func (s Workers) WhyLost(ctx context.Context, db pg.DB, id uuid.UUID) (reason string) {
	reason, _ = pg.AskOne[string](ctx, db, whyLost, s.namespace, id)
	return reason
}

// ---- drain ----

const onlineWorkers = `SELECT w.worker_id FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.status = 'ONLINE'
	AND $2 = ANY (w.task_queues) ORDER BY 1`

// The request is an entry of the log, and leaves the worker's row unlocked. A caller's transaction may stay open: a
// lock on the row would keep the worker from writing heartbeats, and make it look dead.
const requestDrain = `
INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail)
SELECT w.worker_id, u.event_id, $1, 'DRAINING', 'Workers.Drain'
FROM unnest($2::uuid[], $3::uuid[]) AS u (worker_id, event_id)
JOIN kagzi.workers w ON w.worker_id = u.worker_id AND w.namespace_id = $1 AND w.status = 'ONLINE'
WHERE NOT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = u.worker_id AND e.namespace_id = $1
	AND e.event = 'DRAINING')
ON CONFLICT DO NOTHING
RETURNING worker_id`

// Drain asks the worker to drain, in a transaction of its own, or in tx. It leaves a worker that is draining or
// OFFLINE.
func (s Workers) Drain(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why) error {
	return pg.Wrap("drain worker", s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.findWorker(ctx, tx, id); err != nil {
			return err
		}
		_, err := s.requestDrain(ctx, tx, "", []uuid.UUID{id}, why)
		return err
	}))
}

// DrainQueue asks all workers of the queue to drain, and returns those that had not been asked before.
func (s Workers) DrainQueue(ctx context.Context, tx pgx.Tx, queue string, why Why) (asked []uuid.UUID, err error) {
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		var online []uuid.UUID
		err := pg.Ask(ctx, tx, onlineWorkers, []any{s.namespace, queue}, pg.Collect(&online, pgx.RowTo[uuid.UUID]))
		if err != nil {
			return err
		}
		now, err := s.requestDrain(ctx, tx, queue, online, why)
		for _, id := range now { // asked keeps those of an earlier try: it may have committed, and its answer been lost
			if !slices.Contains(asked, id) {
				asked = append(asked, id)
			}
		}
		return err
	})
	return asked, pg.Wrap("drain queue", err)
}

// requestDrain asks workers to drain, and returns those that had not been asked before: so a repetition finds none.
// queue is the one with all of whose workers they drain; empty: a worker drains alone.
func (s Workers) requestDrain(ctx context.Context, tx pgx.Tx, queue string, ids []uuid.UUID,
	why Why,
) (asked []uuid.UUID, err error) {
	events := make([]uuid.UUID, len(ids))
	for i := range events {
		events[i] = uuid.New()
	}
	err = pg.Ask(ctx, tx, requestDrain, []any{s.namespace, array(ids), array(events)},
		pg.Collect(&asked, pgx.RowTo[uuid.UUID]))
	if err != nil {
		return asked, err
	}
	var entries []AuditEntry
	if queue != "" && len(asked) > 0 {
		entry := NewEntry(ActionDrained, OnQueue, queue, why)
		entry.Change("workers", 0, len(asked))
		entries = append(entries, entry)
	}
	for _, id := range asked {
		entry := NewEntry(ActionDrained, OnWorker, id.String(), why)
		entry.Queue = queue
		entries = append(entries, entry)
	}
	return asked, s.audit(ctx, tx, entries...)
}

// ---- force-offline ----

const lockWorker = `SELECT ` + lostColumns + ` FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1
	FOR NO KEY UPDATE`

const forceOffline = `
UPDATE kagzi.workers w
SET status = 'OFFLINE', stopped_at = t.now, active_count = 0, recheck_keys = true
FROM (SELECT statement_timestamp() AS now) t
WHERE w.worker_id = $2 AND w.namespace_id = $1 AND w.status <> 'OFFLINE'`

// ForceOffline declares the worker OFFLINE and makes its runs due at once, in transactions of its own, or in tx. If the
// worker is OFFLINE already, ForceOffline makes the runs due that it still holds.
func (s Workers) ForceOffline(ctx context.Context, tx pgx.Tx, id uuid.UUID, detail string,
	why Why,
) (lost LostWorker, err error) {
	event, entry := uuid.New(), NewEntry(ActionForced, OnWorker, id.String(), why)
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		err := pg.Ask(ctx, tx, lockWorker, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			lost, err = pgx.CollectExactlyOneRow(rows, readLost)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrWorkerNotFound
		}
		if err != nil {
			return err
		}
		forced, err := pg.Changed(ctx, tx, forceOffline, s.namespace, id)
		lost.RecheckKeys = lost.RecheckKeys || forced
		if err == nil && forced {
			err = pg.Ask(ctx, tx, workerEvent, []any{s.namespace, id, event, "LOST", detail}, nil)
			if err == nil {
				err = s.audit(ctx, tx, entry)
			}
		}
		if err == nil {
			// With release_at set, a coordinator releases the runs if this process dies before it does.
			err = s.setReleaseAt(ctx, tx, id, true)
		}
		return err
	})
	if err != nil {
		return lost, pg.Wrap("force worker offline", err)
	}
	if tx == nil {
		return lost, s.Release(ctx, &lost)
	}
	if err = s.releaseAll(ctx, tx, &lost); err == nil {
		err = s.setReleaseAt(ctx, tx, id, lost.Left > 0)
	}
	return lost, pg.Wrap("force worker offline", err)
}

// ---- retention ----

const pruneWorkers = `
WITH locked AS MATERIALIZED (
	SELECT v.worker_id
	FROM kagzi.workers v
	WHERE v.namespace_id = $1 AND v.status = 'OFFLINE' AND v.stopped_at < now() - $2::bigint * interval '1 microsecond'
		AND v.release_at IS NULL
	ORDER BY v.worker_id
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), events AS (
	DELETE FROM kagzi.worker_events d
	WHERE d.namespace_id = $1 AND d.worker_id IN (SELECT locked.worker_id FROM locked)
), deleted AS (
	DELETE FROM kagzi.workers d
	WHERE d.namespace_id = $1 AND d.worker_id IN (SELECT locked.worker_id FROM locked)
	RETURNING d.worker_id
)
SELECT count(*) FROM deleted`

// Prune deletes up to limit workers that have been OFFLINE for longer than keep, with their logs, and returns
// how many it deleted. Fewer than limit means that none are left.
func (s Workers) Prune(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		n, err = pg.AskOne[int64](ctx, s.pool, pruneWorkers, s.namespace, pg.Micros(keep), limit)
		return err
	})
	return n, pg.Wrap("prune workers", err)
}
