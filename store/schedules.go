package store

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Schedules keeps the templates of schedules, and fires them.
type Schedules struct{ *conn }

// ErrScheduleNotFound reports that the namespace has no such schedule.
var ErrScheduleNotFound = errors.New("schedule not found")

// A Template is the row of a schedule: which run to start, and when.
type Template struct {
	Spec               // of the runs
	ID       uuid.UUID // made from namespace and name, so it never changes
	Name     string
	Input    []byte // nil in a template that FireDue passes to decide
	Size     int    // of the input, in bytes
	Cron     string
	TimeZone string
	CatchUp  int
	Overlap  string // what a tick does while a run is active; empty: it starts its run

	// the rest of the timetable, for the caller
	Timing json.RawMessage

	Paused    bool      // set by a caller, or by a coordinator with a Problem: the schedule is never due
	PausedAt  time.Time // since when; zero unless it is paused
	PauseWhy  Why       // who paused it, and why, as far as the caller said so
	Problem   string    // why a coordinator paused it, or, unless it is paused, why the last try to fire it failed
	Cursor    time.Time // every tick up to this time is decided
	Next      time.Time // when it is due; zero if never
	CreatedAt time.Time
	Now       time.Time // the database's time when the row was read
	Active    bool      // a run of it is active; a queued run does not count, one that is being cancelled does
	Queued    bool      // a run of it waits until no other one is active
	Cancelled bool      // Schedules.Tick has cancelled its active runs, in the transaction in which the tick is decided
}

// A Firing is the decision about a template that is due.
type Firing struct {
	Template uuid.UUID
	Runs     []TickRun
	Cursor   time.Time       // the new cursor; zero leaves it
	Next     time.Time       // when the template is due next; zero: never
	Problem  string          // why the template could not be fired; empty: it was
	Pause    bool            // the template cannot be fired until it is repaired: it is paused
	Headers  json.RawMessage // of the runs; nil: the template's
	Replace  bool            // the tick is not decided: the active runs must be cancelled first, see Schedules.Tick
}

// A TickRun is a run to insert.
type TickRun struct {
	RunID  uuid.UUID
	Tick   time.Time // zero for a run that stands for no tick
	Queued bool      // the run waits until no other run of the schedule is active
}

// A queued run does not count as active. A run that is being cancelled does: it executes until its worker hears of
// that, and its compensations follow.
const templateColumns = clause.Spec + `, schedule_id, name, coalesce(octet_length(input), 0), coalesce(cron_expr, ''),
	coalesce(time_zone, ''), max_catchup, coalesce(overlap_policy, ''), timing, paused, paused_at,
	coalesce(pause_actor, ''), coalesce(pause_reason, ''), coalesce(problem, ''), cursor_at,
	NULLIF(next_at, 'infinity'), created_at, clock_timestamp(),
	EXISTS (
		SELECT FROM kagzi.workflow_runs a
		WHERE a.schedule_id = t.schedule_id AND a.namespace_id = $1 AND a.status IN ('PENDING', 'SLEEPING', 'RUNNING')
			AND (a.status <> 'PENDING' OR a.waiting_on IS DISTINCT FROM '` + clause.PreviousRun + `')
	),
	EXISTS (
		SELECT FROM kagzi.workflow_runs a
		WHERE a.schedule_id = t.schedule_id AND a.namespace_id = $1 AND a.status = 'PENDING'
			AND a.waiting_on = '` + clause.PreviousRun + `'
	)`

// readTemplates reads rows of templateColumns and the input.
func readTemplates(rows pgx.Rows) ([]*Template, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Template, error) {
		t := &Template{}
		return t, row.Scan(append(t.Spec.read(), &t.ID, &t.Name, &t.Size, &t.Cron, &t.TimeZone, &t.CatchUp, &t.Overlap,
			&t.Timing, &t.Paused, pg.UTC(&t.PausedAt), &t.PauseWhy.Actor, &t.PauseWhy.Reason, &t.Problem,
			pg.UTC(&t.Cursor), pg.UTC(&t.Next), pg.UTC(&t.CreatedAt), pg.UTC(&t.Now), &t.Active, &t.Queued,
			&t.Input)...)
	})
}

// ---- firing ----

const nextTemplate = `
SELECT clock_timestamp(), (
	SELECT t.next_at FROM kagzi.schedules t
	WHERE t.namespace_id = $1 AND NOT t.paused AND t.next_at < 'infinity'
	ORDER BY t.next_at LIMIT 1
)`

