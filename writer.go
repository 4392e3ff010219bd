package kagzi

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// An item is what one execution writes in one transaction: records, and at its end a park or a finish. The items
// of all executions of a session share transactions.
type item struct {
	e       *execution
	b       *branch         // that writes; nil for the execution's end, and for what shows a step
	records []*store.Record // the last one is the item's own, if it is neither a park nor a finish
	park    *store.Park
	finish  *store.Finish

	acked   chan struct{}       // closed when the item is settled; nil if nobody waits
	then    func(store.Outcome) // called when the item is settled; nil if nothing follows
	settled store.Outcome       // how, once it is
	written chan struct{}       // closed when the item is settled; nil if it carries no decision
	place   int                 // in its execution's backlog; zero: it never was there
	// failures counts the flushes of the item alone that the database refused or that took too long. Only the flush that has
	// the item changes it.
	failures int
}

// submit hands it to the next flush, together with what was noted for it. It returns false, and does not, if the branch
// that writes has lost a race meanwhile: who decides that has taken back what the branch noted.
func (s *session) submit(it *item) bool {
	it.e.mu.Lock()
	if it.b != nil && it.b.muted() {
		it.e.mu.Unlock()
		return false
	}
	it.records = append(it.e.takeNotesLocked(it), it.records...)
	it.e.carryLocked(it)
	it.e.mu.Unlock()
	s.writer.Add(it)
	return true
}

// record writes one attempt of a step and returns the row that stands in the table: the one given, or an older
// result. It exits the goroutine if the lease is lost.
func (b *branch) record(r *store.Record) *store.StepRow {
	b.recordUnless(r, store.Done)
	return &r.StepRow
}

// recordUnless is record that returns with another outcome than Done, too. It is Undecided if the branch has lost a race.
func (b *branch) recordUnless(r *store.Record, other store.Outcome) store.Outcome {
	it := &item{e: b.e, b: b, records: []*store.Record{r}, acked: make(chan struct{})}
	if !b.e.s.submit(it) {
		return store.Undecided // nobody asks for it any more
	}
	<-it.acked
	if it.settled != store.Done && it.settled != other {
		b.e.end(endLost, ErrLeaseLost) // unless there is another reason already
		runtime.Goexit()
	}
	return it.settled
}

// starts submits the start of a child, or its end, without waiting for the write. The execution ends after it.
func (b *branch) starts(r *store.Record) {
	e := b.e
	e.mu.Lock()
	e.starting++
	e.mu.Unlock()
	it := &item{e: e, b: b, records: []*store.Record{r}}
	it.then = func(store.Outcome) {
		e.mu.Lock()
		e.starting--
		then := e.afterStarts
		if e.starting > 0 || then == nil {
			then = func() {}
		} else {
			e.afterStarts = nil
		}
		e.mu.Unlock()
		then()
	}
	if !e.s.submit(it) {
		it.settle(store.Lost)
	}
}

// show writes that an attempt of a step is under way.
func (e *execution) show(r *store.Record) { e.s.submit(&item{e: e, records: []*store.Record{r}}) }

// newRecord prepares a record of attempt number attempt, in a series that began with first.
func (e *execution) newRecord(id, kind, status string, attempt, first int) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{RunID: e.run.RunID, StepID: id, Attempt: attempt, FirstAttempt: first, RunAttempt: e.attempt, Status: status, Kind: kind},
		Lease:   e.run.Lease, Worker: e.s.workerID(), Wake: -1,
	}
}

func (it *item) size() int {
	n := 200
	for _, r := range it.records {
		n += 200 + len(r.Output) + len(r.Error)
		if r.Start != nil {
			n += 200 + len(r.Start.Input)
		}
	}
	if it.finish != nil {
		n += len(it.finish.Output) + len(it.finish.Error)
	}
	return n
}

// record is the record that the item is about.
func (it *item) record() *store.Record { return it.records[len(it.records)-1] }

func (it *item) outcome() store.Outcome {
	switch {
	case it.park != nil:
		return it.park.Outcome
	case it.finish != nil:
		return it.finish.Outcome
	case len(it.records) == 0: // somebody else has written what was noted
		return store.Done
	default:
		return it.record().Outcome
	}
}

// settle tells who waits.
func (it *item) settle(o store.Outcome) {
	it.settled = o
	it.e.overcome(it)
	if it.written != nil {
		close(it.written)
	}
	if it.acked != nil {
		close(it.acked)
	}
	if it.then != nil {
		it.then(o)
	}
}

// flush writes items in one transaction. While the database is away it tries again: what an earlier try did
// counts as done. It returns when every item is settled or waits for its next flush.
func (s *session) flush(items []*item) {
	last := s.w.client.results.last()
	for failures := 0; ; failures++ {
		if items = s.writable(items); len(items) == 0 {
			return
		}
		err := s.write(items, last)
		if err != nil && mayBeOfOne(err, failures) {
			items, err = s.flushApart(items, err, last)
		}
		if err == nil {
			return
		}
		s.databaseTrouble(err)
		s.pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
	}
}

