package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An Outcome says what happened to one item of a flush.
type Outcome int

const (
	Undecided  Outcome = iota
	Done               // the item is written, or the step has an older result
	Busy               // somebody else's open transaction holds the run's row: try again with the next flush
	Lost               // the lease is lost, or the run is over
	Taken              // the external ID of the child to start is an active run's
	Cancelling         // a cancel is pending: the run can only end as cancelled
)

// A Flush holds the writes that share one transaction: records, then suspensions, then ends of runs.
type Flush struct {
	Records     []*Record
	Suspensions []*Suspension
	Finishes    []*Finish

	Woken []DueRun    // parents that became due because a run ended
	Step  []uuid.UUID // runs to call Compensate for
}

// Flush applies f in one transaction and sets the Outcome of every item. After an error no outcome is known. Flushing the
// items again is right then: every statement is fenced by the lease, and an item that is found written counts as done.
func (s *Store) Flush(ctx context.Context, f *Flush) error {
	f.sort()
	err := do(ctx, func(ctx context.Context) error {
		f.reset()
		err := s.write(ctx, s.pool, f, f.runs()) // one round trip, as a rule
		if code(err) == "55P03" {
			f.reset() // the transaction was rolled back
			err = s.flushFree(ctx, f)
		}
		if err != nil {
			return err
		}
		return s.resolve(ctx, f)
	})
	return wrap("flush", err)
}

// flushFree writes only the items that need not wait for other transactions: those whose runs and parents nobody else has
// locked. It also leaves out runs that start a child with an external ID: an open transaction may have inserted a run with
// that ID, and the insert would wait for its end. All other keys belong to one run. The items that it leaves out are Busy.
func (s *Store) flushFree(ctx context.Context, f *Flush) error {
	return transact(ctx, s.pool, brief, func(tx pgx.Tx) error {
		free, err := s.lockFree(ctx, tx, f.everyRun())
		if err != nil {
			return err
		}
		some := f.only(free)
		err = s.write(ctx, tx, some, nil)
		f.Woken, f.Step = some.Woken, some.Step
		return err
	})
}

// write locks the runs given and sends the statements of f, all in one round trip.
func (s *Store) write(ctx context.Context, db DB, f *Flush, lock []uuid.UUID) error {
	b := &pgx.Batch{}
	var reads []func(pgx.Rows) error
	queue := func(read func(pgx.Rows) error, sql string, args ...any) {
		b.Queue(sql, args...)
		reads = append(reads, read)
	}
	if lock != nil {
		queue(nil, lockRuns, s.namespace, array(lock))
	}
	if starts := f.starts(); len(starts) > 0 {
		queue(nil, insertChildren, childColumns.args(s.namespace, children(starts))...)
	}
	steps, compensations := f.parted()
	// Before the steps: a fork that copies a step must find the compensation that was registered with it.
	if len(compensations) > 0 {
		queue(readRecorded(compensations), recordCompensations, compensationColumns.args(s.namespace, compensations)...)
	}
	if len(steps) > 0 {
		queue(readRecorded(steps), recordSteps, recordColumns.args(s.namespace, steps)...)
	}
	if taken := f.taken(); len(taken) > 0 {
		queue(nil, takeSignals, takeColumns.args(s.namespace, taken)...)
	}
	if len(f.Suspensions) > 0 {
		queue(f.readSuspended, suspendRuns, suspendColumns.args(s.namespace, f.Suspensions)...)
	}
	if len(f.Finishes) > 0 {
		queue(readEndings(f.readFinished), finishRuns, finishColumns.args(s.namespace, f.Finishes)...)
	}
	if forgotten := f.forgotten(); len(forgotten) > 0 {
		queue(nil, forgetFailures, forgetColumns.args(s.namespace, forgotten)...)
	}
	if b.Len() == 0 {
		return nil
	}
	return exchange(ctx, db, brief, b, reads...) // no item is Done before this returns
}

// A part is the part that a Record, a Suspension and a Finish have in common.
type part struct {
	run, lease, parent uuid.UUID
	outcome            *Outcome
	forget             []string
}

type item interface{ part() part }

func (r *Record) part() part {
	return part{run: r.RunID, lease: r.Lease, outcome: &r.Outcome}
}

