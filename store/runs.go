package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrRunNotFound reports that the namespace has no such run.
var ErrRunNotFound = errors.New("run not found")

// A Run is a row of workflow_runs.
type Run struct {
	RunID         uuid.UUID
	ExternalID    string
	Queue         string
	Type          string
	Version       int
	Priority      int
	Status        string
	AvailableAt   time.Time // when a worker may claim it; zero if the run is over or waits without a time
	Attempts      int
	Recoveries    int
	WaitingOn     string
	DeadlineAt    time.Time
	Metadata      json.RawMessage
	FirstMetadata json.RawMessage // those of the start
	Headers       json.RawMessage
	Progress      json.RawMessage // a StoredProgress; nil if it has none
	ErrorKind     string
	Error         string
	Parent        uuid.UUID
	Origin        uuid.UUID // the run that it was restarted or forked from
	ParentStep    string    // the step of Parent that started it
	LockedBy      uuid.UUID
	Lease         uuid.UUID // stays after the end
	CancelledAt   time.Time // when somebody asked its worker to end it as CANCELLED
	SilentSince   time.Time // when its worker last reported, if that is dead or silent; zero unless the run is RUNNING
	Schedule      string    // its schedule's name
	FireAt        time.Time // the tick of the schedule that started it
	CreatedAt     time.Time
	StartedAt     time.Time
	FinishedAt    time.Time
	Quarantined   bool
	Key           Key
	PausedAt      time.Time     // zero unless the run itself is paused
	Outcome       *FinalOutcome // nil unless the run has compensations to run, or has run them
	Input         []byte
	Output        []byte
}

const runColumns = `r.run_id, r.external_id, r.task_queue, r.workflow_type, r.version, r.priority, r.status,
	NULLIF(r.available_at, 'infinity'), r.attempts, r.recoveries, r.waiting_on, NULLIF(r.deadline_at, 'infinity'), r.metadata, coalesce(r.first_metadata, r.metadata), r.headers, r.progress,
	r.error_kind, r.error, r.parent_run_id, r.parent_step_id, r.locked_by, r.created_at, r.started_at, r.finished_at,
	r.schedule_name, r.fire_at, r.origin_run_id, r.quarantined, CASE WHEN r.finished_at IS NULL THEN r.paused_at END, r.outcome, r.run_key, coalesce(r.key_scope = '', false), r.lease, r.cancel_requested_at, ` + silentSince

// A worker that is not in the registry was pruned after its runs had been made due.
const silentSince = `CASE WHEN r.status = 'RUNNING' AND r.locked_by IS NOT NULL THEN NULLIF(coalesce((
		SELECT CASE WHEN w.status = 'OFFLINE' OR w.heartbeat_at < clock_timestamp() - w.stale_after THEN w.heartbeat_at
			ELSE 'infinity' END
		FROM kagzi.workers w WHERE w.worker_id = r.locked_by AND w.namespace_id = $1
	), LEAST(r.available_at, clock_timestamp())), 'infinity') END`

// storedInput is the input of a run; the items of a batch, if it is that of one.
const storedInput = `coalesce(r.input, (
		SELECT string_agg(i.input, ''::bytea ORDER BY i.place) FROM kagzi.start_items i WHERE i.run_id = r.run_id
			AND i.namespace_id = $1
	))`

const getRun = `
SELECT ` + runColumns + `, ` + storedInput + `, r.output
FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1`

// Run returns one run.
func (s *Store) Run(ctx context.Context, id uuid.UUID) (*Run, error) {
	var out []*Run
	err := do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, getRun, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			out, err = ReadRuns(rows)
			return err
		})
	})
	if err == nil && len(out) == 0 {
		err = ErrRunNotFound
	}
	if err != nil {
		return nil, wrap("get run", err)
	}
	return out[0], nil
}

const findActive = `SELECT run_id FROM kagzi.workflow_runs WHERE external_id = $2 AND namespace_id = $1
	AND status IN ('PENDING', 'SLEEPING', 'RUNNING')`

const findEnded = `
SELECT run_id FROM kagzi.workflow_runs
WHERE external_id = $2 AND namespace_id = $1 AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
ORDER BY run_id DESC LIMIT 1`

