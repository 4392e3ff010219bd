package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrWorkerNotFound reports that the namespace has no such worker: it never had, or the worker was pruned.
var ErrWorkerNotFound = errors.New("worker not found")

// Statuses of a worker.
const (
	Online   = "ONLINE"
	Draining = "DRAINING"
	Offline  = "OFFLINE"
)

// A WorkerRow is a worker's row in the registry.
type WorkerRow struct {
	ID            uuid.UUID
	Queues        []string // from which it claims
	LeftQueues    []string // from which it claims no more, and of which it may still hold runs
	Types         []string
	Handlers      []string // with their versions: "checkout/2"
	Status        string
	Silent        bool // it is not OFFLINE, and its last heartbeat is older than its StaleAfter
	Hostname      string
	PID           int
	Build         string
	Labels        json.RawMessage
	MaxConcurrent int
	Active        int // runs that it executes
	Counts        Counts
	Watched       bool // its heartbeat connection has a known backend, so coordinators notice when it ends
	StartedAt     time.Time
	HeartbeatAt   time.Time
	StoppedAt     time.Time
}

// A worker that was asked to drain counts as draining even before it has read the request.
const workerStatus = `CASE WHEN w.status = 'ONLINE' AND EXISTS (
		SELECT FROM kagzi.worker_events e WHERE e.worker_id = w.worker_id AND e.namespace_id = $1
			AND e.event = 'DRAINING')
	THEN 'DRAINING' ELSE w.status END`

const workerColumns = `w.worker_id, w.task_queues, w.left_queues, w.workflow_types, w.handlers, ` + workerStatus +
	`, w.status <> 'OFFLINE' AND w.heartbeat_at < clock_timestamp() - w.stale_after, w.hostname, w.pid, w.build, w.labels, w.max_concurrent,
	w.active_count, w.completed_count, w.failed_count, w.steps_count, w.backend_pid IS NOT NULL, w.started_at, w.heartbeat_at, w.stopped_at`

func readWorker(row pgx.CollectableRow) (w WorkerRow, err error) {
	return w, row.Scan(&w.ID, &w.Queues, &w.LeftQueues, &w.Types, &w.Handlers, &w.Status, &w.Silent, &w.Hostname,
		&w.PID, &w.Build, &w.Labels, &w.MaxConcurrent,
		&w.Active, &w.Counts.Completed, &w.Counts.Failed, &w.Counts.Steps, &w.Watched, utc(&w.StartedAt),
		utc(&w.HeartbeatAt), utc(&w.StoppedAt))
}

// A WorkerFilter chooses workers; a zero field chooses all.
type WorkerFilter struct {
	Status []string
	Queue  string
	Type   string
	Labels json.RawMessage
	After  uuid.UUID // the last worker of the previous page
	Limit  int
}

const chosenWorkers = `
FROM kagzi.workers w
WHERE w.namespace_id = $1
	AND ($3::text = '' OR $3::text = ANY (w.task_queues))
	AND ($4::text = '' OR $4::text = ANY (w.workflow_types))
	AND ($5::text = '' OR w.labels @> NULLIF($5::text, '')::jsonb)
	AND (cardinality($2::text[]) = 0 OR ` + workerStatus + ` = ANY ($2::text[]))`

const countWorkers = `SELECT count(*)` + chosenWorkers

const listWorkers = `SELECT ` + workerColumns + chosenWorkers + `
	AND ($6::uuid = '00000000-0000-0000-0000-000000000000'
		OR (w.started_at, w.worker_id) < (SELECT v.started_at, v.worker_id FROM kagzi.workers v
			WHERE v.worker_id = $6::uuid AND v.namespace_id = $1))
ORDER BY w.started_at DESC, w.worker_id DESC
LIMIT $7::int`

