package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

const (
	// overdueBatch is how many runs one transaction ends: it holds their locks.
	overdueBatch = 500

	// maxFailuresInRow is how many runs in a row may fail alone. After that the error is probably about the database,
	// not about the runs.
	maxFailuresInRow = 10
)

// An Overdue is the state of a pass over the runs of which a deadline has passed, the earliest deadline first. The
// caller sets the exported fields, EndOverdue the others. Only one goroutine may use it.
type Overdue struct {
	Grace time.Duration // after the deadline, for a worker to end the run itself
	Begin bool          // the deadline is that for the begin of the run; else that for its end
	Kind  string        // of the error that the runs end with
	Error string

	after overdueRun // the last run of the pass that was ended or left out: the next call reads those after it
	// the next batch is overdueBatch halved so many times: larger ones failed; a success takes one back
	halvings int
	failures int // runs in a row that failed in a batch of one; a success resets it
}

// An overdueRun is a run whose deadline has passed.
type overdueRun struct {
	id, parent uuid.UUID
	deadline   time.Time
}

// Only the holder of this lock ends runs: other coordinators would only run into its row locks.
const deadlineLock = `SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi deadlines ' || $1::text, 0::bigint))`

// The statement leaves a run under a live lease to its worker, and a run that another transaction has locked to the
// next pass.
const overdueRuns = `
SELECT q.run_id, q.parent_run_id, q.deadline_at
FROM kagzi.workflow_runs q
WHERE q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING')
	AND (q.deadline_at, q.run_id) > ($2::timestamptz, $3::uuid)
		AND q.deadline_at <= now() - $4::bigint * interval '1 microsecond'
	AND CASE WHEN q.status = 'RUNNING' THEN q.available_at <= now() - $4::bigint * interval '1 microsecond'
		ELSE true END
ORDER BY q.deadline_at, q.run_id
LIMIT $5
FOR UPDATE SKIP LOCKED`

// The same for runs that no worker has begun in time. It has no grace: a claim that is under way has locked the run.
const unbegunRuns = `
SELECT q.run_id, q.parent_run_id, q.start_by
FROM kagzi.workflow_runs q
WHERE q.namespace_id = $1 AND q.status = 'PENDING' AND q.started_at IS NULL
	AND (q.start_by, q.run_id) > ($2::timestamptz, $3::uuid) AND q.start_by <= now()
ORDER BY q.start_by, q.run_id
LIMIT $4
FOR UPDATE SKIP LOCKED`

// EndOverdue ends the next batch of runs that no worker executes and whose deadline passed longer ago than the grace,
// with their children. A run that was cancelled meanwhile ends as cancelled. EndOverdue waits for no lock. It leaves
// out a run if another transaction has locked it, its parent or a run below it, and ends none while another coordinator
// ends some.
//
// more tells the caller to call it again with o, also after an error about single runs: the next batch is smaller, and
// a run that fails in a batch of one is left out, and its error returned. If many in a row fail alone, more is false,
// and the rest waits for another pass.
func (s Ends) EndOverdue(ctx context.Context, o *Overdue) (out *CancelledRuns, more bool, err error) {
	limit, read := max(1, overdueBatch>>o.halvings), 0
	var last overdueRun
	err = pg.Do(ctx, func(ctx context.Context) error {
		out, read = &CancelledRuns{}, 0
		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
			late, err := s.lockOverdue(ctx, tx, o, limit)
			if err != nil || len(late) == 0 {
				return err
			}
			read, last = len(late), late[len(late)-1]
			parents, free, err := s.lockFamilies(ctx, tx, late)
			if err == nil && len(free) > 0 {
				out, err = s.endFamilies(ctx, tx, o, parents, free)
			}
			return err
		})
	})
	if err == nil {
		o.after, o.halvings, o.failures = last, max(0, o.halvings-1), 0
		return out, read == limit, nil
	}
	switch pg.Classify(err) {
	case pg.ClassAway, pg.ClassBusy, pg.ClassClosed, pg.ClassForbidden:
		read = 0
	}
	if read == 1 {
		o.failures++
	}
	switch {
	case read == 0:
		return &CancelledRuns{}, false, pg.Wrap("end runs past their deadline", err)
	case read == 1:
		o.after = last
		return &CancelledRuns{}, o.failures%maxFailuresInRow != 0,
			pg.Wrap("end run "+last.id.String()+" past its deadline", err)
	default:
		o.halvings++
		return &CancelledRuns{}, true, nil
	}
}

