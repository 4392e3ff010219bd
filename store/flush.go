package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Records writes what executions have done: steps, ends, sleeps, messages that were read.
type Records struct{ *conn }

// A Flush holds the writes that share one transaction: records, then what runs say of their progress, then the messages
// that they set aside, then suspensions, then ends of runs.
type Flush struct {
	Records     []*Record
	Suspensions []*Suspension
	Finishes    []*Finish
	Progress    []*Progress // at most one for each run
	Aside       []*SetAside
	Premises    []Premise // the writes of their runs are done only if all of these are in the table

	By    Witness     // the connection that sent f
	Woken []DueRun    // parents that became due because a run ended, and consumers that have new events
	Step  []uuid.UUID // runs to call Compensate for
}

// Flush sends f in one transaction and sets the Outcome of every write. After an error no outcome is known. The caller
// may then flush the same writes again: every statement is fenced by the lease, and a write that is found in the tables
// counts as done.
func (s Records) Flush(ctx context.Context, f *Flush) error {
	f.sort()
	err := pg.Do(ctx, func(ctx context.Context) error {
		f.reset()
		err := pg.OnConn(ctx, s.pool, func(conn *pgx.Conn) error {
			f.By = witnessOf(ctx, conn)
			return s.send(ctx, conn, f, f.runsToLock()) // one round trip, as a rule
		})
		if pg.Code(err) == "55P03" || isUnfounded(err) {
			f.reset() // the transaction was rolled back
			err = s.flushFree(ctx, f)
		}
		if err != nil {
			return err
		}
		return s.resolve(ctx, f.undecided())
	})
	return pg.Wrap("flush", err)
}

// flushFree sends only the writes that need not wait for other transactions: those whose runs and parents no other
// transaction has locked. It also leaves out runs that start a child with an external ID, or publish an event with an
// ID of the application: an open transaction may have inserted one with that ID, and the insert would wait for its end.
// All other keys belong to one run. The ends of runs whose consumer another transaction has locked are left out, too.
// The writes that it leaves out are Busy, or Unfounded.
func (s Records) flushFree(ctx context.Context, f *Flush) error {
	return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
		free, err := s.lockFree(ctx, tx, f.everyRun())
		if err != nil {
			return err
		}
		held, err := s.heldConsumers(ctx, tx, f.Finishes)
		if err != nil {
			return err
		}
		missing, err := s.missing(ctx, tx, f.premises())
		if err != nil {
			return err
		}
		some := f.free(free, held, missing)
		err = s.send(ctx, tx, some, nil)
		f.Woken, f.Step = some.Woken, some.Step
		f.each(func(h head) {
			if missing[h.run] {
				*h.outcome = Unfounded
			}
		})
		return err
	})
}