// Workers returns a page of the chosen workers, the last one started first, and how many there are on all pages. The
// start of a worker never changes, so pages neither skip nor repeat one. It returns ErrWorkerNotFound if worker After
// does not exist.
func (s *Store) Workers(ctx context.Context, f WorkerFilter) (page []WorkerRow, total int, err error) {
	statuses := f.Status
	if statuses == nil {
		statuses = []string{}
	}
	chosen := []any{s.namespace, statuses, f.Queue, f.Type, string(f.Labels)}
	err = do(ctx, func(ctx context.Context) error {
		if f.After != uuid.Nil {
			if _, err := s.findWorker(ctx, s.pool, f.After); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		b.Queue(countWorkers, chosen...)
		b.Queue(listWorkers, append(slices.Clip(chosen), f.After.String(), f.Limit)...)
		return exchange(ctx, s.pool, untimed, b, func(rows pgx.Rows) (err error) {
			total, err = pgx.CollectOneRow(rows, pgx.RowTo[int])
			return err
		}, collect(&page, readWorker))
	})
	return page, total, wrap("list workers", err)
}

const getWorker = `SELECT ` + workerColumns + ` FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1`

// Worker returns one worker.
func (s *Store) Worker(ctx context.Context, id uuid.UUID) (w WorkerRow, err error) {
	err = do(ctx, func(ctx context.Context) error {
		err := ask(ctx, s.pool, getWorker, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			w, err = pgx.CollectExactlyOneRow(rows, readWorker)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrWorkerNotFound
		}
		return err
	})
	return w, wrap("get worker", err)
}

const findWorker = `SELECT w.status FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1`

// findWorker returns the worker's status.
func (s *Store) findWorker(ctx context.Context, db DB, id uuid.UUID) (status string, err error) {
	status, err = askOne[string](ctx, db, findWorker, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrWorkerNotFound
	}
	return status, err
}

// A WorkerEvent is an entry of a worker's log.
type WorkerEvent struct {
	Event  string
	Detail string
	At     time.Time
}

const workerEvents = `
SELECT e.event, coalesce(e.detail, ''), e.occurred_at
FROM kagzi.worker_events e
WHERE e.worker_id = $2 AND e.namespace_id = $1
ORDER BY e.occurred_at, e.event_id`

// WorkerEvents returns the worker's log, oldest first.
func (s *Store) WorkerEvents(ctx context.Context, id uuid.UUID) (events []WorkerEvent, err error) {
	err = do(ctx, func(ctx context.Context) error {
		if _, err := s.findWorker(ctx, s.pool, id); err != nil {
			return err
		}
		return ask(ctx, s.pool, workerEvents, []any{s.namespace, id},
			collect(&events, func(row pgx.CollectableRow) (e WorkerEvent, err error) {
				return e, row.Scan(&e.Event, &e.Detail, utc(&e.At))
			}))
	})
	return events, wrap("read a worker's log", err)
}

const whyLost = `
SELECT coalesce(e.detail, '') FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1
	AND e.event = 'LOST'`

// WhyLost returns the logged reason for which the worker was declared dead; "" if there is none or it cannot be read.
func (s *Store) WhyLost(ctx context.Context, db DB, id uuid.UUID) (reason string) {
	reason, _ = askOne[string](ctx, db, whyLost, s.namespace, id)
	return reason
}

// ---- drain ----

const onlineWorkers = `SELECT w.worker_id FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.status = 'ONLINE'
	AND $2 = ANY (w.task_queues) ORDER BY 1`

// The request is an entry of the log, and leaves the worker's row unlocked. A caller's transaction may stay open: a
// lock on the row would keep the worker from writing heartbeats, and make it look dead.
const requestDrain = `
INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail)
SELECT w.worker_id, u.event_id, $1, 'DRAINING', 'Client.Drain'
FROM unnest($2::uuid[], $3::uuid[]) AS u (worker_id, event_id)
JOIN kagzi.workers w ON w.worker_id = u.worker_id AND w.namespace_id = $1 AND w.status = 'ONLINE'
WHERE NOT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = u.worker_id AND e.namespace_id = $1
	AND e.event = 'DRAINING')
ON CONFLICT DO NOTHING
RETURNING worker_id`

// Drain asks the worker to drain, in a transaction of its own, or in tx. It leaves a worker that is draining or
// OFFLINE.
func (s *Store) Drain(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why) error {
	return wrap("drain worker", s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.findWorker(ctx, tx, id); err != nil {
			return err
		}
		_, err := s.requestDrain(ctx, tx, "", []uuid.UUID{id}, why)
		return err
	}))
}

