package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A FleetCheck is a look at the live workers of a namespace.
type FleetCheck struct {
	// whose heartbeat connection the server no longer has; a live worker soon replaces it
	Disconnected []UnresponsiveWorker
	Watched      int // workers whose backend is known
	Workers      int // all of them
	Backends     int // of the server in this database
}

// The two statements read the table and the server's list of backends, because in a distributed Postgres the table may
// be on another server. The table is read first, so each backend in it began before the list was read: if the list
// lacks it, it has ended.
const (
	connectedWorkers = `
SELECT w.worker_id, w.heartbeat_at, coalesce(w.backend_pid, 0), w.backend_start, w.server_start
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE'`
	// These functions are a third of the work of pg_stat_activity.
	serverBackends = `
SELECT pg_postmaster_start_time(), pg_stat_get_backend_pid(b.id), pg_stat_get_backend_start(b.id)
FROM pg_stat_get_backend_idset() AS b (id)
WHERE pg_stat_get_backend_dbid(b.id) = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`
)

// A connectedWorker is a live worker with its registered backend, if that is known.
type connectedWorker struct {
	UnresponsiveWorker
	backendStart, serverStart *time.Time
}

// backends are the backends of one server.
type backends struct {
	server time.Time            // when the server started
	start  map[int32]*time.Time // when each backend started, by process ID; nil if the user may not see it
}

// hasEnded reports whether w's backend belonged to this server and has ended. It is false for a worker of another
// server. A backend whose start the user may not see may be the worker's.
func (b *backends) hasEnded(w *connectedWorker) bool {
	if w.serverStart == nil || !w.serverStart.Equal(b.server) {
		return false
	}
	start, there := b.start[w.Backend]
	return !there || start != nil && w.backendStart != nil && !start.Equal(*w.backendStart)
}

// CheckFleet returns the workers that have lost their connection.
func (s Workers) CheckFleet(ctx context.Context) (f FleetCheck, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var workers []connectedWorker
		server := backends{start: map[int32]*time.Time{}}
		b := &pgx.Batch{}
		b.Queue(connectedWorkers, s.namespace)
		b.Queue(serverBackends)
		err := pg.Exchange(ctx, s.pool, pg.Untimed, b, pg.Collect(&workers, readConnected), server.read)
		f = FleetCheck{Workers: len(workers), Backends: len(server.start)}
		for i := range workers {
			if workers[i].Backend == 0 {
				continue
			}
			f.Watched++
			if server.hasEnded(&workers[i]) {
				f.Disconnected = append(f.Disconnected, workers[i].UnresponsiveWorker)
			}
		}
		return err
	})
	return f, pg.Wrap("find workers whose connection has ended", err)
}

// One search of the claim's index for each queue, type and priority. Most workers of a fleet have the same queues and
// types.
const busyQueues = `
SELECT DISTINCT q.task_queue
FROM (
	SELECT DISTINCT u.task_queue, t.workflow_type
	FROM (
		SELECT DISTINCT w.task_queues, w.workflow_types
		FROM kagzi.workers w
		WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE'
		OFFSET 0
	) w
	CROSS JOIN LATERAL unnest(w.task_queues) AS u (task_queue)
	CROSS JOIN LATERAL unnest(w.workflow_types) AS t (workflow_type)
	OFFSET 0
) q
WHERE EXISTS (
	SELECT FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT k.run_id
		FROM kagzi.workflow_runs k
		WHERE k.namespace_id = $1 AND k.task_queue = q.task_queue AND k.workflow_type = q.workflow_type
			AND k.priority = p.priority
			AND ` + clause.Claimable + ` AND k.available_at <= now() + $2::bigint * interval '1 microsecond'
		ORDER BY k.available_at
		LIMIT 1
	) d
	WHERE (
		SELECT count(*)
		FROM kagzi.pauses p
		WHERE p.task_queue IN ('', q.task_queue) AND p.workflow_type IN ('', q.workflow_type) AND p.namespace_id = $1
	) = 0
) OR EXISTS (
	SELECT FROM unnest(ARRAY[q.task_queue, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.run_keys f
		WHERE f.key_scope = s.key_scope AND f.namespace_id = $1 AND f.available_at < 'infinity'
			AND f.available_at <= now() + $2::bigint * interval '1 microsecond'
		LIMIT 1
	) f
) OR EXISTS (
	SELECT FROM unnest(ARRAY[q.task_queue, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.key_changes c WHERE c.key_scope = s.key_scope AND c.namespace_id = $1 LIMIT 1
	) c
)`

// BusyQueues returns the queues that have runs for a live worker which are due within soon. The search passes the dead
// entries that an old snapshot keeps in the index, so it may take at most the time most.
func (s Workers) BusyQueues(ctx context.Context, soon, most time.Duration) (busy []string, err error) {
	b := &pgx.Batch{}
	b.Queue(busyQueues, s.namespace, pg.Micros(soon))
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Exchange(ctx, s.pool, pg.Mode{Statements: most}, b, pg.Collect(&busy, pgx.RowTo[string]))
	})
	return busy, pg.Wrap("find queues with work", err)
}

func readConnected(row pgx.CollectableRow) (w connectedWorker, err error) {
	return w, row.Scan(&w.ID, pg.UTC(&w.HeartbeatAt), &w.Backend, &w.backendStart, &w.serverStart)
}

func (b *backends) read(rows pgx.Rows) error {
	var pid int32
	var start *time.Time
	_, err := pgx.ForEachRow(rows, []any{&b.server, &pid, &start}, func() error {
		b.start[pid] = start
		return nil
	})
	return err
}
