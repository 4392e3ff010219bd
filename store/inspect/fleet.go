package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
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
	Counts        store.Counts
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
	`, w.status <> 'OFFLINE' AND w.heartbeat_at < clock_timestamp() - w.stale_after, w.hostname, w.pid, w.build,
		w.labels, w.max_concurrent,
	w.active_count, w.completed_count, w.failed_count, w.steps_count, w.backend_pid IS NOT NULL, w.started_at,
		w.heartbeat_at, w.stopped_at`

func readWorker(row pgx.CollectableRow) (w WorkerRow, err error) {
	return w, row.Scan(&w.ID, &w.Queues, &w.LeftQueues, &w.Types, &w.Handlers, &w.Status, &w.Silent, &w.Hostname,
		&w.PID, &w.Build, &w.Labels, &w.MaxConcurrent,
		&w.Active, &w.Counts.Completed, &w.Counts.Failed, &w.Counts.Steps, &w.Watched, pg.UTC(&w.StartedAt),
		pg.UTC(&w.HeartbeatAt), pg.UTC(&w.StoppedAt))
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
func (s *Lists) Workers(ctx context.Context, f WorkerFilter) (page []WorkerRow, total int, err error) {
	statuses := f.Status
	if statuses == nil {
		statuses = []string{}
	}
	chosen := []any{s.namespace, statuses, f.Queue, f.Type, string(f.Labels)}
	err = pg.Do(ctx, func(ctx context.Context) error {
		if f.After != uuid.Nil {
			if _, err := s.findWorker(ctx, s.pool, f.After); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		b.Queue(countWorkers, chosen...)
		b.Queue(listWorkers, append(slices.Clip(chosen), f.After.String(), f.Limit)...)
		return pg.Exchange(ctx, s.pool, pg.Untimed, b, func(rows pgx.Rows) (err error) {
			total, err = pgx.CollectOneRow(rows, pgx.RowTo[int])
			return err
		}, pg.Collect(&page, readWorker))
	})
	return page, total, pg.Wrap("list workers", err)
}

const getWorker = `SELECT ` + workerColumns + ` FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1`

// Worker returns one worker.
func (s *Lists) Worker(ctx context.Context, id uuid.UUID) (w WorkerRow, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		err := pg.Ask(ctx, s.pool, getWorker, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			w, err = pgx.CollectExactlyOneRow(rows, readWorker)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = store.ErrWorkerNotFound
		}
		return err
	})
	return w, pg.Wrap("get worker", err)
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
func (s *Lists) WorkerEvents(ctx context.Context, id uuid.UUID) (events []WorkerEvent, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		if _, err := s.findWorker(ctx, s.pool, id); err != nil {
			return err
		}
		return pg.Ask(ctx, s.pool, workerEvents, []any{s.namespace, id},
			pg.Collect(&events, func(row pgx.CollectableRow) (e WorkerEvent, err error) {
				return e, row.Scan(&e.Event, &e.Detail, pg.UTC(&e.At))
			}))
	})
	return events, pg.Wrap("read a worker's log", err)
}
