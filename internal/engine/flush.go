package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// flush writes the executions' outboxes, in one transaction, or in several if they are too large for one. Writes of an
// execution that do not fit come with the next flush, behind the other executions. See doc_flush.go.
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

// flushTogether writes, in one transaction, the writes taken from the executions' outboxes. While the database is away
// it repeats that: the statements find what an earlier try has written. It returns when each execution is settled or
// requeued.
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

// write is one try of flushTogether. last is the number of the last waiter for a result before the first try: later
// ones do not get these ends from memory.
func (s *Session) write(es []*execution, last uint64) error {
	f := &store.Flush{Records: make([]*store.Record, 0, len(es))}
	for _, e := range es {
		e.addTo(f)
	}
	if len(f.Records)+len(f.Suspensions)+len(f.Finishes)+len(f.Progress)+len(f.Aside) > 0 {
		s.failpoint("before flush", uuid.Nil)
		err := s.sendFlush(f, len(es))
		s.failpoint("after flush", uuid.Nil)
		if err != nil {
			return err
		}
		s.outage.End()
		s.failures.Over(s.logger(s.ID()), flushing)
	}
	s.settleWrites(es, last, f.By)
	_ = s.cfg.Hints.Due(s.noWait, nil, f.Woken...) // fails only in a transaction
	if len(f.Step) > 0 {
		s.unfinished.Go(func() { s.cfg.Hints.Compensate(s.background, f.Step) })
	}
	return nil
}

// Operations that fail, as logs and health reports name them.
const (
	flushing      = "flush" // as the store names it in its errors
	flushingAlone = "flush what some runs have recorded"
)

const (
	// mostWholeFlushes is how often a flush that meets a lock, or conflicts, is tried as a whole.
	mostWholeFlushes = 3

	// mostLoneFailures is how many executions in a row may fail alone before the database counts as the cause.
	mostLoneFailures = 3
)

// maySplit reports whether a flush that has failed with err, after so many failures, goes on in parts: it would fail
// again as a whole, and the reason may lie with one of the executions.
func maySplit(err error, failures int) bool {
	switch pg.Classify(err) {
	case pg.ClassLocked, pg.ClassConflict:
		return failures+1 >= mostWholeFlushes
	case pg.ClassUnable, pg.ClassRefused, pg.ClassForbidden, pg.ClassOther, pg.ClassLate:
		return true
	}
	return false
}

// flushInHalves repeats a flush that has failed with err in halves, down to one execution, and to one write of it. A
// write that fails alone is requeued, so that it holds up no other. If one after the other fails, as on a full disk, or
// if the database stops answering, it returns the error and the rest, which the caller writes together after a pause.
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
		case pg.Refused(err) && s.refused(es[0], err):
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

// leftOf returns first and the rest, in their order.
func leftOf(first []*execution, rest [][]*execution) []*execution {
	slices.Reverse(rest)
	return slices.Concat(first, slices.Concat(rest...))
}

// requeueFailed requeues an execution that has failed alone, after a growing pause. It reports the failure as one of
// some runs, unless the database does not answer.
func (s *Session) requeueFailed(e *execution, err error) {
	if pg.Unavailable(err) && !pg.Answered(err) {
		s.databaseTrouble(err)
	} else {
		s.databaseTroubleWith(flushingAlone, err)
	}
	s.requeue(e, outage.Backoff(e.failedAlone()))
}

// sendFlush writes f, which has the writes of so many executions.
func (s *Session) sendFlush(f *store.Flush, runs int) error {
	if s.intercepts.Flushed == nil {
		return s.store.Records.Flush(s.background, f)
	}
	writes := len(f.Records) + len(f.Suspensions) + len(f.Finishes)
	begun := time.Now()
	err := s.store.Records.Flush(s.background, f)
	s.intercepts.Flushed(runs, writes, time.Since(begun), err)
	return err
}

// settleWrites settles the taken writes by their outcomes, and requeues the executions that have more. last is that of
// write. by has sent them.
func (s *Session) settleWrites(es []*execution, last uint64, by store.Witness) {
	var ended []uuid.UUID
	var due []store.DueRun // children that were started, and suspended runs that others should claim
	var settled []*write
	for _, e := range es {
		now := e.settleTaken(settled[:0], by)
		settled = now.writes
		if now.recovered {
			s.failures.Over(s.logger(s.ID()), flushingAlone)
		}
		if now.finish != nil {
			ended = append(ended, s.finished(e, now.finish, last)...)
		}
		if now.suspended != nil && s.suspended(e.Queue, now.suspended) {
			due = append(due, store.DueRun{Queue: e.Queue, Type: e.Type, Version: e.Version})
		}
		s.tally.steps.Add(int64(now.steps))
		for _, r := range now.started {
			due = append(due, store.DueRun{Queue: r.Queue, Type: r.Type, Version: r.Version})
		}
		now.tell()
		if now.steps > 0 && e.CrashLoopSuspect() {
			s.endSuspect(e)
		}
		if now.unheard {
			s.hasNews(e)
			s.requeue(e, 0)
		} else if now.busy {
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

// finished delivers a run's end to the waiters in this process, and returns the runs to announce to other processes.
func (s *Session) finished(e *execution, f *store.Finish, last uint64) []uuid.UUID {
	switch f.Status {
	case store.Completed:
		s.tally.completed.Add(1)
	case store.Cancelled:
		e.log().Info("kagzi: run was cancelled", "compensates", f.Compensating)
	default:
		s.tally.failed.Add(1)
		e.log().Warn("kagzi: run failed", "kind", f.ErrorKind, "error", f.Error, "compensates", f.Compensating)
	}
	if f.Compensating {
		return nil
	}
	if told := s.cfg.Hints.OnEnd; told != nil {
		told(store.EndedRun{
			RunID: f.RunID, Queue: e.Queue, Type: e.Type, Version: e.Version,
			Status: f.Status, Kind: f.ErrorKind, Age: e.age(),
		})
	}
	if f.Status != store.Cancelled { // only the table has the reason of the cancel
		s.cfg.Hints.Deliver(store.Ended{
			RunID: f.RunID, Type: e.Type, Status: f.Status, Output: f.Output, ErrorKind: f.ErrorKind,
			Error: f.Error,
		}, last)
	}
	if f.Parent == uuid.Nil {
		return []uuid.UUID{f.RunID}
	}
	return []uuid.UUID{f.RunID, f.Parent}
}

// suspended wakes the claim loop if the run becomes due before the next claim. It reports whether others should be
// notified, too: because the run is due about now (the estimate of the database's clock lags, so a run that is due may
// seem not to be), or because this worker will not be there when it is.
func (s *Session) suspended(queue string, p *store.Suspension) (announce bool) {
	if p.AvailableAt.IsZero() {
		return false
	}
	left := p.AvailableAt.Sub(s.now())
	due := time.Now().Add(left)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || !s.suspendedLocked(queue, due) || left <= memoryWait
}

// withoutEnded returns the executions that can still be written. It drops the writes of the others: the worker is
// closing and the database away, or the lease is lost.
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

// refused is called when the server refuses the execution's first write by itself. It reports whether the execution can
// do without that write. If it cannot, the write is tried again.
func (s *Session) refused(e *execution, err error) (done bool) {
	done, ends := e.doWithout(err)
	if ends {
		e.makeEnd()
	}
	if done {
		s.requeue(e, 0)
	}
	return done
}
