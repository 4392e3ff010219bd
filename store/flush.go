package store

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An Outcome says what became of one item of a flush.
type Outcome int

const (
	Undecided  Outcome = iota
	Done               // the table says what the item says, or holds an older result of the step
	Busy               // somebody else's open transaction holds the run's row: try again with the next flush
	Lost               // the lease is lost, or the run is over
	Taken              // the external ID of the child to start is an active run's
	Cancelling         // a cancel is pending: the run cannot end so
)

// A Park ends an execution without ending the run: the run sleeps, waits for its next attempt, or is given
// back. available_at is the earlier of Wake and WakeAt; neither means never.
type Park struct {
	RunID     uuid.UUID
	Lease     uuid.UUID
	Status    string        // Sleeping or Pending
	Wake      time.Duration // counted from the write; negative for none
	WakeAt    time.Time     // as a record returned it
	Seen      int64         // the wakeups this execution has seen
	Need      int           // how many more make a sleeping run due; zero: it waits for the time alone
	NotBefore bool          // not even for a pending cancel, or its deadline
	WaitingOn string
	Failed    bool // this was an attempt of the run, and it failed
	ErrorKind string
	Error     string
	History   HistoryRead
	Forget    []string // with Failed: see Finish

	Outcome     Outcome
	AvailableAt time.Time // when the run becomes due, once Done; zero if it is not known, or never
}

// A HistoryRead says what a park knows of the run's history.
type HistoryRead int

const (
	HistoryUntried HistoryRead = -1 // nobody tried to read it
	HistoryIsRead  HistoryRead = 0  // it was read, or there is none: failures before do not count any more
	HistoryFailed  HistoryRead = 1  // it could not be read
)

// A Finish ends a run.
type Finish struct {
	RunID       uuid.UUID
	Lease       uuid.UUID
	Parent      uuid.UUID // the zero UUID if the run has none
	Status      string    // Completed, Failed or Cancelled
	Output      []byte
	ErrorKind   string
	Error       string
	Quarantined bool     // FAILED, and left to people: also while a cancel is pending, and without compensations
	Forget      []string // of a run that failed: the steps whose failures the next attempt forgets, if there is one

	Outcome      Outcome
	Compensating bool // once Done: the run ends when its compensations have run
}

// A Flush is what shares one transaction: records, then parks, then finishes.
type Flush struct {
	Records  []*Record
	Parks    []*Park
	Finishes []*Finish

	Woken []Woken     // the parents that became due by the finishes
	Step  []uuid.UUID // runs whose compensations are to go on: see Compensate
}

// A Woken is a run that has become due.
type Woken struct {
	RunID   uuid.UUID
	Queue   string
	Type    string
	Version int // zero: none yet
}

// The flush first locks every run it will touch in order of run_id: two processes that finish each other's runs'
// children would otherwise wait for each other.
const lockRuns = `
SELECT r.run_id
FROM (SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id) ORDER BY 1) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE
) r`

const lockFreeRuns = `
SELECT r.run_id
FROM (SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id) ORDER BY 1) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE SKIP LOCKED
) r`

// Wake-ups that the execution has not seen make the run due now, if they are as many as it waits for. The lease stays,
// so that a lost answer can be told from a lost lease. What a pending cancel says of the run stays, too.
const parkRuns = `
WITH l AS MATERIALIZED (
	SELECT r.run_id, now() AS now, u.status, u.awaited, u.not_before, u.waiting_on, u.failed, u.failed AND r.cancel_requested_at IS NULL AS explains, u.error_kind, u.error, u.unread,
		LEAST(CASE WHEN u.wake >= 0 THEN now() + u.wake * interval '1 microsecond' ELSE 'infinity' END,
			CASE WHEN u.wake_at > 0 THEN timestamptz 'epoch' + u.wake_at * interval '1 microsecond' ELSE 'infinity' END) AS wake_at,
		u.status = 'SLEEPING' AND r.wakeups >= u.awaited OR r.cancel_requested_at IS NOT NULL AND NOT u.not_before AS due
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bool[], $10::text[], $11::text[], $12::bool[], $13::int[])
		AS u (run_id, lease, status, wake, wake_at, awaited, waiting_on, failed, error_kind, error, not_before, unread)
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.wakeups, q.cancel_requested_at
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'
		FOR UPDATE
	) r
)
UPDATE kagzi.workflow_runs r
SET status = l.status,
	available_at = LEAST(CASE WHEN l.due THEN l.now ELSE l.wake_at END, CASE WHEN NOT l.not_before THEN r.deadline_at END),
	wakeups_awaited = l.awaited,
	locked_by = NULL,
	waiting_on = NULLIF(l.waiting_on, ''),
	attempts = r.attempts + CASE WHEN l.failed THEN 1 ELSE 0 END,
	load_failures = CASE WHEN l.unread = 0 THEN 0 ELSE r.load_failures + GREATEST(l.unread, 0) END,
	error_kind = CASE WHEN l.explains THEN l.error_kind ELSE r.error_kind END,
	error = CASE WHEN l.explains THEN l.error ELSE r.error END
FROM l
WHERE r.run_id = l.run_id AND r.namespace_id = $1
RETURNING r.run_id, NULLIF(r.available_at, 'infinity')`