// send locks the runs given and sends the statements of f, all in one round trip.
func (s Records) send(ctx context.Context, db pg.DB, f *Flush, lock []uuid.UUID) error {
	b := &pgx.Batch{}
	var reads []func(pgx.Rows) error
	queue := func(read func(pgx.Rows) error, sql string, args ...any) {
		b.Queue(sql, args...)
		reads = append(reads, read)
	}
	if lock != nil {
		queue(nil, lockRuns, s.namespace, array(lock))
	}
	if checks := f.premises(); len(checks) > 0 {
		queue(nil, checkPremises, checkColumns.args(s.namespace, checks)...)
	}
	if starts := starts(f.Records); len(starts) > 0 {
		queue(nil, insertChildren, childColumns.args(s.namespace, children(starts))...)
		if telling := tellingStarts(starts); telling != nil {
			queue(readSubscribers(&f.Woken), publishRuns,
				s.runEvents(started, telling, make([]uuid.UUID, len(telling)))...)
		}
	}
	if events := recordedEvents(f.Records); len(events) > 0 {
		queue(readSubscribers(&f.Woken), publishRecorded, recordedEventColumns.args(s.namespace, events)...)
	}
	compensations, steps := part(f.Records, (*Record).isCompensation)
	// Before the steps: a fork that copies a step must find the compensation that was registered with it.
	if len(compensations) > 0 {
		queue(readRecorded(compensations), recordCompensations, compensationColumns.args(s.namespace, compensations)...)
	}
	if len(steps) > 0 {
		queue(readRecorded(steps), recordSteps, recordColumns.args(s.namespace, steps)...)
	}
	if changes := metadataChanges(f.Records); len(changes) > 0 {
		queue(nil, changeMetadata, metadataColumns.args(s.namespace, changes)...)
	}
	if len(f.Progress) > 0 {
		queue(readProgress(f.Progress), setProgress, progressColumns.args(s.namespace, f.Progress)...)
	}
	if len(f.Aside) > 0 {
		queue(readSetAside(f.Aside), setAsideMessages, setAsideColumns.args(s.namespace, f.Aside)...)
	}
	if consuming := consuming(f.Records); len(consuming) > 0 {
		queue(nil, consumeSignals, consumeColumns.args(s.namespace, consuming)...)
	}
	if len(f.Suspensions) > 0 {
		queue(readSuspended(f.Suspensions), suspendRuns, suspendColumns.args(s.namespace, f.Suspensions)...)
	}
	plain, others := part(f.Finishes, (*Finish).plain)
	if len(plain) > 0 {
		queue(readCompleted(plain), completeRuns, completeColumns.args(s.namespace, plain)...)
	}
	if len(others) > 0 {
		queue(readFinished(others, &f.Woken, &f.Step), finishRuns, finishColumns.args(s.namespace, others)...)
	}
	if telling, leases := tellingEnds(f.Finishes); telling != nil {
		queue(readSubscribers(&f.Woken), publishRuns, s.runEvents(ended, telling, leases)...)
	}
	if ends, topics := consumerEnds(f.Finishes); len(ends) > 0 {
		queue(nil, commitConsumers, commitColumns.args(s.namespace, ends)...)
		if len(topics) > 0 {
			queue(nil, commitSubscriptions, commitTopicColumns.args(s.namespace, topics)...)
		}
	}
	if forgotten := f.forgotten(); len(forgotten) > 0 {
		queue(nil, forgetFailures, forgetColumns.args(s.namespace, forgotten)...)
	}
	if b.Len() == 0 {
		return nil
	}
	return pg.Exchange(ctx, db, pg.Brief, b, reads...) // no write is Done before this returns
}

// each calls do for every write.
func (f *Flush) each(do func(head)) {
	for _, r := range f.Records {
		do(r.head())
	}
	for _, p := range f.Suspensions {
		do(p.head())
	}
	for _, e := range f.Finishes {
		do(e.head())
	}
	for _, p := range f.Progress {
		do(p.head())
	}
	for _, a := range f.Aside {
		do(a.head())
	}
}

// sort puts the writes in the order in which the statements lock their rows.
func (f *Flush) sort() {
	slices.SortStableFunc(f.Records, func(a, b *Record) int {
		return cmp.Or(compareIDs(a.RunID, b.RunID), cmp.Compare(a.StepID, b.StepID), cmp.Compare(a.Attempt, b.Attempt))
	})
	slices.SortStableFunc(f.Suspensions, byRun)
	slices.SortStableFunc(f.Finishes, byRun)
	slices.SortStableFunc(f.Progress, byRun)
	slices.SortStableFunc(f.Aside, byRun)
}

func (f *Flush) reset() {
	f.By, f.Woken, f.Step = Witness{}, nil, nil
	f.each(func(h head) { *h.outcome = Undecided })
	for _, r := range f.Records {
		r.Found = false
	}
}

