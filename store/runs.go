package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

// Runs finds runs, and changes those that an operator names.
type Runs struct{ *conn }

// ErrRunNotFound reports that the namespace has no such run.
var ErrRunNotFound = errors.New("run not found")

// ErrRunFinished reports that the run is over.
var ErrRunFinished = errors.New("run is over")

// ErrRunActive reports that the run is not over.
var ErrRunActive = errors.New("run is not over")

// A Run is a row of workflow_runs.
type Run struct {
	Spec
	RunID         uuid.UUID
	ExternalID    string
	Status        string
	AvailableAt   time.Time // when a worker may claim it; zero if the run is over or waits without a time
	Attempts      int
	Recoveries    int
	WaitingOn     waits.List
	DeadlineAt    time.Time
	StartBy       time.Time       // zero once it has begun
	FirstMetadata json.RawMessage // those of the start
	Progress      json.RawMessage // a StoredProgress; nil if it has none
	ErrorKind     string
	Error         string
	Parent        uuid.UUID
	Origin        uuid.UUID // the run that it was restarted or forked from
	ParentStep    string    // the step of Parent that started it
	LockedBy      uuid.UUID
	Lease         uuid.UUID // stays after the end
	CancelledAt   time.Time // when its worker was asked to end it as CANCELLED
	SilentSince   time.Time // when its worker last reported, if that is dead or silent; zero unless the run is RUNNING
	Schedule      string    // its schedule's name
	FireAt        time.Time // the tick of the schedule that started it
	CreatedAt     time.Time
	StartedAt     time.Time
	Epoch         int       // how often it has continued with another input
	ContinuedAt   time.Time // when it last did; zero: never
	FinishedAt    time.Time
	Quarantined   bool
	PausedAt      time.Time     // zero unless the run itself is paused
	InboxFullAt   time.Time     // when it first refused a message since it last took one; zero if it has not
	Outcome       *FinalOutcome // nil unless the run has compensations to run, or has run them
	Input         []byte
	Output        []byte
}

// EpochStart returns when the run's epoch began.
func (r *Run) EpochStart() time.Time {
	if r.Epoch > 0 {
		return r.ContinuedAt
	}
	return r.StartedAt
}

// Before returns the run as it was when it last continued: it had completed an epoch.
func (r *Run) Before() *Run {
	return &Run{RunID: r.RunID, Spec: r.Spec, Status: Completed, StartedAt: r.StartedAt, FinishedAt: r.ContinuedAt}
}

// Compensated reports whether all of the run's compensations have run, so Resume has nothing left to do.
func (r *Run) Compensated() bool {
	end := FinalOutcome{r.Status, r.ErrorKind, r.Error}
	return r.Outcome != nil && !r.FinishedAt.IsZero() && *r.Outcome == end
}

const getRun = `
SELECT ` + clause.RunColumns + `, ` + clause.StoredInput + `, r.output
FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1`

// Get returns one run.
func (s Runs) Get(ctx context.Context, id uuid.UUID) (*Run, error) {
	var out []*Run
	err := pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, getRun, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
			out, err = ReadRuns(rows)
			return err
		})
	})
	if err == nil && len(out) == 0 {
		err = ErrRunNotFound
	}
	if err != nil {
		return nil, pg.Wrap("get run", err)
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
func (s Runs) Find(ctx context.Context, db pg.DB, externalID string) (uuid.UUID, error) {
	if db == nil {
		db = s.pool
	}
	var id uuid.UUID
	err := pg.Do(ctx, func(ctx context.Context) (err error) {
		// The order matters: a run that ends between the two statements is found by the second one.
		id, err = pg.AskOne[uuid.UUID](ctx, db, findActive, s.namespace, externalID)
		if errors.Is(err, pgx.ErrNoRows) {
			id, err = pg.AskOne[uuid.UUID](ctx, db, findEnded, s.namespace, externalID)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrRunNotFound
		}
		return err
	})
	return id, pg.Wrap("find run", err)
}

// ReadRuns reads rows of clause.RunColumns, the input and the output.
func ReadRuns(rows pgx.Rows) ([]*Run, error) {
	defer rows.Close()
	var out []*Run
	for rows.Next() {
		r := &Run{}
		var external, kind, text, step, schedule *string
		var parent, origin, locked, lease *uuid.UUID
		if err := rows.Scan(append(r.Spec.read(), &r.RunID, &external, &r.Status, pg.UTC(&r.AvailableAt), &r.Attempts,
			&r.Recoveries, &r.WaitingOn, pg.UTC(&r.DeadlineAt), pg.UTC(&r.StartBy), &r.FirstMetadata, &r.Progress,
			&kind, &text, &parent,
			&step, &locked, pg.UTC(&r.CreatedAt), pg.UTC(&r.StartedAt), pg.UTC(&r.FinishedAt), &r.Epoch,
			pg.UTC(&r.ContinuedAt), &schedule, pg.UTC(&r.FireAt), &origin, &r.Quarantined,
			pg.UTC(&r.PausedAt), &r.Outcome, &lease, pg.UTC(&r.CancelledAt),
			pg.UTC(&r.InboxFullAt), pg.UTC(&r.SilentSince), &r.Input, &r.Output)...); err != nil {
			return nil, err
		}
		r.ExternalID, r.ErrorKind, r.Error = pg.Deref(external), pg.Deref(kind), pg.Deref(text)
		r.Parent, r.Origin, r.LockedBy, r.Lease = pg.Deref(parent), pg.Deref(origin), pg.Deref(locked), pg.Deref(lease)
		r.ParentStep, r.Schedule = pg.Deref(step), pg.Deref(schedule)
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
func (s Runs) Ended(ctx context.Context, ids []uuid.UUID,
	most time.Duration,
) (ended []Ended, missing []uuid.UUID, err error) {
	mode := pg.Mode{
		Statements: most,
		Locks:      pg.CallTimeout,
	} // a lock on the table is not an error before most has passed
	if most == 0 {
		mode = pg.Untimed
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		ended, missing = nil, nil
		b := &pgx.Batch{}
		b.Queue(endedRuns, s.namespace, array(ids))
		b.Queue(missingRuns, s.namespace, array(ids))
		return pg.Exchange(ctx, s.pool, mode, b, func(rows pgx.Rows) error {
			for rows.Next() {
				var e Ended
				var kind, text *string
				if err := rows.Scan(&e.RunID, &e.Type, &e.Status, &e.Output, &kind, &text); err != nil {
					return err
				}
				e.ErrorKind, e.Error = pg.Deref(kind), pg.Deref(text)
				ended = append(ended, e)
			}
			return nil
		}, pg.Collect(&missing, pgx.RowTo[uuid.UUID]))
	})
	return ended, missing, pg.Wrap("find ended runs", err)
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

// A run whose steps are being deleted does not count as existing.
const runStatus = `
SELECT r.status FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'`

func (s *conn) status(ctx context.Context, tx pgx.Tx, id uuid.UUID) (string, error) {
	status, err := pg.AskOne[string](ctx, tx, runStatus, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	return status, err
}