// DrainQueue asks all workers of the queue to drain, and returns those that had not been asked before.
func (s *Store) DrainQueue(ctx context.Context, tx pgx.Tx, queue string, why Why) (asked []uuid.UUID, err error) {
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		var online []uuid.UUID
		err := ask(ctx, tx, onlineWorkers, []any{s.namespace, queue}, collect(&online, pgx.RowTo[uuid.UUID]))
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
	return asked, wrap("drain queue", err)
}

// requestDrain asks workers to drain, and returns those that had not been asked before: so a repetition finds none.
// queue is the one with all of whose workers they drain; empty: a worker drains alone.
func (s *Store) requestDrain(ctx context.Context, tx pgx.Tx, queue string, ids []uuid.UUID,
	why Why,
) (asked []uuid.UUID, err error) {
	events := make([]uuid.UUID, len(ids))
	for i := range events {
		events[i] = uuid.New()
	}
	err = ask(ctx, tx, requestDrain, []any{s.namespace, array(ids), array(events)},
		collect(&asked, pgx.RowTo[uuid.UUID]))
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
func (s *Store) ForceOffline(ctx context.Context, tx pgx.Tx, id uuid.UUID, detail string,
	why Why,
) (lost LostWorker, err error) {
	event, entry := uuid.New(), NewEntry(ActionForced, OnWorker, id.String(), why)
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		err := ask(ctx, tx, lockWorker, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			lost, err = pgx.CollectExactlyOneRow(rows, readLost)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrWorkerNotFound
		}
		if err != nil {
			return err
		}
		forced, err := changed(ctx, tx, forceOffline, s.namespace, id)
		lost.RecheckKeys = lost.RecheckKeys || forced
		if err == nil && forced {
			err = ask(ctx, tx, workerEvent, []any{s.namespace, id, event, "LOST", detail}, nil)
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
		return lost, wrap("force worker offline", err)
	}
	if tx == nil {
		return lost, s.Release(ctx, &lost)
	}
	if err = s.releaseAll(ctx, tx, &lost); err == nil {
		err = s.setReleaseAt(ctx, tx, id, lost.Left > 0)
	}
	return lost, wrap("force worker offline", err)
}

// ---- retention ----

const pruneWorkers = `
WITH w AS MATERIALIZED (
	SELECT v.worker_id
	FROM kagzi.workers v
	WHERE v.namespace_id = $1 AND v.status = 'OFFLINE' AND v.stopped_at < now() - $2::bigint * interval '1 microsecond'
		AND v.release_at IS NULL
	ORDER BY v.worker_id
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), e AS (
	DELETE FROM kagzi.worker_events d
	WHERE d.namespace_id = $1 AND d.worker_id IN (SELECT w.worker_id FROM w)
), d AS (
	DELETE FROM kagzi.workers d
	WHERE d.namespace_id = $1 AND d.worker_id IN (SELECT w.worker_id FROM w)
	RETURNING d.worker_id
)
SELECT count(*) FROM d`

// PruneWorkers deletes up to limit workers that have been OFFLINE for longer than keep, with their logs, and returns
// how many it deleted. Fewer than limit means that none are left.
func (s *Store) PruneWorkers(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = do(ctx, func(ctx context.Context) error {
		n, err = askOne[int64](ctx, s.pool, pruneWorkers, s.namespace, micros(keep), limit)
		return err
	})
	return n, wrap("prune workers", err)
}