// writable returns the items that are to be written now, and settles or puts off the others.
func (s *session) writable(items []*item) []*item { return latest(s.dropEnded(withoutBacklog(items))) }

// write is one try to write items. last is the last who waited for a result before the first try.
func (s *session) write(items []*item, last uint64) error {
	s.failpoint("before flush", uuid.Nil)
	f := flushOf(items)
	err := s.store.Flush(s.background, f)
	s.failpoint("after flush", uuid.Nil)
	if err != nil {
		return err
	}
	s.outage.end()
	s.troubles.over(s.logger(s.workerID()), flushing)
	if slices.ContainsFunc(items, func(it *item) bool { return it.failures > 0 }) {
		s.troubles.over(s.logger(s.workerID()), flushingAlone)
	}
	s.settleAll(items, last)
	s.w.client.wakeDue(s.noWait, f.Woken)
	if len(f.Step) > 0 {
		s.unfinished.Go(func() { s.w.client.compensate(s.background, f.Step) })
	}
	return nil
}

// The troubles with writing, as people read them.
const (
	flushing      = "flush" // as the store names it in its errors
	flushingAlone = "flush what some runs have recorded"
)

const (
	// mostWholeFlushes is how often a flush that meets a lock, or conflicts, is tried as a whole.
	mostWholeFlushes = 3

	// mostInVain is how many items in a row may fail alone before that is taken for the database's trouble.
	mostInVain = 3
)

// mayBeOfOne reports whether a flush that has failed with err, after so many failures, is to go on in parts: as a whole it
// would fail again, for a reason that may lie with one of the items.
func mayBeOfOne(err error, failures int) bool {
	switch store.Classify(err) {
	case store.ClassLocked, store.ClassConflict:
		return failures+1 >= mostWholeFlushes
	case store.ClassUnable, store.ClassRefused, store.ClassForbidden, store.ClassOther, store.ClassLate:
		return true
	}
	return false
}

// flushApart writes items, which failed together with err, in halves, down to one. What fails alone comes again later, so
// that it holds up no other. If one item after the other fails, as on a full disk, or the database does not answer any
// more, it returns what is left, to be written as a whole after a pause, and the error.
func (s *session) flushApart(items []*item, err error, last uint64) ([]*item, error) {
	var rest [][]*item // the next one is last
	for inVain := 0; ; {
		switch n := len(items); {
		case err == nil:
			inVain = 0
		case s.closing.Load() || !mayBeOfOne(err, mostWholeFlushes):
			return leftOf(items, rest), err
		case n > 1:
			rest = append(rest, items[n/2:], items[:n/2])
		case store.Refused(err):
			s.refused(items[0], err)
			inVain = 0
		default:
			s.putOffAlone(items[0], err)
			inVain++
		}
		for items = nil; len(items) == 0; {
			if len(rest) == 0 {
				return nil, nil
			}
			if inVain == mostInVain {
				return leftOf(nil, rest), err
			}
			items, rest = s.writable(rest[len(rest)-1]), rest[:len(rest)-1]
		}
		err = s.write(items, last)
	}
}

// leftOf returns first, and the rest in its order.
func leftOf(first []*item, rest [][]*item) []*item {
	slices.Reverse(rest)
	return slices.Concat(first, slices.Concat(rest...))
}

// putOffAlone lets an item that has failed alone come again, after a pause that grows. People are told, unless the database
// does not answer.
func (s *session) putOffAlone(it *item, err error) {
	if store.Away(err) && !store.Answered(err) {
		s.databaseTrouble(err)
	} else {
		s.databaseTroubleWith(flushingAlone, err)
	}
	it.failures++
	it.e.putOffFor(it, troublePause(it.failures-1))
}

// pause waits for d, or until what cannot be written is given up.
func (s *session) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closed:
	}
}

func flushOf(items []*item) *store.Flush {
	f := &store.Flush{}
	for _, it := range items {
		f.Records = append(f.Records, it.records...)
		if it.park != nil {
			f.Parks = append(f.Parks, it.park)
		}
		if it.finish != nil {
			f.Finishes = append(f.Finishes, it.finish)
		}
	}
	return f
}

