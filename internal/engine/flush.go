package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// flush writes what the executions have in their outboxes: in one transaction, or in several if it is too much. What does not
// fit of an execution's comes with the next flush, after the others.
func (s *Session) flush(es []*execution) {
	for len(es) > 0 {
		n, writes, bytes := 0, 0, 0
		for ; n < len(es); n++ {
			before := writes
			if writes, bytes = es[n].take(writes, bytes); writes == before && n > 0 {
				break
			}
		}
		s.flushTogether(es[:n])
		es = es[n:]
	}
}

// flushTogether writes in one transaction what was taken from the executions' outboxes. While the database is away it
// tries again: what an earlier try did counts as done. It returns when each execution is settled or comes again.
func (s *Session) flushTogether(es []*execution) {
	last := s.cfg.Hints.LastWaiter()
	for failures := 0; ; failures++ {
		if es = s.withoutEnded(es); len(es) == 0 {
			return
		}
		err := s.write(es, last)
		if err != nil && maySplit(err, failures) {
			es, err = s.flushInHalves(es, err, last)
		}
		if err == nil {
			return
		}
		s.databaseTrouble(err)
		s.pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
	}
}

// write is one try to write what was taken. last is the last who waited for a result before the first try.
func (s *Session) write(es []*execution, last uint64) error {
	f := &store.Flush{Records: make([]*store.Record, 0, len(es))}
	for _, e := range es {
		e.addTo(f)
	}
	if len(f.Records)+len(f.Suspensions)+len(f.Finishes) > 0 {
		s.failpoint("before flush", uuid.Nil)
		err := s.store.Flush(s.background, f)
		s.failpoint("after flush", uuid.Nil)
		if err != nil {
			return err
		}
		s.outage.End()
		s.failures.Over(s.logger(s.ID()), flushing)
	}
	s.settleWrites(es, last)
	_ = s.cfg.Hints.Due(s.noWait, nil, f.Woken...) // fails only in a transaction
	if len(f.Step) > 0 {
		s.unfinished.Go(func() { s.cfg.Hints.Compensate(s.background, f.Step) })
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

	// mostInVain is how many executions in a row may fail alone before that is taken for the database's trouble.
	mostLoneFailures = 3
)

// maySplit reports whether a flush that has failed with err, after so many failures, is to go on in parts: as a whole it
// would fail again, for a reason that may lie with one of the executions.
func maySplit(err error, failures int) bool {
	switch store.Classify(err) {
	case store.ClassLocked, store.ClassConflict:
		return failures+1 >= mostWholeFlushes
	case store.ClassUnable, store.ClassRefused, store.ClassForbidden, store.ClassOther, store.ClassLate:
		return true
	}
	return false
}

// flushInHalves writes what failed together with err in halves, down to one execution, and to one write of it. What fails
// alone comes again later, so that it holds up no other. If one after the other fails, as on a full disk, or the database
// does not answer any more, it returns what is left, to be written together after a pause, and the error.
func (s *Session) flushInHalves(es []*execution, err error, last uint64) ([]*execution, error) {
	var rest [][]*execution // the next one is last
	for loneFailures := 0; ; err = s.write(es, last) {
		switch n := len(es); {
		case err == nil:
			loneFailures = 0
		case s.closing.Load() || !maySplit(err, mostWholeFlushes):
			return leftOf(es, rest), err
		case n > 1:
			rest = append(rest, es[n/2:], es[:n/2])
		case es[0].takeFewer():
			continue
		case store.Refused(err):
			s.refused(es[0], err)
			loneFailures = 0
		default:
			s.requeueFailed(es[0], err)
			loneFailures++
		}
		for es = nil; len(es) == 0; {
			if len(rest) == 0 {
				return nil, nil
			}
			if loneFailures == mostLoneFailures {
				return leftOf(nil, rest), err
			}
			es, rest = s.withoutEnded(rest[len(rest)-1]), rest[:len(rest)-1]
		}
	}
}

// leftOf returns first, and the rest in its order.
func leftOf(first []*execution, rest [][]*execution) []*execution {
	slices.Reverse(rest)
	return slices.Concat(first, slices.Concat(rest...))
}

// requeueFailed lets an execution with which alone a flush has failed come again, after a pause that grows. People are told,
// unless the database does not answer.
func (s *Session) requeueFailed(e *execution, err error) {
	if store.Unavailable(err) && !store.Answered(err) {
		s.databaseTrouble(err)
	} else {
		s.databaseTroubleWith(flushingAlone, err)
	}
	e.mu.Lock()
	failures := e.outbox.failures
	e.outbox.failures++
	e.outbox.apart = true
	e.mu.Unlock()
	s.requeue(e, outage.Backoff(failures))
}

// settleWrites tells the outcomes of what was taken, and lets the executions that have more come again. last is the last who
// waited for a result when the flush began.
func (s *Session) settleWrites(es []*execution, last uint64) {
	var ended []uuid.UUID
	var due []store.DueRun // children that were started, and suspended runs that others should claim
	var settled []*write
	for _, e := range es {
		e.mu.Lock()
		failed := e.outbox.failures > 0
		settled = e.outbox.settleLocked(settled[:0])
		busy := e.outbox.apart
		e.mu.Unlock()
		if failed {
			s.failures.Over(s.logger(s.ID()), flushingAlone)
		}
		for _, w := range settled {
			o := w.outcome()
			if o == store.Lost {
				e.stop(stopLost, ErrLeaseLost)
			}
			if o == store.Done && w.finish != nil {
				ended = append(ended, s.finished(e, w.finish, last)...)
			}
			if o == store.Done && w.suspension != nil && s.suspended(w.suspension) {
				due = append(due, store.DueRun{Queue: s.cfg.Queue, Type: e.run.Type, Version: e.run.Version})
			}
			for _, r := range w.records {
				if r.Start != nil && r.Outcome == store.Done {
					due = append(due, store.DueRun{Queue: r.Start.Queue, Type: r.Start.Type, Version: r.Start.Version})
				}
			}
			w.settle(o)
		}
		if busy {
			s.requeue(e, busyPause)
		} else {
			s.requeue(e, 0)
		}
	}
	if len(ended) > 0 {
		s.cfg.Hints.Ended(s.noWait, ended)
	}
	_ = s.cfg.Hints.Due(s.noWait, nil, due...) // fails only in a transaction
}

// finished gives a run's end to those in this process who wait for it, and returns the runs to announce to others.
func (s *Session) finished(e *execution, f *store.Finish, last uint64) []uuid.UUID {
	switch f.Status {
	case store.Completed:
		s.completed.Add(1)
	case store.Cancelled:
		e.log().Info("kagzi: run was cancelled", "compensates", f.Compensating)
	default:
		s.failed.Add(1)
		e.log().Warn("kagzi: run failed", "kind", f.ErrorKind, "error", f.Error, "compensates", f.Compensating)
	}
	if f.Compensating {
		return nil
	}
	if f.Status != store.Cancelled { // the table has the reason that the cancel was given
		s.cfg.Hints.Deliver(store.Ended{
			RunID: f.RunID, Type: e.run.Type, Status: f.Status, Output: f.Output, ErrorKind: f.ErrorKind, Error: f.Error,
		}, last)
	}
	if f.Parent == uuid.Nil {
		return []uuid.UUID{f.RunID}
	}
	return []uuid.UUID{f.RunID, f.Parent}
}

// suspended makes the claim loop claim when the run becomes due, if that is before its next claim, and reports whether
// others should, too: because it is due about now (the estimate of the database's clock lags, so a run that
// is due may seem not to be), or because this worker will not be there when it is.
func (s *Session) suspended(p *store.Suspension) (announce bool) {
	if p.AvailableAt.IsZero() {
		return false
	}
	left := p.AvailableAt.Sub(s.now())
	s.mu.Lock()
	sooner := time.Now().Add(left).Before(s.nextClaim)
	draining := s.draining
	s.mu.Unlock()
	if sooner {
		goroutine.Signal(s.wake)
	}
	return draining || left <= memoryWait
}

// withoutEnded returns the executions that can be written. The others have their writes dropped: the worker is closing
// and the database away, or the lease was lost meanwhile.
func (s *Session) withoutEnded(es []*execution) []*execution {
	ended := func(e *execution) bool { return s.closing.Load() || e.lost() }
	if !slices.ContainsFunc(es, ended) { // as nearly always
		return es
	}
	kept := es[:0:0]
	for _, e := range es {
		if ended(e) {
			s.dropWrites(e)
		} else {
			kept = append(kept, e)
		}
	}
	return kept
}

// refused fails the run of an execution whose first write the server does not take: a record fails its step's run; an end
// that cannot be written becomes a failure without what was refused.
func (s *Session) refused(e *execution, err error) {
	e.mu.Lock()
	w := e.outbox.writes[0]
	if end := w.suspension != nil || w.finish != nil && w.finish.Output != nil; end {
		text := failure.Text(fmt.Errorf("the run's end cannot be recorded: %w", err))
		w.records, w.suspension, w.finish = nil, nil, e.newFinish(store.Failed, kind.Database, text)
		e.mu.Unlock()
		s.requeue(e, 0)
		return
	}
	e.outbox.writes = slices.Delete(e.outbox.writes, 0, 1)
	e.mu.Unlock()
	if w.finish != nil {
		e.log().Error("kagzi: the failure of a run cannot be written", "error", err)
	} else {
		e.fail(failure.Of(kind.Database, fmt.Errorf("step %q cannot be recorded: %w", w.record().StepID, err)))
	}
	w.settle(store.Lost)
	s.requeue(e, 0)
}