// NextDue returns the time until the next template is due; ok is false if none will be.
func (s Schedules) NextDue(ctx context.Context) (left time.Duration, ok bool, err error) {
	var now, next time.Time
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, nextTemplate, []any{s.namespace}, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{pg.UTC(&now), pg.UTC(&next)}, func() error { return nil })
			return err
		})
	})
	if err != nil || next.IsZero() {
		return 0, false, pg.Wrap("find due schedules", err)
	}
	return max(0, next.Sub(now)), true, nil
}

// Only the holder of this lock fires: other coordinators would only wait for its row locks. The lock is not needed to
// keep a tick from firing twice: the template's row and the unique index do that.
const scheduleLock = `SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi schedules ' || $1::text, 0::bigint))`

// A statement of its own, after the one that takes the lock: its snapshot must show the runs that the last holder
// inserted.
const dueTemplates = `
SELECT ` + templateColumns + `, NULL::bytea
FROM (
	SELECT q.*
	FROM kagzi.schedules q
	WHERE q.namespace_id = $1 AND NOT q.paused AND q.next_at <= now()
		AND (SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi schedules ' || $1::text, 0::bigint)))
	ORDER BY q.next_at
	LIMIT $2
	FOR UPDATE SKIP LOCKED
) t`

// A Decide returns the decisions about templates that are due. now is the database's time.
type Decide func(now time.Time, due []*Template) []*Firing

// FireDue fires up to limit templates that are due, as decide says, in one transaction. It returns the runs that it
// inserted, and the number of templates that it passed to decide: none if another coordinator is firing.
func (s Schedules) FireDue(ctx context.Context, limit int, decide Decide) (fired []DueRun, decided int, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		fired, decided = nil, 0
		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
			now, due, err := s.lockDue(ctx, tx, limit)
			if err != nil || len(due) == 0 {
				return err
			}
			decided = len(due)
			fired, err = s.fire(ctx, tx, decide(now, due))
			return err
		})
	})
	return fired, decided, pg.Wrap("fire schedules", err)
}

// lockDue locks and returns templates that are due; none if another coordinator holds scheduleLock.
func (s Schedules) lockDue(ctx context.Context, tx pgx.Tx, limit int) (now time.Time, due []*Template, err error) {
	var held bool
	b := &pgx.Batch{}
	b.Queue(scheduleLock, s.namespace)
	b.Queue(dueTemplates, s.namespace, limit)
	b.Queue(databaseTime)
	err = pg.Exchange(ctx, tx, pg.Brief, b, func(rows pgx.Rows) (err error) {
		held, err = pgx.CollectOneRow(rows, pgx.RowTo[bool])
		return err
	}, func(rows pgx.Rows) (err error) {
		due, err = readTemplates(rows)
		return err
	}, func(rows pgx.Rows) error {
		micros, err := pgx.CollectOneRow(rows, pgx.RowTo[int64])
		now = time.UnixMicro(micros).UTC()
		return err
	})
	if !held {
		due = nil
	}
	return now, due, err
}

// The database copies the input and the options of a run from its template, because an input may be large. A tick that
// has a run already, for example from a backfill, gets no other.
const insertFired = `
WITH given AS MATERIALIZED (
	SELECT u.run_id, u.template, u.tick, u.queued, coalesce(u.headers, ($6::text[])[1]) AS headers,
		statement_timestamp() AS now
	FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bool[], $6::text[]) AS u (run_id, template, tick, queued,
		headers)
), starts AS MATERIALIZED (
	SELECT ` + keptColumns + `, t.version, t.priority, t.metadata, CASE WHEN given.headers = '' THEN t.headers
			ELSE NULLIF(NULLIF(given.headers, '')::jsonb, '{}') END AS headers, given.run_id, t.input, given.now,
		CASE WHEN given.queued THEN 'infinity' ELSE given.now END AS available_at,
		CASE WHEN given.queued THEN '` + clause.PreviousRun + `'::jsonb END AS waiting_on, t.schedule_id,
		t.name AS schedule_name, CASE WHEN given.tick <> -9223372036854775808
			THEN timestamptz 'epoch' + given.tick * interval '1 microsecond' END AS fire_at,
		` + noID + `, ` + noParent + `, ` + noOrigin + `, ` + noClaim + `
	FROM given
	CROSS JOIN LATERAL (
		SELECT q.* FROM kagzi.schedules q
		WHERE q.schedule_id = given.template AND q.namespace_id = $1
		OFFSET 0
	) t
), ` + insertKeyed + selectInserted