// settleAll tells each item's outcome, and lets the busy ones come again. last is the last who waited for a result
// when the items began to be written.
func (s *session) settleAll(items []*item, last uint64) {
	var ended []uuid.UUID
	due := map[runKind]int{}  // parked runs that others should look at, by type
	var started []store.Woken // children
	for _, it := range items {
		o := it.outcome()
		if o == store.Busy {
			it.e.putOff(it)
			continue
		}
		if o == store.Lost {
			it.e.end(endLost, ErrLeaseLost)
		}
		if o == store.Done && it.finish != nil {
			ended = append(ended, s.finished(it, last)...)
		}
		if o == store.Done && it.park != nil && s.parked(it.park) {
			due[runKind{it.e.run.Type, it.e.run.Version}]++
		}
		for _, r := range it.records {
			if r.Start != nil && r.Outcome == store.Done {
				started = append(started, store.Woken{Queue: r.Start.Queue, Type: r.Start.Type, Version: r.Start.Version})
			}
		}
		it.settle(o)
	}
	s.w.client.wakeDue(s.noWait, started)
	if len(ended) > 0 {
		s.w.client.tell(ended)
		s.w.client.publisher.Run(s.noWait, s.store.Namespace(), ended...)
	}
	for k, n := range due {
		s.w.client.wakeWork(s.noWait, s.w.cfg.Queue, k.typ, k.version, n)
	}
}

type runKind struct {
	typ     string
	version int
}

// finished gives a run's end to those in this process who wait for it, and returns the runs to announce to others.
func (s *session) finished(it *item, last uint64) []uuid.UUID {
	f := it.finish
	switch f.Status {
	case store.Completed:
		s.completed.Add(1)
	case store.Cancelled:
		it.e.log().Info("kagzi: run was cancelled", "compensates", f.Compensating)
	default:
		s.failed.Add(1)
		it.e.log().Warn("kagzi: run failed", "kind", f.ErrorKind, "error", f.Error, "compensates", f.Compensating)
	}
	if f.Compensating {
		return nil
	}
	if f.Status != store.Cancelled { // the table has the reason that the cancel was given
		s.w.client.results.deliver(ending{Ended: store.Ended{
			RunID: f.RunID, Type: it.e.run.Type, Status: f.Status, Output: f.Output, ErrorKind: f.ErrorKind, Error: f.Error,
		}}, last)
	}
	if f.Parent == uuid.Nil {
		return []uuid.UUID{f.RunID}
	}
	return []uuid.UUID{f.RunID, f.Parent}
}

// parked makes the claim loop look when the run becomes due, if that is before its next look, and reports whether
// others, too, should look: because it is due about now (the estimate of the database's clock lags, so a run that
// is due may seem not to be), or because this worker will not be there when it is.
func (s *session) parked(p *store.Park) (tell bool) {
	if p.AvailableAt.IsZero() {
		return false
	}
	left := p.AvailableAt.Sub(s.now())
	s.mu.Lock()
	sooner := time.Now().Add(left).Before(s.nextLook)
	draining := s.draining
	s.mu.Unlock()
	if sooner {
		signal(s.wake)
	}
	return draining || left <= memoryWait
}

// dropEnded settles the items that need not, or cannot, be written any more: the worker is closing and the
// database away, or the lease was lost meanwhile.
func (s *session) dropEnded(items []*item) []*item {
	kept := items[:0:0]
	for _, it := range items {
		if s.closing.Load() || it.e.lost() {
			it.settle(store.Lost)
		} else {
			kept = append(kept, it)
		}
	}
	return kept
}

func (e *execution) lost() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason == endLost || e.superseded
}

// refused fails the run of an item that the server does not take: a record fails its step's run; an end that
// cannot be written becomes a failure without what was refused.
func (s *session) refused(it *item, err error) {
	if it.park == nil && it.finish == nil {
		it.e.fail(kinded{KindDatabase, fmt.Errorf("step %q cannot be recorded: %w", it.record().StepID, err)})
		it.settle(store.Lost)
		return
	}
	if it.finish != nil && it.finish.Output == nil {
		it.e.log().Error("kagzi: the failure of a run cannot be written", "error", err)
		it.settle(store.Lost)
		return
	}
	it.e.overcome(it)
	text := errorText(fmt.Errorf("the run's end cannot be recorded: %w", err))
	s.submit(&item{e: it.e, then: it.then, finish: it.e.newFinish(store.Failed, KindDatabase, text)})
}

// latest keeps of the records of one attempt of a step one: a statement cannot write a row twice, and an attempt
// that was to be shown as running may have ended by now.
func latest(items []*item) []*item {
	shown := false
	for _, it := range items {
		for _, r := range it.records {
			shown = shown || r.Status == store.Running
		}
	}
	if !shown {
		return items
	}
	type key struct {
		run     uuid.UUID
		step    string
		attempt int
	}
	last := map[key]*store.Record{}
	for _, it := range items {
		for _, r := range it.records {
			k := key{r.RunID, r.StepID, r.Attempt}
			if r.Status != store.Running || last[k] == nil {
				last[k] = r
			}
		}
	}
	kept := items[:0:0]
	for _, it := range items {
		it.records = slices.DeleteFunc(it.records, func(r *store.Record) bool {
			return last[key{r.RunID, r.StepID, r.Attempt}] != r
		})
		if len(it.records) == 0 && it.park == nil && it.finish == nil {
			it.settle(store.Done)
			continue
		}
		kept = append(kept, it)
	}
	return kept
}
