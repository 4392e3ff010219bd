package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrWorkerOffline reports that the worker's row is OFFLINE: the fleet took it for dead and gave its runs away.
var ErrWorkerOffline = errors.New("worker was declared offline")

// A Worker is what a worker says of itself when it registers.
type Worker struct {
	ID            uuid.UUID
	Queue         string
	Types         []string
	Hostname      string
	PID           int
	Build         string
	Labels        json.RawMessage
	MaxConcurrent int
	Visibility    time.Duration
	StaleAfter    time.Duration
}

const registerWorker = `
INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, hostname, pid, build, labels,
	max_concurrent, visibility_timeout, stale_after, backend_pid)
VALUES ($2, $1, $3, $4::text[], 'ONLINE', $5, $6, $7, NULLIF($8::text, '')::jsonb, $9,
	$10::bigint * interval '1 microsecond', $11::bigint * interval '1 microsecond', pg_backend_pid())
ON CONFLICT (worker_id, namespace_id) DO NOTHING`

const workerEvent = `
INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail)
VALUES ($2, $3, $1, $4, NULLIF($5, ''))
ON CONFLICT DO NOTHING`

// RegisterWorker adds w to the registry, on the connection that its heartbeats use.
func (s *Store) RegisterWorker(ctx context.Context, db DB, w Worker) error {
	event := uuid.New()
	return wrap("register worker", do(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, registerWorker, s.namespace, w.ID, w.Queue, w.Types, w.Hostname, w.PID, w.Build,
				string(w.Labels), w.MaxConcurrent, micros(w.Visibility), micros(w.StaleAfter)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, workerEvent, s.namespace, w.ID, event, "STARTED", "")
			return err
		})
	}))
}

// A Beat is what a worker says with each heartbeat.
type Beat struct {
	Worker    uuid.UUID
	Active    int
	Completed int64
	Failed    int64
}

const heartbeat = `
UPDATE kagzi.workers
SET heartbeat_at = clock_timestamp(), active_count = $3, completed_count = $4, failed_count = $5
WHERE worker_id = $2 AND namespace_id = $1 AND status <> 'OFFLINE'
RETURNING status, heartbeat_at`

// Heartbeat keeps the worker's row fresh, in a transaction of its own: nothing that locks a run may delay it.
// It returns ErrWorkerOffline if the worker was declared dead meanwhile, and whether somebody asked it to drain.
func (s *Store) Heartbeat(ctx context.Context, db DB, b Beat) (now time.Time, drain bool, err error) {
	var status string
	err = do(ctx, func(ctx context.Context) error {
		err := db.QueryRow(ctx, heartbeat, s.namespace, b.Worker, b.Active, b.Completed, b.Failed).Scan(&status, &now)
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrWorkerOffline
		}
		return err
	})
	return now, status == "DRAINING", wrap("heartbeat", err)
}

// A Held is a run with the lease under which somebody believes to hold it.
type Held struct {
	RunID uuid.UUID
	Lease uuid.UUID
}

// A HeldState is what the table says of a Held.
type HeldState struct {
	RunID   uuid.UUID
	Lease   uuid.UUID // that was asked about
	Holds   bool      // still RUNNING under the lease
	Status  string
	Wakeups int64
	Cancel  bool // a cancel is pending
}

// Only runs past half of their timeout: a fast run never pays. What somebody else has locked comes next time. The
// condition on the time is hidden from the planner: with it, it would consider the claim's index.
const extendLeases = `
WITH l AS MATERIALIZED (
	SELECT r.run_id, clock_timestamp() + $4::bigint * interval '1 microsecond' AS until
	FROM (SELECT u.run_id, u.lease FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease) ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT q.run_id
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'
			AND coalesce(q.available_at < clock_timestamp() + $4::bigint * interval '1 microsecond' / 2, false)
		FOR UPDATE SKIP LOCKED
	) r
)
UPDATE kagzi.workflow_runs r
SET available_at = LEAST(l.until, CASE WHEN r.deadline_at > clock_timestamp() THEN r.deadline_at END)
FROM l
WHERE r.run_id = l.run_id AND r.namespace_id = $1`

const heldStates = `
SELECT u.run_id, u.lease, coalesce(r.lease = u.lease AND r.status = 'RUNNING', false), coalesce(r.status, ''),
	coalesce(r.wakeups, 0), coalesce(r.cancel_requested_at IS NOT NULL, false)
FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease)
LEFT JOIN LATERAL (
	SELECT q.lease, q.status, q.wakeups, q.cancel_requested_at
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1
	OFFSET 0
) r ON true`

// ExtendLeases gives the runs still held another timeout, and returns what the table says of each. A zero
// timeout extends nothing.
func (s *Store) ExtendLeases(ctx context.Context, db DB, held []Held, timeout time.Duration) ([]HeldState, error) {
	if len(held) == 0 {
		return nil, nil
	}
	runs, leases := make([]string, len(held)), make([]string, len(held))
	for i, h := range held {
		runs[i], leases[i] = h.RunID.String(), h.Lease.String()
	}
	var out []HeldState
	err := do(ctx, func(ctx context.Context) error {
		out = nil
		if timeout > 0 {
			extend := []any{s.namespace, runs, leases, micros(timeout)}
			if err := ask(ctx, db, extendLeases, extend, func(pgx.Rows) error { return nil }); err != nil {
				return err
			}
		}
		return ask(ctx, db, heldStates, []any{s.namespace, runs, leases}, func(rows pgx.Rows) (err error) {
			out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[HeldState])
			return err
		})
	})
	return out, wrap("extend leases", err)
}

