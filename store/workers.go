package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Workers keeps the registry of workers, and releases the runs of the dead.
type Workers struct{ *conn }

// ErrWorkerOffline reports that the worker's row is OFFLINE: the worker was declared dead, and its runs were released.
var ErrWorkerOffline = errors.New("worker was declared offline")

// A Worker is the row that a worker registers.
type Worker struct {
	ID            uuid.UUID
	Queues        []string // from which it claims
	LeftQueues    []string // from which it claims no more, and of which it may still hold runs
	Types         []string
	Handlers      []string // with their versions: "checkout/2"
	Hostname      string
	PID           int
	Build         string
	Schema        int64 // the newest migration that its program knows
	Sealed        bool  // its client has a Sealer
	Labels        json.RawMessage
	MaxConcurrent int
	LeaseTimeout  time.Duration // how long its leases last
	FixedLease    bool          // it extends none
	StaleAfter    time.Duration // after this time without a heartbeat it counts as dead
	Number        int64         // see Heartbeat
	Backend       Backend       // of the connection that sends the heartbeats
}

// A Backend is the server process behind a connection that only one worker uses. If the backend has ended, the worker
// has ended, too, or has another connection by now. The zero Backend is unknown.
type Backend struct {
	PID    int32
	Start  time.Time // of the backend: process IDs are used again
	Server time.Time // start of the server: another server, or a restarted one, does not have the backend
}

const backendOf = `
SELECT a.backend_start, pg_postmaster_start_time()
FROM pg_stat_activity a
WHERE a.pid = pg_backend_pid() AND a.pid = $1 AND a.backend_start IS NOT NULL`

// lockSoonOrFail is for statements that are only to be prepared: if a table is locked, that has time until they are
// needed.
const lockSoonOrFail = `SELECT set_config('lock_timeout', '250ms', true)`

// PrepareHeartbeats has the server prepare the statements of heartbeats on conn, so that each takes one round trip,
// unless the server refuses one: then the heartbeats will tell. It returns the backend behind conn. That is the zero
// Backend behind a pooler, which makes up the process ID that it sends to its clients, and if the user may not see the
// backend.
func (s Workers) PrepareHeartbeats(ctx context.Context, conn *pgx.Conn) (b Backend, err error) {
	known := false
	read := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{pg.UTC(&b.Start), pg.UTC(&b.Server)}, func() error {
			b.PID = int32(conn.PgConn().PID())
			return nil
		})
		known = err == nil
		return err
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		b, known = Backend{}, false
		batch := &pgx.Batch{}
		batch.Queue(backendOf, int32(conn.PgConn().PID())) // sent by the server when the connection began
		batch.Queue(lockSoonOrFail)
		return pg.Converse(ctx, conn, pg.Untimed, pg.Step{
			Batch: batch, Reads: []func(pgx.Rows) error{read, nil},
			Then: s.prepareHeartbeats,
		})
	})
	switch {
	case known && pg.Code(err) != "":
		return b, nil
	case pg.Code(err) == "42501":
		return Backend{}, nil
	}
	return b, pg.Wrap("prepare heartbeats", err)
}

// prepareHeartbeats returns all statements of a heartbeat. They change nothing: there is no such worker and no such
// run.
func (s Workers) prepareHeartbeats() pg.Step {
	b := &pgx.Batch{}
	queueHeartbeat(b, s.namespace, Heartbeat{})
	b.Queue(askedToDrain, s.namespace, uuid.Nil)
	none := []HeldRun{{}}
	b.Queue(heldStates, heldColumns.args(s.namespace, none)...)
	b.Queue(extendLeases, extendColumns.args(s.namespace, none, pg.Micros(time.Second))...)
	return pg.Step{Batch: b}
}

const hasBackend = `
SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = $1
	AND a.backend_start = timestamptz 'epoch' + $2::bigint * interval '1 microsecond')
	AND pg_postmaster_start_time() = timestamptz 'epoch' + $3::bigint * interval '1 microsecond'`

// HasBackend reports whether conn leads to the server of b, and the backend is still there.
func (s Workers) HasBackend(ctx context.Context, conn *pgx.Conn, b Backend) (yes bool, err error) {
	yes, err = pg.AskOne[bool](ctx, conn, hasBackend, b.PID, pg.Epoch(b.Start), pg.Epoch(b.Server))
	return yes, pg.Wrap("find the connection's backend", err)
}