// A tickRun is a run to insert, with its template.
type tickRun struct {
	TickRun
	template uuid.UUID
	headers  json.RawMessage
}

// noTick is the tick column of a run that stands for no tick. It is not zero, because 1970 is a tick like any other.
const noTick = math.MinInt64

var firedColumns = columnsOf(insertFired,
	uuids("run_id", func(r tickRun) uuid.UUID { return r.RunID }),
	uuids("template", func(r tickRun) uuid.UUID { return r.template }),
	bigints("tick", func(r tickRun) int64 {
		if r.Tick.IsZero() {
			return noTick
		}
		return r.Tick.UnixMicro()
	}),
	bools("queued", func(r tickRun) bool { return r.Queued }),
	shared(texts, "headers", func(r tickRun) string { return string(r.headers) }),
)

// The cursor never moves back.
const advanceTemplates = `
WITH given AS MATERIALIZED (
	SELECT u.schedule_id, u.problem, u.pause, clock_timestamp() AS now,
		timestamptz 'epoch' + u.cursor * interval '1 microsecond' AS cursor,
		CASE WHEN u.next = 0 THEN 'infinity' ELSE timestamptz 'epoch' + u.next * interval '1 microsecond' END AS next
	FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::bool[]) AS u (schedule_id, cursor, next,
		problem, pause)
)
UPDATE kagzi.schedules t
SET cursor_at = GREATEST(t.cursor_at, given.cursor),
	next_at = given.next,
	paused = t.paused OR given.pause, paused_at = CASE WHEN given.pause THEN given.now ELSE t.paused_at END,
	problem = NULLIF(given.problem, '')
FROM given
WHERE t.schedule_id = given.schedule_id AND t.namespace_id = $1`

var advanceColumns = columnsOf(advanceTemplates,
	uuids("schedule_id", func(f *Firing) uuid.UUID { return f.Template }),
	bigints("cursor", func(f *Firing) int64 { return pg.Epoch(f.Cursor) }),
	bigints("next", func(f *Firing) int64 { return pg.Epoch(f.Next) }),
	texts("problem", func(f *Firing) string { return f.Problem }),
	bools("pause", func(f *Firing) bool { return f.Pause }),
)

// fire writes the decisions, in the transaction that locked the templates. It returns the runs that it inserted.
func (s Schedules) fire(ctx context.Context, tx pgx.Tx, firings []*Firing) ([]DueRun, error) {
	var runs []tickRun
	for _, f := range firings {
		for _, r := range f.Runs {
			runs = append(runs, tickRun{r, f.Template, f.Headers})
		}
	}
	var fired []DueRun
	var publishing []uuid.UUID
	b := &pgx.Batch{}
	var reads []func(pgx.Rows) error
	if len(runs) > 0 {
		b.Queue(insertFired, firedColumns.args(s.namespace, runs)...)
		reads = append(reads, pg.Collect(&fired, func(row pgx.CollectableRow) (r DueRun, err error) {
			var publishes bool
			if err = row.Scan(pg.UUIDTo(&r.RunID), &r.Queue, &r.Type, &r.Version, &publishes); publishes {
				publishing = append(publishing, r.RunID)
			}
			return r, err
		}))
	}
	b.Queue(advanceTemplates, advanceColumns.args(s.namespace, firings)...)
	err := pg.Exchange(ctx, tx, pg.Untimed, b, reads...)
	if err == nil && publishing != nil {
		// consumers are due with the next claim that looks at their keys
		_, err = s.publishRuns(ctx, tx, started, publishing...)
	}
	return fired, err
}

// ---- overlap ----

