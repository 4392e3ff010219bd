package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrWorkerOffline reports that the worker's row is OFFLINE: the worker was declared dead, and its runs were released.
var ErrWorkerOffline = errors.New("worker was declared offline")

// A Worker is the registration of a worker.
type Worker struct {
	ID            uuid.UUID
	Queue         string
	Types         []string
	Handlers      []string // with their versions: "checkout/2"
	Hostname      string
	PID           int
	Build         string
	Schema        int64 // the newest migration that its program knows
	Labels        json.RawMessage
	MaxConcurrent int
	Visibility    time.Duration
	StaleAfter    time.Duration
	Number        int64   // see Heartbeat
	Backend       Backend // of the connection that sends the heartbeats
}

// A Backend is the server's side of a connection that only its holder uses. If the backend has ended, the holder has ended,
// too, or has another connection by now. The zero Backend is unknown.
type Backend struct {
	PID    int32
	Start  time.Time // process IDs are used again
	Server time.Time // start of the server that knows the backend: another, or the same restarted, does not
}

const backendOf = `
SELECT a.backend_start, pg_postmaster_start_time()
FROM pg_stat_activity a
WHERE a.pid = pg_backend_pid() AND a.pid = $1 AND a.backend_start IS NOT NULL`

// BackendOf returns the backend behind conn. Behind a pooler it returns the zero Backend, because a pooler makes up the
// process ID that it tells its clients. So it does if the user may not see the backend.
func (s *Store) BackendOf(ctx context.Context, conn *pgx.Conn) (b Backend, err error) {
	err = do(ctx, func(ctx context.Context) error {
		b = Backend{PID: int32(conn.PgConn().PID())} // as the server said when the connection began
		return askRow(ctx, conn, backendOf, []any{b.PID}, utc(&b.Start), utc(&b.Server))
	})
	if errors.Is(err, pgx.ErrNoRows) || code(err) == "42501" {
		return Backend{}, nil
	}
	return b, wrap("look at the connection's backend", err)
}

const hasBackend = `
SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = $1 AND a.backend_start = timestamptz 'epoch' + $2::bigint * interval '1 microsecond')
	AND pg_postmaster_start_time() = timestamptz 'epoch' + $3::bigint * interval '1 microsecond'`

// HasBackend reports whether the server at the other end of conn is the one of b, and has it.
func (s *Store) HasBackend(ctx context.Context, conn *pgx.Conn, b Backend) (yes bool, err error) {
	yes, err = askOne[bool](ctx, conn, hasBackend, b.PID, epoch(b.Start), epoch(b.Server))
	return yes, wrap("look for the connection's backend", err)
}

const registerWorker = `
INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, hostname, pid, build, labels,
	max_concurrent, lease_timeout, stale_after, backend_pid, backend_start, server_start, handlers, schema_version, report_number)
VALUES ($2, $1, $3, $4::text[], 'ONLINE', $5, $6, $7, NULLIF($8::text, '')::jsonb, $9,
	$10::bigint * interval '1 microsecond', $11::bigint * interval '1 microsecond', NULLIF($12::int, 0),
	timestamptz 'epoch' + NULLIF($13::bigint, 0) * interval '1 microsecond', timestamptz 'epoch' + NULLIF($14::bigint, 0) * interval '1 microsecond', $15::text[], $16, $17)
ON CONFLICT (worker_id, namespace_id) DO UPDATE
SET heartbeat_at = EXCLUDED.heartbeat_at, report_number = EXCLUDED.report_number, backend_pid = EXCLUDED.backend_pid, backend_start = EXCLUDED.backend_start, server_start = EXCLUDED.server_start
WHERE workers.status <> 'OFFLINE' AND workers.report_number <= EXCLUDED.report_number`

// Each kind of event is written once in a worker's life. It may be in a caller's open transaction, for which nobody waits: a
// worker that was asked to drain then has that in its log when it begins to.
const workerEvent = `
INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail)
SELECT $2::uuid, $3::uuid, $1::text, $4::text, NULLIF($5::text, '')
WHERE NOT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2::uuid AND e.namespace_id = $1::text AND e.event = $4::text)
ON CONFLICT DO NOTHING`

// RegisterWorker adds w to the registry, on the connection that its heartbeats use.
func (s *Store) RegisterWorker(ctx context.Context, db DB, w Worker) error {
	event := uuid.New()
	return wrap("register worker", do(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(registerWorker, s.namespace, w.ID, w.Queue, w.Types, w.Hostname, w.PID, w.Build,
			string(w.Labels), w.MaxConcurrent, micros(w.Visibility), micros(w.StaleAfter),
			w.Backend.PID, epoch(w.Backend.Start), epoch(w.Backend.Server), w.Handlers, w.Schema, w.Number)
		b.Queue(workerEvent, s.namespace, w.ID, event, "STARTED", "")
		return exchange(ctx, db, patient, b)
	}))
}