// A run does not end by itself while a cancel is pending, whose text is with the run. One that has compensations to run has its
// outcome decided, and sleeps until they have run. The lease stays, so that a lost answer can be told from a lost lease.
const finishRuns = `
WITH l AS MATERIALIZED (
	SELECT q.run_id, q.parent_run_id, statement_timestamp() AS now, NULL::timestamptz AS until, q.lease,
		u.status, u.output, NULLIF(u.error_kind, '') AS error_kind, NULLIF(q.error, '') AS error, u.quarantined,
		CASE WHEN u.status = 'COMPLETED' OR u.quarantined THEN 'end' WHEN ` + registered + ` THEN 'compensate' ELSE 'end' END AS act,
		CASE WHEN u.status <> 'COMPLETED' THEN jsonb_build_object('status', u.status, 'kind', u.error_kind, 'error', q.error) END AS outcome
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::bool[])
		AS u (run_id, lease, status, output, error_kind, error, quarantined)
	CROSS JOIN LATERAL (
		SELECT k.run_id, k.parent_run_id, k.lease,
			CASE WHEN u.status = 'CANCELLED' AND k.cancel_requested_at IS NOT NULL THEN coalesce(k.error, u.error) ELSE u.error END AS error
		FROM kagzi.workflow_runs k
		WHERE k.run_id = u.run_id AND k.namespace_id = $1 AND k.lease = u.lease AND k.status = 'RUNNING'
			AND (u.quarantined OR u.status = 'CANCELLED' OR k.cancel_requested_at IS NULL)
		FOR UPDATE
	) q
), p AS (
	UPDATE kagzi.workflow_payloads p
	SET output = l.output
	FROM l
	WHERE p.run_id = l.run_id AND p.namespace_id = $1 AND l.output IS NOT NULL
), ` + writeEndings

// The failures of an attempt that the next one forgets, with the end of the attempt: the row says that it is written. The
// end of a group is a MARKER, which keeps its deadline; one that is not a failure stays.
const forgetFailures = `
UPDATE kagzi.step_runs s
SET forgotten_by = f.attempts
FROM (
	SELECT u.run_id, u.step_id, r.attempts
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	CROSS JOIN LATERAL (
		SELECT q.attempts
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status IN ('PENDING', 'FAILED')
		OFFSET 0
	) r
	OFFSET 0
) f
WHERE s.run_id = f.run_id AND s.step_id = f.step_id AND s.namespace_id = $1
	AND s.status = 'FAILED' AND s.forgotten_by IS NULL AND (s.wake_at IS NULL OR s.step_kind = 'MARKER')
	AND s.step_kind IN ('FUNCTION', 'CHILD_WORKFLOW', 'BRANCH', 'MARKER')`

// Flush applies f in one transaction and sets every item's Outcome. After an error nothing is known of any:
// flushing them again is right, because every statement is fenced by the lease, and what is found done counts
// as done.
func (s *Store) Flush(ctx context.Context, f *Flush) error {
	f.sort()
	err := do(ctx, func(ctx context.Context) error {
		f.reset()
		err := s.flushAll(ctx, f)
		if code(err) == "55P03" {
			err = s.flushFree(ctx, f)
		}
		if err != nil {
			return err
		}
		return s.lookAt(ctx, f)
	})
	return wrap("flush", err)
}

// flushAll is the usual flush: one round trip.
func (s *Store) flushAll(ctx context.Context, f *Flush) error {
	return s.write(ctx, s.pool, f, f.runs())
}

// flushFree applies only the items whose runs, and parents, nobody else has locked, and leaves out the runs that start a
// child with an external ID: a transaction that somebody has open may have started a run with that ID, and the insert
// waits for its end. Nothing in here may wait for strangers: what other statements it has insert under keys that belong to
// one run, and write rows that are locked. What is left out is left to lookAt: still running under their lease, the runs
// are busy.
func (s *Store) flushFree(ctx context.Context, f *Flush) error {
	return transact(ctx, s.pool, brief, func(tx pgx.Tx) error {
		var free, gone []uuid.UUID
		b := &pgx.Batch{}
		b.Queue(lockFreeRuns, s.namespace, array(f.everyRun()))
		b.Queue(missingRuns, s.namespace, array(f.everyRun())) // a parent that was deleted is nobody's, and never comes back
		err := exchange(ctx, tx, brief, b, collect(&free, pgx.RowTo[uuid.UUID]), collect(&gone, pgx.RowTo[uuid.UUID]))
		if err != nil {
			return err
		}
		some := f.only(append(free, gone...)).withoutWaits()
		err = s.write(ctx, tx, some, nil)
		f.Woken, f.Step = some.Woken, some.Step
		return err
	})
}

