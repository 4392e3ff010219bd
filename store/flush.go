package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

// Records writes the results of executions: steps, ends, sleeps, messages that were read.
type Records struct{ *conn }

// A Flush holds the writes that share one transaction: records, then the progress of runs, then the messages
// that they set aside, then suspensions, then ends of runs.
type Flush struct {
	Records     []*Record
	Suspensions []*Suspension
	Finishes    []*Finish
	Progress    []*Progress // at most one for each run
	Aside       []*SetAside
	Premises    []Premise // the writes of their runs are done only if all of these are in the table

	sent bool // f, or some of its writes, may be in the table

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
		err := s.sendWhole(ctx, f) // one round trip, as a rule
		if alreadyRecorded(err) {
			err = s.sendWhole(ctx, f)
		}
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

// sendWhole sends all writes of f.
func (s Records) sendWhole(ctx context.Context, f *Flush) error {
	f.reset()
	defer func() { f.sent = true }()
	return pg.OnConn(ctx, s.pool, func(conn *pgx.Conn) error {
		f.By = witnessOf(ctx, conn)
		return s.send(ctx, conn, f, f.runsToLock())
	})
}

// alreadyRecorded reports whether insertResults has found a record: an earlier flush has written it whose answer was
// lost, or that of a worker that has lost the run. Citus repeats the message of the server with the row, in which a
// number follows the name, but not the names of the schema and of the constraint.
func alreadyRecorded(err error) bool {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != "23505" {
		return false
	}
	if refusal.ConstraintName == "" {
		return strings.Contains(refusal.Message, `"step_runs_pkey_`)
	}
	return refusal.SchemaName == "kagzi" && strings.HasPrefix(refusal.ConstraintName, "step_runs_pkey")
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
	x := &exchange{namespace: s.namespace}
	if lock != nil {
		x.add(nil, lockRuns, s.namespace, array(lock))
	}
	addEach(x, f.premises(), checkPremises, checkColumns, nil)
	if starts := starts(f.Records); len(starts) > 0 {
		addEach(x, children(starts), insertChildren, childColumns, nil)
		if telling := tellingStarts(starts); telling != nil {
			x.add(readSubscribers(&f.Woken), publishRuns,
				s.runEvents(started, telling, make([]uuid.UUID, len(telling)))...)
		}
	}
	if events := recordedEvents(f.Records); len(events) > 0 {
		x.add(readSubscribers(&f.Woken), publishRecorded, recordedEventColumns.args(s.namespace, events)...)
		if queueAwaited(&x.batch, s.namespace, newEvents(events)) {
			x.reads = append(x.reads, readSubscribers(&f.Woken))
		}
	}
	compensations, steps := part(f.Records, (*Record).isCompensation)
	// Before the steps: a fork that copies a step must find the compensation that was registered with it.
	addEach(x, compensations, recordCompensations, compensationColumns, readRecorded)
	if !f.sent {
		var results []*Record
		results, steps = part(steps, (*Record).isPlain)
		addEach(x, results, insertResults, resultColumns, readRecorded)
	}
	addEach(x, steps, recordSteps, recordColumns, readRecorded)
	addEach(x, metadataChanges(f.Records), changeMetadata, metadataColumns, nil)
	addEach(x, f.Progress, setProgress, progressColumns, readProgress)
	addEach(x, f.Aside, setAsideMessages, setAsideColumns, readSetAside)
	addEach(x, consuming(f.Records), consumeSignals, consumeColumns, nil)
	addEach(x, waited(f.Records), endWaits, endWaitColumns, nil)
	addEach(x, f.Suspensions, suspendRuns, suspendColumns, readSuspended)
	failed, _ := part(f.Suspensions, hasFailed)
	addEach(x, failed, logAttempts, attemptColumns, nil)
	x.addContinuations(f.Suspensions)
	plain, others := part(f.Finishes, (*Finish).plain)
	addEach(x, plain, completeRuns, completeColumns, readCompleted)
	if len(others) > 0 {
		x.add(readFinished(others, &f.Woken, &f.Step), finishRuns, finishColumns.args(s.namespace, others)...)
	}
	if telling, leases := tellingEnds(f.Finishes); telling != nil {
		x.add(readSubscribers(&f.Woken), publishRuns, s.runEvents(ended, telling, leases)...)
	}
	ends, topics := consumerEnds(f.Finishes)
	addEach(x, ends, commitConsumers, commitColumns, nil)
	addEach(x, topics, commitSubscriptions, commitTopicColumns, nil)
	addEach(x, f.forgotten(), forgetFailures, forgetColumns, nil)
	if x.batch.Len() == 0 {
		return nil
	}
	return pg.Exchange(ctx, db, pg.Brief, &x.batch, x.reads...) // no write is Done before this returns
}

// addContinuations adds the statements that begin the epochs of those of the suspensions that continue their runs.
func (x *exchange) addContinuations(suspensions []*Suspension) {
	ended, requests := splitContinued(suspensions)
	addEach(x, ended, continueRuns, continueColumns, nil)
	addEach(x, ended, deleteBefore, deleteBeforeColumns, nil)
	addEach(x, ended, keepPast, keepPastColumns, nil)
	addEach(x, ended, leaveWaits, leaveWaitsColumns, nil)
	addEach(x, ended, dropAnswers, dropAnswersColumns, nil)
	addEach(x, ended, deleteValues, deleteValuesColumns, nil)
	addEach(x, ended, keepValues, keepValuesColumns, nil)
	addEach(x, requests, reopenRequests, reopenColumns, nil)
}

// An exchange has the statements of a flush in their order, and the readers of their answers.
type exchange struct {
	namespace string
	batch     pgx.Batch
	reads     []func(pgx.Rows) error // nil: there is nothing to read
}

func (x *exchange) add(read func(pgx.Rows) error, sql string, args ...any) {
	x.batch.Queue(sql, args...)
	x.reads = append(x.reads, read)
}

// addEach adds the statement that writes these, if there are any. read returns the reader of its answer, if any.
func addEach[T any](x *exchange, writes []T, sql string, cols columns[T], read func([]T) func(pgx.Rows) error) {
	if len(writes) == 0 {
		return
	}
	var reads func(pgx.Rows) error
	if read != nil {
		reads = read(writes)
	}
	x.add(reads, sql, cols.args(x.namespace, writes)...)
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
		sent: true, Records: only(f.Records, keep), Suspensions: only(f.Suspensions, keep),
		Finishes: only(f.Finishes, keep), Progress: only(f.Progress, keep), Aside: only(f.Aside, keep),
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