const drainWorker = `UPDATE kagzi.workers SET status = 'DRAINING' WHERE worker_id = $2 AND namespace_id = $1 AND status = 'ONLINE'`

const stopWorker = `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now(), active_count = 0 WHERE worker_id = $2 AND namespace_id = $1 AND status <> 'OFFLINE'`

// DrainingWorker notes that the worker takes no more runs.
func (s *Store) DrainingWorker(ctx context.Context, db DB, id uuid.UUID) error {
	return s.moveWorker(ctx, db, drainWorker, "DRAINING", id)
}

// StoppedWorker notes that the worker has ended.
func (s *Store) StoppedWorker(ctx context.Context, db DB, id uuid.UUID) error {
	return s.moveWorker(ctx, db, stopWorker, "STOPPED", id)
}

func (s *Store) moveWorker(ctx context.Context, db DB, statement, event string, id uuid.UUID) error {
	eventID := uuid.New()
	return wrap("worker "+event, do(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, statement, s.namespace, id)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			_, err = tx.Exec(ctx, workerEvent, s.namespace, id, eventID, event, "")
			return err
		})
	}))
}

const lostWorkers = `
WITH l AS MATERIALIZED (
	SELECT w.worker_id, now() AS now
	FROM kagzi.workers w
	WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.heartbeat_at < clock_timestamp() - w.stale_after
	ORDER BY w.worker_id
	FOR UPDATE SKIP LOCKED
)
UPDATE kagzi.workers w
SET status = 'OFFLINE', stopped_at = l.now
FROM l
WHERE w.worker_id = l.worker_id AND w.namespace_id = $1
RETURNING w.worker_id, w.task_queue, w.workflow_types, w.visibility_timeout`

// The dead worker's runs lie in the part of the claim's index that claims and extensions moved them to.
const releaseRuns = `
WITH l AS MATERIALIZED (
	SELECT r.run_id, now() AS now
	FROM (
		SELECT q.run_id
		FROM (SELECT * FROM unnest($4::text[]) AS t (workflow_type) CROSS JOIN generate_series(1, 4) AS p (priority) OFFSET 0) w
		CROSS JOIN LATERAL (
			SELECT k.run_id
			FROM kagzi.workflow_runs k
			WHERE k.namespace_id = $1 AND k.task_queue = $3 AND k.workflow_type = w.workflow_type AND k.priority = w.priority
				AND k.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND k.available_at > now() AND k.available_at <= now() + $5::interval * 2
				AND k.status = 'RUNNING' AND k.locked_by = $2
			ORDER BY k.available_at
		) q
		ORDER BY 1
	) c
	CROSS JOIN LATERAL (
		SELECT k.run_id
		FROM kagzi.workflow_runs k
		WHERE k.run_id = c.run_id AND k.namespace_id = $1 AND k.status = 'RUNNING' AND k.locked_by = $2
		FOR UPDATE SKIP LOCKED
	) r
)
UPDATE kagzi.workflow_runs r
SET available_at = l.now
FROM l
WHERE r.run_id = l.run_id AND r.namespace_id = $1`

// A LostWorker is one that was found silent for longer than it said it would be.
type LostWorker struct {
	ID         uuid.UUID
	Queue      string
	Types      []string
	Visibility time.Duration
	Released   int64 // runs made due
}

// ReleaseLost declares silent workers OFFLINE and makes their runs due at once, each worker's in a transaction
// with its own row, so that a death is noted exactly when its runs are free.
func (s *Store) ReleaseLost(ctx context.Context, db DB) ([]LostWorker, error) {
	var lost []LostWorker
	err := do(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			lost = nil
			if _, err := tx.Exec(ctx, byIndex); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, lostWorkers, s.namespace)
			if err != nil {
				return err
			}
			lost, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w LostWorker, err error) {
				err = row.Scan(&w.ID, &w.Queue, &w.Types, &w.Visibility)
				return w, err
			})
			if err != nil {
				return err
			}
			for i := range lost {
				w := &lost[i]
				tag, err := tx.Exec(ctx, releaseRuns, s.namespace, w.ID, w.Queue, w.Types, w.Visibility)
				if err != nil {
					return err
				}
				w.Released = tag.RowsAffected()
				if _, err := tx.Exec(ctx, workerEvent, s.namespace, w.ID, uuid.New(), "LOST", "no heartbeat"); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return lost, wrap("release lost workers' runs", err)
}

const resetRecoveries = `
UPDATE kagzi.workflow_runs
SET recoveries = 0, recoveries_since = NULL
WHERE run_id = $2 AND namespace_id = $1 AND lease = $3 AND status = 'RUNNING'`

// ResetRecoveries forgets the recoveries of a run that has made progress since they began.
func (s *Store) ResetRecoveries(ctx context.Context, h Held) error {
	return wrap("reset recoveries", do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, resetRecoveries, []any{s.namespace, h.RunID, h.Lease}, func(pgx.Rows) error { return nil })
	}))
}