// The statement counts other active runs, because the planner would make a join of NOT EXISTS. $2 are the queued runs
// that it may release; NULL: all.
const releaseQueued = `
WITH locked AS MATERIALIZED (
	SELECT q.run_id, now() AS now, now() + q.timeout AS deadline_at, now() + q.start_within AS start_by
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.schedule_id IS NOT NULL AND q.status = 'PENDING'
		AND q.waiting_on = '` + clause.PreviousRun + `'
		AND ($2::uuid[] IS NULL OR q.run_id = ANY($2))
		AND (
			SELECT count(*) FROM (
				SELECT FROM kagzi.workflow_runs o
				WHERE o.schedule_id = q.schedule_id AND o.namespace_id = $1
					AND o.status IN ('PENDING', 'SLEEPING', 'RUNNING')
					AND o.run_id <> q.run_id
				LIMIT 1
			) x
		) = 0
	ORDER BY q.run_id
	FOR UPDATE SKIP LOCKED
), released AS (
	UPDATE kagzi.workflow_runs r
	SET available_at = locked.now, waiting_on = NULL, deadline_at = locked.deadline_at, start_by = locked.start_by
	FROM locked
	WHERE r.run_id = locked.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.task_queue, r.workflow_type, coalesce(r.version, 0) AS version, r.run_key, r.key_scope
), ` + insertChanges + ` released k WHERE k.run_key IS NOT NULL
)
SELECT released.run_id, released.task_queue, released.workflow_type, released.version FROM released`

const blockingRuns = `
SELECT o.run_id
FROM kagzi.workflow_runs q
CROSS JOIN LATERAL (
	SELECT o.run_id
	FROM kagzi.workflow_runs o
	WHERE o.schedule_id = q.schedule_id AND o.namespace_id = $1 AND o.status IN ('PENDING', 'SLEEPING', 'RUNNING')
		AND o.run_id <> q.run_id
	LIMIT 10
) o
WHERE q.namespace_id = $1 AND q.schedule_id IS NOT NULL AND q.status = 'PENDING'
	AND q.waiting_on = '` + clause.PreviousRun + `'`

const queuedRuns = `
SELECT q.run_id, q.schedule_id
FROM kagzi.workflow_runs q
WHERE q.namespace_id = $1 AND q.schedule_id IS NOT NULL AND q.status = 'PENDING'
	AND q.waiting_on = '` + clause.PreviousRun + `'`

// A QueuedRun is a run that waits until no other run of its schedule is active.
type QueuedRun struct {
	RunID    uuid.UUID
	Schedule uuid.UUID // the ID of its template, which may have been deleted
}

// ReleaseQueued makes due the queued runs whose schedules have no other active run, and returns them. blocking holds
// the runs that the other queued runs wait for. It passes a run that the server does not release to alone, and releases
// the others.
func (s Schedules) ReleaseQueued(ctx context.Context,
	alone func(QueuedRun, error),
) (released []DueRun, blocking []uuid.UUID, err error) {
	release := func(among any) (some []DueRun, err error) {
		err = pg.Do(ctx, func(ctx context.Context) error {
			b := &pgx.Batch{}
			b.Queue(releaseQueued, s.namespace, among)
			b.Queue(blockingRuns, s.namespace)
			return pg.Exchange(ctx, s.pool, pg.Brief, b, pg.Collect(&some, pgx.RowToStructByPos[DueRun]),
				pg.Collect(&blocking, pgx.RowTo[uuid.UUID]))
		})
		return some, err
	}
	if released, err = release(nil); err == nil || !MayBeRowError(err) {
		return released, blocking, pg.Wrap("release queued runs", err)
	}
	released = nil // refused together
	var queued []QueuedRun
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, queuedRuns, []any{s.namespace}, pg.Collect(&queued, pgx.RowToStructByPos[QueuedRun]))
	})
	if err == nil {
		err = Isolate(queued, func(among []QueuedRun) error {
			some, err := release(uuidArray(len(among), func(i int) uuid.UUID { return among[i].RunID }))
			if err == nil {
				released = append(released, some...)
			}
			return err
		}, alone)
	}
	return released, blocking, pg.Wrap("release queued runs", err)
}

const activeFired = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.schedule_id = $2 AND r.namespace_id = $1 AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING')`

// cancelFired cancels the active runs of a schedule, in the transaction that has locked it.
func (s Schedules) cancelFired(ctx context.Context, tx pgx.Tx, schedule uuid.UUID) (*CancelledRuns, error) {
	var ids []uuid.UUID
	err := pg.Ask(ctx, tx, activeFired, []any{s.namespace, schedule}, pg.Collect(&ids, pgx.RowTo[uuid.UUID]))
	if err != nil || len(ids) == 0 {
		return &CancelledRuns{}, err
	}
	return Ends(s).cancelAll(ctx, tx, ids,
		cancellation{text: wasCancelled + ": its schedule started the next run"})
}