const registerWorker = `
INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, left_queues, workflow_types, status, hostname, pid,
	build, labels,
	max_concurrent, lease_timeout, stale_after, backend_pid, backend_start, server_start, handlers, schema_version,
		report_number, fixed_lease, sealed)
VALUES ($2, $1, $3::text[], $18::text[], $4::text[], 'ONLINE', $5, $6, $7, NULLIF($8::text, '')::jsonb, $9,
	$10::bigint * interval '1 microsecond', $11::bigint * interval '1 microsecond', NULLIF($12::int, 0),
	timestamptz 'epoch' + NULLIF($13::bigint, 0) * interval '1 microsecond', timestamptz 'epoch' + NULLIF($14::bigint,
		0) * interval '1 microsecond', $15::text[], $16, $17, $19, $20)
ON CONFLICT (worker_id, namespace_id) DO UPDATE
SET heartbeat_at = EXCLUDED.heartbeat_at, task_queues = EXCLUDED.task_queues, left_queues = EXCLUDED.left_queues,
	report_number = EXCLUDED.report_number, backend_pid = EXCLUDED.backend_pid, backend_start = EXCLUDED.backend_start,
	server_start = EXCLUDED.server_start
WHERE workers.status <> 'OFFLINE' AND workers.report_number <= EXCLUDED.report_number`

// Each kind of event is written once in a worker's life. The statement does not wait for a caller's open transaction
// that also writes one. So a drain that was requested is in the log once the worker begins to drain.
const workerEvent = `
INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail)
SELECT $2::uuid, $3::uuid, $1::text, $4::text, NULLIF($5::text, '')
WHERE NOT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2::uuid AND e.namespace_id = $1::text
	AND e.event = $4::text)
ON CONFLICT DO NOTHING`

// Register adds w to the registry. db is the connection that its heartbeats use.
func (s Workers) Register(ctx context.Context, db pg.DB, w Worker) error {
	event := uuid.New()
	return pg.Wrap("register worker", pg.Do(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(registerWorker, s.namespace, w.ID, w.Queues, orEmpty(w.Types), w.Hostname, w.PID, w.Build,
			string(w.Labels), w.MaxConcurrent, pg.Micros(w.LeaseTimeout), pg.Micros(w.StaleAfter),
			w.Backend.PID, pg.Epoch(w.Backend.Start), pg.Epoch(w.Backend.Server), w.Handlers, w.Schema, w.Number,
			orEmpty(w.LeftQueues), w.FixedLease, w.Sealed)
		b.Queue(workerEvent, s.namespace, w.ID, event, "STARTED", "")
		return pg.Exchange(ctx, db, pg.Untimed, b)
	}))
}

const anySealed = `SELECT EXISTS (SELECT FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.sealed)`

// Sealed reports whether a registered worker of the namespace has a Sealer. Workers stay registered for a week after
// their end.
func (s Workers) Sealed(ctx context.Context) (sealed bool, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		sealed, err = pg.AskOne[bool](ctx, s.pool, anySealed, s.namespace)
		return err
	})
	return sealed, pg.Wrap("find a Sealer", err)
}