// runsToLock returns the runs to lock first, in order of run_id, because another process may lock several of them. It
// returns nil if a single statement locks them in that order itself. A run that does not complete is locked before its
// compensations are read, because another holder of the lock may have registered one.
func (f *Flush) runsToLock() []uuid.UUID {
	compensations, steps := part(f.Records, (*Record).isCompensation)
	plain, others := part(f.Finishes, (*Finish).plain)
	statements := 0
	for _, n := range []int{
		len(starts(f.Records)), len(recordedEvents(f.Records)), len(steps), len(compensations),
		len(f.Progress), len(f.Aside), len(f.Suspensions), len(plain),
	} {
		statements += min(n, 1)
	}
	ids := f.everyRun()
	if len(others) == 0 && (statements < 2 || len(ids) < 2) {
		return nil
	}
	return ids
}

// everyRun returns the runs of the writes and the parents that these wake, in order of run_id.
func (f *Flush) everyRun() []uuid.UUID {
	var ids []uuid.UUID
	f.each(func(h head) {
		ids = append(ids, h.run)
		if h.parent != uuid.Nil {
			ids = append(ids, h.parent)
		}
	})
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// free returns the writes whose runs and parents are among ids, apart from those of runs that may wait for another
// transaction, that end runs of the consumers held, or whose premises are missing.
func (f *Flush) free(ids []uuid.UUID, held []string, missing map[uuid.UUID]bool) *Flush {
	has, waits := map[uuid.UUID]bool{uuid.Nil: true}, map[uuid.UUID]bool{}
	for _, id := range ids {
		has[id] = true
	}
	for _, r := range f.Records {
		if r.MayWait() {
			waits[r.RunID] = true
		}
	}
	for _, e := range f.Finishes {
		if e.Consumed != nil && slices.Contains(held, e.Consumed.Consumer) {
			waits[e.RunID] = true
		}
	}
	keep := func(h head) bool { return has[h.run] && has[h.parent] && !waits[h.run] && !missing[h.run] }
	return &Flush{
		Records: only(f.Records, keep), Suspensions: only(f.Suspensions, keep), Finishes: only(f.Finishes, keep),
		Progress: only(f.Progress, keep), Aside: only(f.Aside, keep),
	}
}

// undecided returns the writes that no statement has written.
func (f *Flush) undecided() undecided {
	is := func(h head) bool { return *h.outcome == Undecided }
	return undecided{
		only(f.Records, is), only(f.Suspensions, is), only(f.Finishes, is), only(f.Progress, is),
		only(f.Aside, is),
	}
}

// forgotten returns the steps whose failures the writes of f forget.
func (f *Flush) forgotten() (steps []forgotten) {
	f.each(func(h head) {
		for _, step := range h.forget {
			steps = append(steps, forgotten{h.run, h.lease, step})
		}
	})
	return steps
}

// Consumers that exist, and that the statement cannot lock.
const heldConsumers = `
WITH given AS MATERIALIZED (
	SELECT DISTINCT u.consumer FROM unnest($2::text[]) AS u (consumer)
), locked AS MATERIALIZED (
	SELECT f.consumer
	FROM (SELECT given.consumer FROM given ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT x.consumer FROM kagzi.consumers x WHERE x.consumer = u.consumer AND x.namespace_id = $1
		FOR NO KEY UPDATE SKIP LOCKED
	) f
)
SELECT given.consumer
FROM given
CROSS JOIN LATERAL (SELECT FROM kagzi.consumers x WHERE x.consumer = given.consumer AND x.namespace_id = $1 OFFSET 0) x
WHERE (SELECT count(*) FROM locked WHERE locked.consumer = given.consumer) = 0`

// heldConsumers locks the consumers whose runs complete, and returns those that another transaction has locked.
func (s Records) heldConsumers(ctx context.Context, tx pgx.Tx, finishes []*Finish) (held []string, err error) {
	ends, _ := consumerEnds(finishes)
	if len(ends) == 0 {
		return nil, nil
	}
	names := make([]string, len(ends))
	for i, e := range ends {
		names[i] = e.Consumed.Consumer
	}
	err = pg.Ask(ctx, tx, heldConsumers, []any{s.namespace, names}, pg.Collect(&held, pgx.RowTo[string]))
	return held, err
}
