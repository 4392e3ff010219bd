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

// An Overdue walks over the runs whose deadline has passed, the earliest one first, and says how they end.
type Overdue struct {
	Grace time.Duration // a worker that is there has taken the run by then
	Kind  string        // of the error
	Error string

	after overdueRun // the last run that was read
	fewer int        // runs are taken together by so many powers of two, because more together failed
	vain  int        // runs in a row that failed alone
}

// An overdueRun is a run whose deadline has passed.
type overdueRun struct {
	id, parent uuid.UUID
	deadline   time.Time
}

// Only the holder of the lock ends runs: others would only meet its locks.
const deadlineLock = `SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi deadlines ' || $1::text, 0::bigint))`

// A run under a live lease is left to its worker. A run that somebody has locked is left to the next pass.
const overdueRuns = `
SELECT q.run_id, q.parent_run_id, q.deadline_at
FROM kagzi.workflow_runs q
WHERE q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING')
	AND (q.deadline_at, q.run_id) > ($2::timestamptz, $3::uuid) AND q.deadline_at <= now() - $4::bigint * interval '1 microsecond'
	AND CASE WHEN q.status = 'RUNNING' THEN q.available_at <= now() - $4::bigint * interval '1 microsecond' ELSE true END
ORDER BY q.deadline_at, q.run_id
LIMIT $5
FOR UPDATE SKIP LOCKED`

// EndOverdue ends runs that no worker executes and whose deadline passed longer ago than the grace, with their children. It
// takes runs that no earlier call with o has taken. A run that was cancelled meanwhile ends as cancelled. EndOverdue waits
// for no lock: it leaves out a run if somebody has locked it or one of its family, and all runs while another coordinator
// ends some.
//
// more says that the caller should call it again with o. That also holds after an error that may be about single runs: the
// next call takes fewer of them together, and leaves out one that fails alone, with its error. If many in a row fail alone,
// the rest has to wait for another pass.
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
	// A statement of its own, after that of the lock: its snapshot must have the ends that the last holder has written.
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

// lockFamilies locks all rows that the ends of the runs write: the runs below them, and their parents. It waits for no lock,
// so the order does not matter. It returns the runs and those below them with their parents, and those of late whose whole
// family is locked now. The family of a run may grow until it is locked.
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

// endFamilies ends the runs, and cancels those below them.
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
