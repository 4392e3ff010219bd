package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

// A RunUpdate has the changes of a run that waits. Fields that are not set stay.
type RunUpdate struct {
	Queue       string // empty: it stays
	Priority    int    // zero: it stays
	SetDue      bool   // the run is due at At, or Delay from now if At is zero
	At          time.Time
	Delay       time.Duration
	SetMetadata bool
	Metadata    json.RawMessage // all of the tags
	SetVersion  bool
	Version     int // zero: the default of the worker that claims it next
}

// ErrRunRunning reports that a worker executes the run.
var ErrRunRunning = errors.New("a worker executes the run")

// A NotDueByTime reports that no time makes the run due that a caller may change.
type NotDueByTime struct{ WaitingOn waits.List }

// PreviousRun reports whether it waits for the previous run of its schedule.
func (e *NotDueByTime) PreviousRun() bool { return e.WaitingOn.Has(waits.PreviousRun) }

func (e *NotDueByTime) Error() string {
	return fmt.Sprintf("the run waits on %q", e.WaitingOn.String())
}

// A QueueFull reports that a queue, or a key of it, has no place for a run that would hold one there.
type QueueFull struct {
	Queue      string
	Key        string // empty: the queue as a whole
	MaxRunning int
}

func (e *QueueFull) Error() string {
	return fmt.Sprintf("queue %q is full: of its %d runs at once none may be added", e.Queue, e.MaxRunning)
}

// The statement waits for the lock and then sees the current row. No claim takes a locked run. A claim that waits for
// its turn until the update commits tests its conditions again.
const lockWaiter = `
SELECT q.status, q.cancel_requested_at IS NOT NULL OR q.outcome IS NOT NULL, q.waiting_on, q.task_queue,
	coalesce(q.key_scope = '' AND q.slot = 2, false)
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1
FOR UPDATE`

// ErrPlaceInTx reports that a place of a queue cannot be kept in a caller's transaction: no claim of that queue could
// count until its end.
var ErrPlaceInTx = errors.New("a place of a queue cannot be taken in a transaction")

const hasPlaces = `
SELECT count(*) > 0 FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1 AND c.max_running > 0`

// Claims that count the queue's runs lock this row first. They skip runs that are locked, so none waits for the caller,
// who has locked one.
const lockPlaces = `
SELECT c.max_running FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1 AND c.max_running > 0
	FOR UPDATE`

// Lets claims find the run $3 among those that hold the queue's slots.
const lowerQueue = `
UPDATE kagzi.queues x
SET slots_from = LEAST(x.slots_from, $3::uuid)
WHERE x.task_queue = $2 AND x.namespace_id = $1 AND x.max_running > 0`

const takenPlaces = `
SELECT count(*) FROM (SELECT FROM kagzi.workflow_runs WHERE task_queue = $2 AND namespace_id = $1
	AND ` + clause.Holds + ` LIMIT $3) x`

// takePlace returns a QueueFull if the queue has no place for another run that holds a slot. Otherwise tx may give one
// to the run: takePlace holds up all claims of the queue until tx ends. So it returns ErrPlaceInTx if tx is a caller's,
// unless the queue has no limit.
func (s Runs) takePlace(ctx context.Context, tx pgx.Tx, queue string, id uuid.UUID, callers bool) error {
	if callers {
		limited, err := pg.AskOne[bool](ctx, tx, hasPlaces, s.namespace, queue)
		if err == nil && limited {
			err = ErrPlaceInTx
		}
		return err
	}
	most, err := pg.AskOne[int](ctx, tx, lockPlaces, s.namespace, queue)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	// of its own: it sees what the last claim has committed
	taken, err := pg.AskOne[int](ctx, tx, takenPlaces, s.namespace, queue, most)
	if err == nil && taken >= most {
		err = &QueueFull{queue, "", most}
	}
	if err == nil {
		err = pg.Ask(ctx, tx, lowerQueue, []any{s.namespace, queue, id}, nil)
	}
	return err
}