// write sends f's statements in one round trip, after one that locks the runs given.
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
		queue(nil, insertChildren, s.childArgs(starts)...)
	}
	steps, compensations := f.parted()
	if len(steps) > 0 {
		queue(func(rows pgx.Rows) error { return readRecorded(rows, steps) }, recordSteps, s.recordArgs(steps)...)
	}
	if len(compensations) > 0 {
		queue(func(rows pgx.Rows) error { return readRecorded(rows, compensations) }, recordCompensations, s.compensationArgs(compensations)...)
	}
	if taken := f.taken(); len(taken) > 0 {
		queue(nil, takeSignals, s.takeArgs(taken)...)
	}
	if len(f.Parks) > 0 {
		queue(func(rows pgx.Rows) error { return readParked(rows, f.Parks) }, parkRuns, s.parkArgs(f.Parks)...)
	}
	if len(f.Finishes) > 0 {
		queue(readEndings(f.readFinished), finishRuns, s.finishArgs(f.Finishes)...)
	}
	if args := s.forgetArgs(f); args != nil {
		queue(nil, forgetFailures, args...)
	}
	if b.Len() == 0 {
		return nil
	}
	return exchange(ctx, db, brief, b, reads...) // nothing is done before it has returned
}

func readParked(rows pgx.Rows, parks []*Park) error {
	var id uuid.UUID
	var available time.Time
	_, err := pgx.ForEachRow(rows, []any{&id, utc(&available)}, func() error {
		if i, ok := slices.BinarySearchFunc(parks, id, func(p *Park, id uuid.UUID) int { return compareIDs(p.RunID, id) }); ok {
			parks[i].Outcome, parks[i].AvailableAt = Done, available
		}
		return nil
	})
	return err
}

func (f *Flush) readFinished(act string, w Woken) {
	switch act {
	case "end", "compensate":
		if i, ok := slices.BinarySearchFunc(f.Finishes, w.RunID, func(e *Finish, id uuid.UUID) int { return compareIDs(e.RunID, id) }); ok {
			f.Finishes[i].Outcome, f.Finishes[i].Compensating = Done, act == "compensate"
		}
	case "due":
		f.Woken = append(f.Woken, w)
	}
	if act == "compensate" || act == "step" {
		f.Step = append(f.Step, w.RunID)
	}
}

// awaited is the number of wakeups that makes the run due.
func (p *Park) awaited() int64 {
	if p.Need == 0 {
		return math.MaxInt64
	}
	return p.Seen + int64(p.Need)
}

func (s *Store) parkArgs(parks []*Park) []any {
	n := len(parks)
	runs, leases, statuses := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	waiting, errorKinds, errors := make([]string, n), make([]string, n), make([]string, n)
	wakes, wakeAts, awaited := make([]int64, n), make([]int64, n), make([]int64, n)
	failed, notBefore, unread := make([]bool, n), make([]bool, n), make([]int32, n)
	for i, p := range parks {
		runs[i], leases[i], statuses[i] = p.RunID, p.Lease, p.Status
		waiting[i], errorKinds[i], errors[i], failed[i] = p.WaitingOn, p.ErrorKind, p.Error, p.Failed
		wakes[i], wakeAts[i], awaited[i], notBefore[i] = micros(p.Wake), epoch(p.WakeAt), p.awaited(), p.NotBefore
		unread[i] = int32(p.History)
		if p.Wake < 0 {
			wakes[i] = -1
		}
	}
	return []any{s.namespace, array(runs), array(leases), statuses, wakes, wakeAts, awaited, waiting, failed, errorKinds, errors, notBefore, unread}
}

func (s *Store) finishArgs(finishes []*Finish) []any {
	n := len(finishes)
	runs, leases, statuses := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	errorKinds, errors := make([]string, n), make([]string, n)
	outputs, quarantined := make([][]byte, n), make([]bool, n)
	for i, f := range finishes {
		runs[i], leases[i], statuses[i] = f.RunID, f.Lease, f.Status
		outputs[i], errorKinds[i], errors[i] = f.Output, f.ErrorKind, f.Error
		quarantined[i] = f.Quarantined
	}
	return []any{s.namespace, array(runs), array(leases), statuses, outputs, errorKinds, errors, quarantined}
}