// Find returns the run ID behind an external ID: the active run's, else the newest one's.
func (s *Store) Find(ctx context.Context, db DB, externalID string) (uuid.UUID, error) {
	if db == nil {
		db = s.pool
	}
	var id uuid.UUID
	err := do(ctx, func(ctx context.Context) (err error) {
		// The order matters: a run that ends between the two statements is found by the second one.
		id, err = askOne[uuid.UUID](ctx, db, findActive, s.namespace, externalID)
		if errors.Is(err, pgx.ErrNoRows) {
			id, err = askOne[uuid.UUID](ctx, db, findEnded, s.namespace, externalID)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrRunNotFound
		}
		return err
	})
	return id, wrap("find run", err)
}

// ReadRuns reads rows of runColumns, the input and the output.
func ReadRuns(rows pgx.Rows) ([]*Run, error) {
	defer rows.Close()
	var out []*Run
	for rows.Next() {
		r := &Run{}
		var external, waiting, kind, text, step, schedule, key *string
		var version *int
		var parent, origin, locked, lease *uuid.UUID
		if err := rows.Scan(&r.RunID, &external, &r.Queue, &r.Type, &version, &r.Priority, &r.Status,
			utc(&r.AvailableAt), &r.Attempts,
			&r.Recoveries, &waiting, utc(&r.DeadlineAt), &r.Metadata, &r.FirstMetadata, &r.Headers, &r.Progress, &kind,
			&text, &parent, &step, &locked, utc(&r.CreatedAt), utc(&r.StartedAt),
			utc(&r.FinishedAt), &schedule, utc(&r.FireAt), &origin, &r.Quarantined, utc(&r.PausedAt), &r.Outcome, &key,
			&r.Key.Group, &lease, utc(&r.CancelledAt), utc(&r.SilentSince), &r.Input, &r.Output); err != nil {
			return nil, err
		}
		r.ExternalID, r.WaitingOn, r.ErrorKind, r.Error = deref(external), deref(waiting), deref(kind), deref(text)
		r.Version, r.Parent, r.Origin, r.LockedBy, r.Lease = deref(version), deref(parent), deref(origin),
			deref(locked), deref(lease)
		r.ParentStep, r.Schedule, r.Key.Name = deref(step), deref(schedule), deref(key)
		out = append(out, r)
	}
	return out, rows.Err()
}

// An Ended is the end of a run.
type Ended struct {
	RunID     uuid.UUID
	Type      string
	Status    string
	Output    []byte
	ErrorKind string
	Error     string
}

const endedRuns = `
SELECT r.run_id, r.workflow_type, r.status, r.output, r.error_kind, r.error
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id, q.workflow_type, q.status, q.output, q.error_kind, q.error
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
	OFFSET 0
) r`

const missingRuns = `
SELECT u.run_id
FROM unnest($2::uuid[]) AS u (run_id)
LEFT JOIN LATERAL (
	SELECT true AS there FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r ON true
WHERE r.there IS NULL`

// Ended returns the runs among ids that are over, and those that do not exist. It takes at most the time given; zero
// means the timeout of every call.
func (s *Store) Ended(ctx context.Context, ids []uuid.UUID,
	most time.Duration,
) (ended []Ended, missing []uuid.UUID, err error) {
	mode := txMode{statements: most, locks: callTimeout} // a lock on the table is not an error before most has passed
	if most == 0 {
		mode = untimed
	}
	err = do(ctx, func(ctx context.Context) error {
		ended, missing = nil, nil
		b := &pgx.Batch{}
		b.Queue(endedRuns, s.namespace, array(ids))
		b.Queue(missingRuns, s.namespace, array(ids))
		return exchange(ctx, s.pool, mode, b, func(rows pgx.Rows) error {
			for rows.Next() {
				var e Ended
				var kind, text *string
				if err := rows.Scan(&e.RunID, &e.Type, &e.Status, &e.Output, &kind, &text); err != nil {
					return err
				}
				e.ErrorKind, e.Error = deref(kind), deref(text)
				ended = append(ended, e)
			}
			return nil
		}, collect(&missing, pgx.RowTo[uuid.UUID]))
	})
	return ended, missing, wrap("find ended runs", err)
}

// A DueRun is a run that became due.
type DueRun struct {
	RunID   uuid.UUID
	Queue   string
	Type    string
	Version int // zero if it has none yet
}

// readDue reads the queue and the workflow of a due run.
func readDue(row pgx.CollectableRow) (d DueRun, err error) {
	return d, row.Scan(&d.Queue, &d.Type)
}

// A FinalOutcome says how a run ends once its compensations have run.
type FinalOutcome struct {
	Status string `json:"status"`
	Kind   string `json:"kind"`
	Error  string `json:"error"`
}