// The caller has locked the run.
//
// The Timeout of a run that has never begun counts from when it is due, so its deadline moves with that. A run that has
// begun keeps its deadline, and is due no later. A run that is due already, and is to be due now, keeps its turn.
//
// A key belongs to its queue. A run that moves to another queue therefore gives up its slot, and takes one there when
// it goes on. A group spans queues: the run that has its slot keeps it, because no other run of the group may begin
// before that one has ended. The caller has taken a place of the new queue for it.
const updateRun = `
WITH planned AS MATERIALIZED (
	SELECT o.run_id, o.workflow_type, o.run_key, o.task_queue AS old_queue, o.priority AS old_priority,
		o.version AS old_version, o.metadata AS old_metadata, o.available_at AS old_at,
		o.key_scope AS old_scope, o.slot AS old_slot, o.queue, o.queue <> o.task_queue AS moves, o.new_priority,
			o.new_version, o.new_metadata, o.new_deadline, o.new_start_by,
		CASE WHEN o.due IS NULL OR o.due <= o.now AND o.available_at <= o.now THEN o.available_at
			ELSE LEAST(o.due, o.new_deadline) END AS new_at
	FROM (
		SELECT q.*, d.now, d.due,
			CASE WHEN $3::text = '' THEN q.task_queue ELSE $3::text END AS queue,
			CASE WHEN $4::int = 0 THEN q.priority ELSE $4::int END::smallint AS new_priority,
			CASE WHEN $5::bool THEN NULLIF($6::int, 0) ELSE q.version END AS new_version,
			CASE WHEN $7::bool THEN NULLIF(NULLIF($8::text, '')::jsonb, '{}') ELSE q.metadata END AS new_metadata,
			CASE WHEN d.due IS NOT NULL AND q.started_at IS NULL AND q.deadline_at IS NOT NULL
				THEN LEAST(d.due + q.timeout, timestamptz '9999-12-31 23:59:59+00')
					ELSE q.deadline_at END AS new_deadline,
			CASE WHEN d.due IS NOT NULL AND q.started_at IS NULL AND q.start_by IS NOT NULL
				THEN LEAST(d.due + q.start_within, timestamptz '9999-12-31 23:59:59+00') ELSE q.start_by END
					AS new_start_by
		FROM (
			SELECT t.now, CASE WHEN $9::bool THEN GREATEST(t.now + $10::bigint * interval '1 microsecond', CASE
				WHEN $11::bigint > 0 THEN timestamptz 'epoch' + $11::bigint * interval '1 microsecond' END) END AS due
			FROM (SELECT statement_timestamp() AS now) t
		) d
		CROSS JOIN LATERAL (
			SELECT f.* FROM kagzi.workflow_runs f WHERE f.run_id = $2 AND f.namespace_id = $1 OFFSET 0
		) q
	) o
), updated AS (
	UPDATE kagzi.workflow_runs r
	SET task_queue = planned.queue, key_scope = CASE WHEN r.key_scope = '' THEN '' WHEN r.key_scope IS NOT NULL
		THEN planned.queue END,
		slot = CASE WHEN planned.moves AND r.key_scope IS DISTINCT FROM '' THEN NULL ELSE r.slot END,
		priority = planned.new_priority, version = planned.new_version, available_at = planned.new_at,
			deadline_at = planned.new_deadline, start_by = planned.new_start_by, metadata = planned.new_metadata,
		first_metadata = CASE WHEN $7::bool THEN coalesce(r.first_metadata, r.metadata, '{}') ELSE r.first_metadata END
	FROM planned
	WHERE r.run_id = planned.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.run_key, r.key_scope
), ` + insertChanges + ` (SELECT updated.run_key, updated.key_scope FROM updated
	UNION SELECT planned.run_key, planned.old_scope FROM planned) k WHERE k.run_key IS NOT NULL
)
SELECT planned.run_id, planned.workflow_type, planned.old_queue, planned.queue, planned.old_priority,
	planned.new_priority, coalesce(planned.old_version, 0), coalesce(planned.new_version, 0),
	coalesce(planned.old_metadata::text, ''), coalesce(planned.new_metadata::text, ''),
		NULLIF(planned.old_at, 'infinity'),
		NULLIF(planned.new_at, 'infinity'), planned.moves AND coalesce(planned.old_slot = 2, false)
FROM planned`

