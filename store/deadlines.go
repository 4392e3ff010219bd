package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// mostOverdue is how many runs one transaction ends: it holds their locks.
	mostOverdue = 500

	// mostInVain is how many runs in a row may fail alone before that is taken for the database's trouble.
	mostInVain = 10
)

// An Overdue is a walk over the runs whose Timeout has passed, from the earliest deadline on, and says how they end.
type Overdue struct {
	Grace time.Duration // a worker that is there has taken the run by then
	Kind  string        // of the error
	Error string

	after overdueRun // the runs up to this one were looked at
	fewer int        // runs are taken together by so many powers of two, because more together failed
	vain  int        // runs in a row that failed alone
}

// An overdueRun is a run whose deadline has passed.
type overdueRun struct {
	id, parent uuid.UUID
	deadline   time.Time
}

// Who has the lock ends runs; another would only meet its locks.
const deadlineLock = `SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi deadlines ' || $1::text, 0::bigint))`

// What is under way under a live lease is its worker's affair. What somebody has locked comes next time.
const overdueRuns = `
SELECT q.run_id, q.parent_run_id, q.deadline_at
FROM kagzi.workflow_runs q
WHERE q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING')
	AND (q.deadline_at, q.run_id) > ($2::timestamptz, $3::uuid) AND q.deadline_at <= now() - $4::bigint * interval '1 microsecond'
	AND CASE WHEN q.status = 'RUNNING' THEN q.available_at <= now() - $4::bigint * interval '1 microsecond' ELSE true END
ORDER BY q.deadline_at, q.run_id
LIMIT $5
FOR UPDATE SKIP LOCKED`

// EndOverdue ends runs whose deadline passed longer ago than the grace, and which no worker is executing, with their
// children. It takes those that no call with o has looked at yet. One that was cancelled meanwhile ends as cancelled. It
// waits for no lock: a run stays if somebody has locked it or one of its family, and all stay while another coordinator is
// at it.
//
// more says to call it again with o. That is so after an error that is about the runs, too: the next call takes fewer of them
// together, and one that fails alone is left out, with its error. If many in a row fail alone, the rest is for another time.
func (s *Store) EndOverdue(ctx context.Context, o *Overdue) (out *CancelledRuns, more bool, err error) {
	limit, looked := max(1, mostOverdue>>o.fewer), 0
	var last overdueRun
	err = do(ctx, func(ctx context.Context) error {
		out, looked = &CancelledRuns{}, 0
		return transact(ctx, s.pool, brief, func(tx pgx.Tx) error {
			late, err := s.lockOverdue(ctx, tx, o, limit)
			if err != nil || len(late) == 0 {
				return err
			}
			looked, last = len(late), late[len(late)-1]
			parents, free, err := s.lockFamilies(ctx, tx, late)
			if err == nil && len(free) > 0 {
				out, err = s.endFamilies(ctx, tx, o, parents, free)
			}
			return err
		})
	})
	if err == nil {
		o.after, o.fewer, o.vain = last, max(0, o.fewer-1), 0
		return out, looked == limit, nil
	}
	switch Classify(err) {
	case ClassAway, ClassBusy, ClassClosed, ClassForbidden:
		looked = 0
	}
	if looked == 1 {
		o.vain++
	}
	switch {
	case looked == 0:
		return &CancelledRuns{}, false, wrap("end runs past their deadline", err)
	case looked == 1:
		o.after = last
		return &CancelledRuns{}, o.vain%mostInVain != 0, wrap("end run "+last.id.String()+" past its deadline", err)
	default:
		o.fewer++
		return &CancelledRuns{}, true, nil
	}
}

// lockOverdue locks runs whose deadline has passed, if it gets the coordinators' lock.
func (s *Store) lockOverdue(ctx context.Context, tx pgx.Tx, o *Overdue, limit int) (late []overdueRun, err error) {
	mine, err := askOne[bool](ctx, tx, deadlineLock, s.namespace)
	if err != nil || !mine {
		return nil, err
	}
	// A statement of its own after the lock's: its snapshot must show what the last holder has ended.
	args := []any{s.namespace, o.after.deadline, o.after.id, micros(o.Grace), limit}
	err = ask(ctx, tx, overdueRuns, args, func(rows pgx.Rows) error {
		var r overdueRun
		var parent *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&r.id, &parent, &r.deadline}, func() error {
			r.parent = deref(parent)
			late = append(late, r)
			return nil
		})
		return err
	})
	return late, err
}

// lockFamilies locks all that the ends of the runs write to: what is below them, and their parents. It waits for nobody, so
// that the order of the locks does not matter. It returns the runs and those below them with their parents, and of late
// those whose whole family is locked now. What is below one that runs may grow until it is locked.
func (s *Store) lockFamilies(ctx context.Context, tx pgx.Tx, late []overdueRun) (parents map[uuid.UUID]uuid.UUID, free []uuid.UUID, err error) {
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

// endFamilies ends the runs, and cancels what is below them.
func (s *Store) endFamilies(ctx context.Context, tx pgx.Tx, o *Overdue, parents map[uuid.UUID]uuid.UUID, runs []uuid.UUID) (*CancelledRuns, error) {
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