// A Heartbeat is a report of a worker.
type Heartbeat struct {
	Number    int64 // higher than that of each earlier report of the worker: an older one that arrives late changes nothing
	Worker    uuid.UUID
	Active    int
	Completed int64
	Failed    int64
	Backend   Backend
}

// A HeartbeatAnswer is the answer to a Heartbeat.
type HeartbeatAnswer struct {
	Now   time.Time
	Asked time.Time // when the heartbeat was sent, by this process's clock
	Drain bool      // somebody asked the worker to drain
	Own   bool      // the backend of the Heartbeat is the one that received it
}

const heartbeat = `
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE kagzi.workers w
SET heartbeat_at = t.now, report_number = $9, active_count = $3, completed_count = $4, failed_count = $5, backend_pid = NULLIF($6::int, 0),
	backend_start = timestamptz 'epoch' + NULLIF($7::bigint, 0) * interval '1 microsecond',
	server_start = timestamptz 'epoch' + NULLIF($8::bigint, 0) * interval '1 microsecond'
FROM t
WHERE w.worker_id = $2 AND w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.report_number <= $9
RETURNING w.heartbeat_at, w.status = 'DRAINING' OR EXISTS (
	SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1 AND e.event = 'DRAINING')`

const askedToDrain = `SELECT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1 AND e.event = 'DRAINING')`

// Not in the heartbeat's statement: the row may be on another server of a distributed Postgres.
const backendPID = `SELECT pg_backend_pid()`

// Heartbeat writes the worker's heartbeat, in a transaction of its own, so that no lock on a run delays it. It returns
// ErrWorkerOffline if the worker was declared dead meanwhile.
func (s *Store) Heartbeat(ctx context.Context, db DB, b Heartbeat) (p HeartbeatAnswer, err error) {
	err = do(ctx, func(ctx context.Context) error {
		batch := &pgx.Batch{}
		batch.Queue(backendPID)
		batch.Queue(heartbeat, s.namespace, b.Worker, b.Active, b.Completed, b.Failed, b.Backend.PID, epoch(b.Backend.Start), epoch(b.Backend.Server), b.Number)
		p = HeartbeatAnswer{Asked: time.Now()}
		err := exchange(ctx, db, patient, batch, func(rows pgx.Rows) error {
			pid, err := pgx.CollectOneRow(rows, pgx.RowTo[int32])
			p.Own = pid == b.Backend.PID
			return err
		}, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{utc(&p.Now), &p.Drain}, func() error { return nil })
			return err
		})
		if err != nil || !p.Now.IsZero() {
			return err
		}
		if p.Drain, err = askOne[bool](ctx, db, askedToDrain, s.namespace, b.Worker); err == nil {
			err = ErrWorkerOffline
		}
		return err
	})
	return p, wrap("heartbeat", err)
}

// A HeldRun is a run with the lease under which a worker believes to hold it.
type HeldRun struct {
	RunID uuid.UUID
	Lease uuid.UUID
}

// A HeldRunState is the state in the table of a HeldRun.
type HeldRunState struct {
	RunID    uuid.UUID
	Lease    uuid.UUID // the lease that was asked about
	Holds    bool      // still RUNNING under the lease
	Status   string
	Wakeups  int64
	Cancel   bool      // a cancel is pending
	Deadline time.Time // by which it ends; zero if there is none
	Term     Term      // if it holds
}

// Extends only leases that are past half of their timeout, and skips rows that somebody else has locked: the next heartbeat
// extends them. The condition on the time is hidden from the planner, which would else consider the claim's index.
const extendLeases = `
WITH l AS MATERIALIZED (
	SELECT r.run_id, r.now, LEAST(r.now + $4::bigint * interval '1 microsecond',
		CASE WHEN r.deadline_at > r.now THEN r.deadline_at + interval '3 seconds' END) AS until
	FROM (SELECT u.run_id, u.lease FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease) ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.deadline_at, clock_timestamp() AS now
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'
			AND coalesce(q.available_at < clock_timestamp() + $4::bigint * interval '1 microsecond' / 2, false)
		FOR UPDATE SKIP LOCKED
	) r
)
UPDATE kagzi.workflow_runs r
SET available_at = l.until
FROM l
WHERE r.run_id = l.run_id AND r.namespace_id = $1
RETURNING r.run_id, r.lease, l.until, l.now`

const heldStates = `
SELECT u.run_id, u.lease, coalesce(r.lease = u.lease AND r.status = 'RUNNING', false), coalesce(r.status, ''),
	coalesce(r.wakeups, 0), coalesce(r.cancel_requested_at IS NOT NULL, false), r.deadline_at, NULLIF(r.available_at, 'infinity'), now()
FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease)
LEFT JOIN LATERAL (
	SELECT q.lease, q.status, q.wakeups, q.cancel_requested_at, q.deadline_at, q.available_at
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1
	OFFSET 0
) r ON true`