// Update changes a run that is pending or sleeping, and writes an event with what differs. It returns whose workers may
// have something to do now: those of the run's queue, and those of the queue in which it had a slot until now. It
// returns ErrRunNotFound, ErrRunRunning, ErrRunFinished, ErrRunEnding if the run was cancelled or compensates, a
// NotDueByTime, and a QueueFull or ErrPlaceInTx if the run keeps the slot of its group.
func (s Runs) Update(ctx context.Context, tx pgx.Tx, id uuid.UUID, u RunUpdate, why Why) (due []DueRun, err error) {
	event := newEvent(id, EventUpdated, why)
	tried := false // an earlier try of our own transaction, whose answer may have been lost
	callers := tx != nil
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		var w waiter
		err := pg.AskRow(ctx, tx, lockWaiter, []any{s.namespace, id}, &w.status, &w.ending, &w.waitingOn, &w.queue,
			&w.holds)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrRunNotFound
		}
		if err != nil {
			return err
		}
		if tried { // it took effect, and a worker may have taken the run since
			if done, err := s.hasEvent(ctx, tx, event); done || err != nil {
				return err
			}
		}
		if err := w.refuses(u); err != nil {
			return err
		}
		if w.holds && u.Queue != "" && u.Queue != w.queue {
			if err := s.takePlace(ctx, tx, u.Queue, id, callers); err != nil {
				return err
			}
		}
		tried = true
		due, event.Changes, err = s.update(ctx, tx, id, u)
		if err != nil || event.Changes == nil {
			return err
		}
		return s.writeEvents(ctx, tx, event)
	})
	return due, pg.Wrap("update", err)
}

// A waiter is what Update reads of a run.
type waiter struct {
	status    string
	ending    bool // it was cancelled, or compensates
	waitingOn waits.List
	queue     string
	holds     bool // the slot of its group
}

// refuses returns the reason why an update cannot change the run; nil: it can.
func (w waiter) refuses(u RunUpdate) error {
	switch {
	case w.status == Running:
		return ErrRunRunning
	case w.status != Pending && w.status != Sleeping:
		return ErrRunFinished
	case w.ending:
		return ErrRunEnding
	case u.SetDue && (w.status == Sleeping || w.waitingOn.Has(waits.PreviousRun)):
		return &NotDueByTime{w.waitingOn}
	}
	return nil
}

// update changes the run, which tx has locked, and returns what differs.
func (s Runs) update(ctx context.Context, tx pgx.Tx, id uuid.UUID,
	u RunUpdate,
) (due []DueRun, changes []Changed, err error) {
	var run DueRun
	var queue, oldMetadata, newMetadata string
	var oldPriority, newPriority, oldVersion int
	var oldAt, newAt time.Time
	var frees bool
	args := []any{
		s.namespace, id, u.Queue, u.Priority, u.SetVersion, u.Version, u.SetMetadata, string(u.Metadata),
		u.SetDue, pg.Micros(u.Delay), pg.Epoch(u.At),
	}
	err = pg.AskRow(ctx, tx, updateRun, args, pg.UUIDTo(&run.RunID), &run.Type, &queue, &run.Queue, &oldPriority,
		&newPriority, &oldVersion, &run.Version,
		&oldMetadata, &newMetadata, pg.UTC(&oldAt), pg.UTC(&newAt), &frees)
	if err != nil {
		return nil, nil, err
	}
	differs := func(field, from, to string) {
		if from != to {
			changes = append(changes, Changed{field, from, to})
		}
	}
	differs("queue", queue, run.Queue)
	differs("priority", strconv.Itoa(oldPriority), strconv.Itoa(newPriority))
	differs("version", version(oldVersion), version(run.Version))
	differs("available_at", moment(oldAt), moment(newAt))
	differs("metadata", oldMetadata, newMetadata)
	due = []DueRun{run}
	if frees {
		due = append(due, DueRun{Queue: queue})
	}
	return due, changes, nil
}

// version is a version as an event names it: none is the empty text.
func version(v int) string {
	if v == 0 {
		return ""
	}
	return strconv.Itoa(v)
}

// moment is a time as an event names it: none is the empty text.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}