// forgetArgs returns nil if nothing is to be forgotten.
func (s *Store) forgetArgs(f *Flush) []any {
	var runs, leases []uuid.UUID
	var steps []string
	add := func(run, lease uuid.UUID, forget []string) {
		for _, step := range forget {
			runs, leases, steps = append(runs, run), append(leases, lease), append(steps, step)
		}
	}
	for _, p := range f.Parks {
		add(p.RunID, p.Lease, p.Forget)
	}
	for _, e := range f.Finishes {
		add(e.RunID, e.Lease, e.Forget)
	}
	if steps == nil {
		return nil
	}
	return []any{s.namespace, array(runs), array(leases), steps}
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// sort puts the items in the order in which their rows are locked.
func (f *Flush) sort() {
	slices.SortStableFunc(f.Records, func(a, b *Record) int {
		return cmp.Or(compareIDs(a.RunID, b.RunID), cmp.Compare(a.StepID, b.StepID), cmp.Compare(a.Attempt, b.Attempt))
	})
	slices.SortStableFunc(f.Parks, func(a, b *Park) int { return compareIDs(a.RunID, b.RunID) })
	slices.SortStableFunc(f.Finishes, func(a, b *Finish) int { return compareIDs(a.RunID, b.RunID) })
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
	for _, r := range f.Records {
		r.Outcome = Undecided
	}
	for _, p := range f.Parks {
		p.Outcome = Undecided
	}
	for _, e := range f.Finishes {
		e.Outcome, e.Compensating = Undecided, false
	}
}

// runs returns every run to lock first, nil if one statement locks all of them, in order: the process that ends
// children of two runs of ours locks these, too, and a flush of several statements would meet it in another order. A run
// that ends badly is locked before anybody looks for its compensations: who had it locked may have registered one.
func (f *Flush) runs() []uuid.UUID {
	wakes := slices.ContainsFunc(f.Finishes, func(e *Finish) bool { return e.Parent != uuid.Nil || e.Status != Completed })
	kinds := 0
	for _, n := range []int{len(f.starts()), len(f.Records), len(f.Parks), len(f.Finishes)} {
		kinds += min(n, 1)
	}
	ids := f.everyRun()
	if !wakes && (kinds < 2 || len(ids) < 2) {
		return nil
	}
	return ids
}

func (f *Flush) everyRun() []uuid.UUID {
	var ids []uuid.UUID
	for _, r := range f.Records {
		ids = append(ids, r.RunID)
	}
	for _, p := range f.Parks {
		ids = append(ids, p.RunID)
	}
	for _, e := range f.Finishes {
		ids = append(ids, e.RunID)
		if e.Parent != uuid.Nil {
			ids = append(ids, e.Parent)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// only returns the items whose runs are all in free.
func (f *Flush) only(free []uuid.UUID) *Flush {
	has := make(map[uuid.UUID]bool, len(free))
	for _, id := range free {
		has[id] = true
	}
	out := &Flush{}
	for _, r := range f.Records {
		if has[r.RunID] {
			out.Records = append(out.Records, r)
		}
	}
	for _, p := range f.Parks {
		if has[p.RunID] {
			out.Parks = append(out.Parks, p)
		}
	}
	for _, e := range f.Finishes {
		if has[e.RunID] && (e.Parent == uuid.Nil || has[e.Parent]) {
			out.Finishes = append(out.Finishes, e)
		}
	}
	return out
}

// MayWait reports whether to write the record may wait for the transaction of a stranger, who needs no lock of ours for it:
// the child's external ID is a key that anybody may use. Such records are flushed apart once a flush has met a lock.
func (r *Record) MayWait() bool { return r.Start != nil && r.Start.ExternalID != "" }

// withoutWaits returns the items of runs that wait for no stranger.
func (f *Flush) withoutWaits() *Flush {
	waits := map[uuid.UUID]bool{}
	for _, r := range f.Records {
		if r.MayWait() {
			waits[r.RunID] = true
		}
	}
	if len(waits) == 0 {
		return f
	}
	return &Flush{
		Records:  slices.DeleteFunc(f.Records, func(r *Record) bool { return waits[r.RunID] }),
		Parks:    slices.DeleteFunc(f.Parks, func(p *Park) bool { return waits[p.RunID] }),
		Finishes: slices.DeleteFunc(f.Finishes, func(e *Finish) bool { return waits[e.RunID] }),
	}
}

// undecided lists what lookAt asks for.
func (f *Flush) undecided() (runs, stepRuns []uuid.UUID, steps []string, attempts []int32) {
	for _, r := range f.Records {
		if r.Outcome == Undecided {
			runs, stepRuns = append(runs, r.RunID), append(stepRuns, r.RunID)
			steps, attempts = append(steps, r.StepID), append(attempts, int32(r.Attempt))
		}
	}
	for _, p := range f.Parks {
		if p.Outcome == Undecided {
			runs = append(runs, p.RunID)
		}
	}
	for _, e := range f.Finishes {
		if e.Outcome == Undecided {
			runs = append(runs, e.RunID)
		}
	}
	return runs, stepRuns, steps, attempts
}