// orEmpty returns names, which must not be NULL in the table.
func orEmpty(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// A Heartbeat is a report of a worker.
type Heartbeat struct {
	Number     int64 // increases with each report of the worker: an older report that arrives late changes nothing
	Worker     uuid.UUID
	Queues     []string // from which it claims
	LeftQueues []string // from which it claims no more, and of which it may still hold runs
	Active     int      // runs that it executes
	Counts     Counts
	Rates      Rates
	Hung       *Hung   // the code that hangs; nil: none
	Backend    Backend // of the connection that sends the heartbeat
}

// Counts count what a worker has done since its registration.
type Counts struct {
	Completed, Failed int64 // runs that it ended so
	Steps             int64 // attempts of steps that it executed and recorded
}

// Rates are how much of each a worker did in a second, in the last minute.
type Rates struct {
	Completed, Failed, Steps float64
}

// A HeartbeatAnswer is the answer to a Heartbeat.
type HeartbeatAnswer struct {
	Now   time.Time // by the database's clock
	Asked time.Time // when the heartbeat was sent, by this process's clock
	Drain bool      // the worker was asked to drain
	// the backend that received the heartbeat has the process ID of Heartbeat.Backend: no pooler is between
	Own bool
}

const heartbeat = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE kagzi.workers w
SET heartbeat_at = clock.now, latest_at = GREATEST(w.latest_at, clock.now), report_number = $9, active_count = $3,
	completed_count = $4, failed_count = $5, steps_count = $12,
	completed_rate = $13, failed_rate = $14, steps_rate = $15, backend_pid = NULLIF($6::int, 0),
	backend_start = timestamptz 'epoch' + NULLIF($7::bigint, 0) * interval '1 microsecond',
	server_start = timestamptz 'epoch' + NULLIF($8::bigint, 0) * interval '1 microsecond', task_queues = $10::text[],
		left_queues = $11::text[], hung = NULLIF($16::text, '')::jsonb
FROM clock
WHERE w.worker_id = $2 AND w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.report_number <= $9
RETURNING w.heartbeat_at, w.status = 'DRAINING' OR EXISTS (
	SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1 AND e.event = 'DRAINING')`

const askedToDrain = `SELECT EXISTS (SELECT FROM kagzi.worker_events e WHERE e.worker_id = $2 AND e.namespace_id = $1
	AND e.event = 'DRAINING')`

// Heartbeat writes the worker's heartbeat, in a transaction of its own, so that no lock on a run delays it. It returns
// ErrWorkerOffline if the worker was declared dead meanwhile.
func (s Workers) Heartbeat(ctx context.Context, db pg.DB, h Heartbeat) (answer HeartbeatAnswer, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		queueHeartbeat(b, s.namespace, h)
		answer = HeartbeatAnswer{Asked: time.Now()}
		// The prologue asks for the backend: in a distributed Postgres the heartbeat runs on the server that has the
		// row.
		var pid int32
		err := pg.Exchange(ctx, db, pg.Mode{Backend: &pid}, b, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{pg.UTC(&answer.Now), &answer.Drain}, func() error { return nil })
			return err
		})
		answer.Own = pid == h.Backend.PID
		if err != nil || !answer.Now.IsZero() {
			return err
		}
		if answer.Drain, err = pg.AskOne[bool](ctx, db, askedToDrain, s.namespace, h.Worker); err == nil {
			err = ErrWorkerOffline
		}
		return err
	})
	return answer, pg.Wrap("heartbeat", err)
}

func queueHeartbeat(b *pgx.Batch, namespace string, h Heartbeat) {
	b.Queue(heartbeat, namespace, h.Worker, h.Active, h.Counts.Completed, h.Counts.Failed, h.Backend.PID,
		pg.Epoch(h.Backend.Start),
		pg.Epoch(h.Backend.Server), h.Number, orEmpty(h.Queues), orEmpty(h.LeftQueues), h.Counts.Steps,
		h.Rates.Completed,
		h.Rates.Failed,
		h.Rates.Steps, h.Hung.stored())
}

const drainWorker = `UPDATE kagzi.workers SET status = 'DRAINING' WHERE worker_id = $2 AND namespace_id = $1
	AND status = 'ONLINE'`

// A worker sends no heartbeat after its last run has ended, so the counts of the last runs are written here.
const stopWorker = `
UPDATE kagzi.workers
SET status = 'OFFLINE', stopped_at = now(), active_count = 0, release_at = now(), completed_count = $3,
	failed_count = $4, steps_count = $5
WHERE worker_id = $2 AND namespace_id = $1 AND status <> 'OFFLINE'`

// Draining records that the worker takes no more runs. It logs that the context of its Run ended, unless the log
// has a request to drain.
func (s Workers) Draining(ctx context.Context, db pg.DB, id uuid.UUID) error {
	return s.setWorkerStatus(ctx, db, drainWorker, []any{s.namespace, id}, "DRAINING", id, "Run's context ended")
}

// Stopped records that the worker has ended, and what it has done.
func (s Workers) Stopped(ctx context.Context, db pg.DB, id uuid.UUID, c Counts) error {
	return s.setWorkerStatus(ctx, db, stopWorker, []any{s.namespace, id, c.Completed, c.Failed, c.Steps},
		"STOPPED", id, "")
}

func (s Workers) setWorkerStatus(ctx context.Context, db pg.DB, statement string, args []any, event string,
	id uuid.UUID, detail string,
) error {
	eventID := uuid.New()
	return pg.Wrap("worker "+event, pg.Do(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, db, pg.Untimed, func(tx pgx.Tx) error {
			did, err := pg.Changed(ctx, tx, statement, args...)
			if err != nil || !did {
				return err
			}
			return pg.Ask(ctx, tx, workerEvent, []any{s.namespace, id, eventID, event, detail}, nil)
		})
	}))
}