var heldColumns = columnsOf(heldStates,
	uuids("run_id", func(h HeldRun) uuid.UUID { return h.RunID }),
	uuids("lease", func(h HeldRun) uuid.UUID { return h.Lease }),
)

var extendColumns = columnsOf(extendLeases, heldColumns...)

// HeldStates returns the state of each of held. A run whose row cannot be read goes to alone, and the others are read all
// the same.
func (s *Store) HeldStates(ctx context.Context, db DB, held []HeldRun, alone func(HeldRun, error)) (states []HeldRunState, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	err = Isolate(held, func(some []HeldRun) error {
		var found []HeldRunState
		err := do(ctx, func(ctx context.Context) error {
			asked := time.Now()
			return ask(ctx, db, heldStates, heldColumns.args(s.namespace, some), collect(&found, func(row pgx.CollectableRow) (st HeldRunState, err error) {
				var until *time.Time
				var now time.Time
				err = row.Scan(&st.RunID, &st.Lease, &st.Holds, &st.Status, &st.Wakeups, &st.Cancel, utc(&st.Deadline), &until, &now)
				if st.Holds && until != nil {
					st.Term = termOf(asked, now, *until)
				}
				return st, err
			}))
		})
		if err == nil {
			states = append(states, found...)
		}
		return wrap("look at held runs", err)
	}, alone)
	return states, err
}

// ExtendLeases extends the leases of held that are past half of their timeout, and returns their terms. A run whose lease
// cannot be extended goes to alone, and the others are extended all the same.
func (s *Store) ExtendLeases(ctx context.Context, db DB, held []HeldRun, timeout time.Duration, alone func(HeldRun, error)) (map[HeldRun]Term, error) {
	terms := map[HeldRun]Term{}
	if len(held) == 0 {
		return terms, nil
	}
	err := Isolate(held, func(some []HeldRun) error {
		extended := map[HeldRun]Term{}
		err := do(ctx, func(ctx context.Context) error {
			clear(extended)
			asked := time.Now()
			return ask(ctx, db, extendLeases, extendColumns.args(s.namespace, some, micros(timeout)), func(rows pgx.Rows) error {
				var h HeldRun
				var until, now time.Time
				_, err := pgx.ForEachRow(rows, []any{&h.RunID, &h.Lease, &until, &now}, func() error {
					extended[h] = termOf(asked, now, until)
					return nil
				})
				return err
			})
		})
		if err == nil { // committed
			maps.Copy(terms, extended)
		}
		return wrap("extend leases", err)
	}, alone)
	return terms, err
}

const drainWorker = `UPDATE kagzi.workers SET status = 'DRAINING' WHERE worker_id = $2 AND namespace_id = $1 AND status = 'ONLINE'`

const stopWorker = `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now(), active_count = 0, release_at = now() WHERE worker_id = $2 AND namespace_id = $1 AND status <> 'OFFLINE'`

// DrainingWorker records that the worker takes no more runs. The log says that its Run's context ended, unless it was asked
// to drain.
func (s *Store) DrainingWorker(ctx context.Context, db DB, id uuid.UUID) error {
	return s.moveWorker(ctx, db, drainWorker, "DRAINING", id, "Run's context ended")
}

// StoppedWorker records that the worker has ended.
func (s *Store) StoppedWorker(ctx context.Context, db DB, id uuid.UUID) error {
	return s.moveWorker(ctx, db, stopWorker, "STOPPED", id, "")
}

func (s *Store) moveWorker(ctx context.Context, db DB, statement, event string, id uuid.UUID, detail string) error {
	eventID := uuid.New()
	return wrap("worker "+event, do(ctx, func(ctx context.Context) error {
		return transact(ctx, db, patient, func(tx pgx.Tx) error {
			moved, err := changed(ctx, tx, statement, s.namespace, id)
			if err != nil || !moved {
				return err
			}
			return ask(ctx, tx, workerEvent, []any{s.namespace, id, eventID, event, detail}, nil)
		})
	}))
}

const resetRecoveries = `
UPDATE kagzi.workflow_runs
SET recoveries = 0, recoveries_since = NULL
WHERE run_id = $2 AND namespace_id = $1 AND lease = $3 AND status = 'RUNNING'`

// ResetRecoveries forgets the recoveries of a run that has made progress since they began.
func (s *Store) ResetRecoveries(ctx context.Context, h HeldRun) error {
	return wrap("reset recoveries", do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, resetRecoveries, []any{s.namespace, h.RunID, h.Lease}, nil)
	}))
}