func (p *Suspension) part() part {
	return part{run: p.RunID, lease: p.Lease, outcome: &p.Outcome, forget: p.Forget}
}

func (e *Finish) part() part {
	return part{run: e.RunID, lease: e.Lease, parent: e.Parent, outcome: &e.Outcome, forget: e.Forget}
}

func (f *Flush) each(do func(part)) {
	for _, r := range f.Records {
		do(r.part())
	}
	for _, p := range f.Suspensions {
		do(p.part())
	}
	for _, e := range f.Finishes {
		do(e.part())
	}
}

// sort puts the items in the order in which the statements lock their rows.
func (f *Flush) sort() {
	slices.SortStableFunc(f.Records, func(a, b *Record) int {
		return cmp.Or(compareIDs(a.RunID, b.RunID), cmp.Compare(a.StepID, b.StepID), cmp.Compare(a.Attempt, b.Attempt))
	})
	slices.SortStableFunc(f.Suspensions, byRun)
	slices.SortStableFunc(f.Finishes, byRun)
}

func byRun[I item](a, b I) int { return compareIDs(a.part().run, b.part().run) }

// ofRun returns the item of the run. sorted has at most one for each run.
func ofRun[I item](sorted []I, run uuid.UUID) (it I, ok bool) {
	i, ok := slices.BinarySearchFunc(sorted, run, func(it I, run uuid.UUID) int { return compareIDs(it.part().run, run) })
	if ok {
		it = sorted[i]
	}
	return it, ok
}

// parted returns the records of steps, and those of compensations.
func (f *Flush) parted() (steps, compensations []*Record) {
	is := func(r *Record) bool { return r.Kind == KindCompensation }
	if !slices.ContainsFunc(f.Records, is) {
		return f.Records, nil
	}
	for _, r := range f.Records {
		if is(r) {
			compensations = append(compensations, r)
		} else {
			steps = append(steps, r)
		}
	}
	return steps, compensations
}

func (f *Flush) reset() {
	f.Woken, f.Step = nil, nil
	f.each(func(p part) { *p.outcome = Undecided })
}

// runs returns the runs to lock first, in order of run_id, because another process may lock several of them. It returns nil
// if a single statement locks them in that order itself. A run that does not complete is locked before its compensations are
// read, because another holder of the lock may have registered one.
func (f *Flush) runs() []uuid.UUID {
	wakes := slices.ContainsFunc(f.Finishes, func(e *Finish) bool { return e.Parent != uuid.Nil || e.Status != Completed })
	steps, compensations := f.parted()
	statements := 0
	for _, n := range []int{len(f.starts()), len(steps), len(compensations), len(f.Suspensions), len(f.Finishes)} {
		statements += min(n, 1)
	}
	ids := f.everyRun()
	if !wakes && (statements < 2 || len(ids) < 2) {
		return nil
	}
	return ids
}

func (f *Flush) everyRun() []uuid.UUID {
	var ids []uuid.UUID
	f.each(func(p part) {
		ids = append(ids, p.run)
		if p.parent != uuid.Nil {
			ids = append(ids, p.parent)
		}
	})
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// MayWait reports whether the write of the record may wait for another transaction even though the run is locked: it starts
// a child with an external ID, which any transaction may use. Once a flush has met a lock, such records are flushed by
// themselves.
func (r *Record) MayWait() bool { return r.Start != nil && r.Start.ExternalID != "" }

// only returns the items whose runs and parents are in free, apart from runs that may wait for another transaction.
func (f *Flush) only(free []uuid.UUID) *Flush {
	has, waits := map[uuid.UUID]bool{uuid.Nil: true}, map[uuid.UUID]bool{}
	for _, id := range free {
		has[id] = true
	}
	for _, r := range f.Records {
		if r.MayWait() {
			waits[r.RunID] = true
		}
	}
	out := func(p part) bool { return !has[p.run] || !has[p.parent] || waits[p.run] }
	return &Flush{Records: without(f.Records, out), Suspensions: without(f.Suspensions, out), Finishes: without(f.Finishes, out)}
}

func without[I item](items []I, out func(part) bool) []I {
	return slices.DeleteFunc(slices.Clone(items), func(it I) bool { return out(it.part()) })
}