// lockOverdue locks and returns the next runs whose deadline has passed; none if another coordinator holds
// deadlineLock.
func (s Ends) lockOverdue(ctx context.Context, tx pgx.Tx, o *Overdue, limit int) (late []overdueRun, err error) {
	locked, err := pg.AskOne[bool](ctx, tx, deadlineLock, s.namespace)
	if err != nil || !locked {
		return nil, err
	}
	// A statement of its own, after the one that takes the lock: its snapshot must show the runs that the last holder
	// ended.
	sql, args := overdueRuns, []any{s.namespace, o.after.deadline, o.after.id, pg.Micros(o.Grace), limit}
	if o.Begin {
		sql, args = unbegunRuns, []any{s.namespace, o.after.deadline, o.after.id, limit}
	}
	err = pg.Ask(ctx, tx, sql, args, func(rows pgx.Rows) error {
		var r overdueRun
		var parent *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&r.id, &parent, &r.deadline}, func() error {
			r.parent = pg.Deref(parent)
			late = append(late, r)
			return nil
		})
		return err
	})
	return late, err
}

// lockFamilies locks the family of each run: its parent and the runs below it, which are the rows that its end writes.
// It waits for no lock, so the order does not matter. It returns the parent of each run of late and of each run below
// them, and in free the runs of late whose whole family is locked. A family may grow until it is locked, so
// lockFamilies repeats.
func (s Ends) lockFamilies(ctx context.Context, tx pgx.Tx,
	late []overdueRun,
) (parents map[uuid.UUID]uuid.UUID, free []uuid.UUID, err error) {
	ids, locked, tried := make([]uuid.UUID, len(late)), map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for i, r := range late {
		ids[i], locked[r.id], tried[r.id] = r.id, true, true
	}
	for range 10 {
		if parents, err = s.parents(ctx, tx, ids, false); err != nil {
			return nil, nil, err
		}
		var want []uuid.UUID
		try := func(id uuid.UUID) {
			if id != uuid.Nil && !tried[id] {
				tried[id] = true
				want = append(want, id)
			}
		}
		for id := range parents {
			try(id)
		}
		for _, r := range late {
			try(r.parent)
		}
		if want == nil {
			break
		}
		got, err := s.lockFree(ctx, tx, want)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range got {
			locked[id] = true
		}
	}
	busy := map[uuid.UUID]bool{}
	for id := range parents {
		for above := id; !locked[id] && above != uuid.Nil; above = parents[above] {
			busy[above] = true
		}
	}
	for _, r := range late {
		if !busy[r.id] && (r.parent == uuid.Nil || locked[r.parent]) {
			free = append(free, r.id)
		}
	}
	return parents, free, nil
}

// endFamilies ends the runs, and cancels the runs below them.
func (s Ends) endFamilies(ctx context.Context, tx pgx.Tx, o *Overdue, parents map[uuid.UUID]uuid.UUID,
	runs []uuid.UUID,
) (*CancelledRuns, error) {
	ends := make(map[uuid.UUID]bool, len(runs))
	for _, id := range runs {
		ends[id] = true
	}
	below := map[uuid.UUID]uuid.UUID{}
	for id, parent := range parents {
		above := parent
		for above != uuid.Nil && !ends[above] {
			above = parents[above]
		}
		if above != uuid.Nil && !ends[id] {
			below[id] = parent
		}
	}
	out := &CancelledRuns{}
	if len(below) > 0 {
		var err error
		if out, err = s.cancelLocked(ctx, tx, below, nil, cancellation{how: parentEnded}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(runs, compareIDs)
	ending := make([]ending, len(runs))
	for i, id := range runs {
		ending[i].run, ending[i].status, ending[i].kind, ending[i].error = id, Failed, o.Kind, o.Error
	}
	more, err := s.endLocked(ctx, tx, ending, true, true, 0)
	out.add(more)
	return out, err
}
