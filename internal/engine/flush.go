package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// flush writes the executions' outboxes, in one transaction, or in several if they are too large for one. Writes of an
// execution that do not fit come with the next flush, behind the other executions. See docs/architecture.md, Group
// commit.
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
	e.mu.Lock()
	failures := e.outbox.failures
	e.outbox.failures++
	e.outbox.apart = true
	e.mu.Unlock()
	s.requeue(e, outage.Backoff(failures))
}

// sendFlush writes f, which has the writes of so many executions.
func (s *Session) sendFlush(f *store.Flush, runs int) error {
	if s.intercepts.Flushed == nil {
		return s.store.Flush(s.background, f)
	}
	writes := len(f.Records) + len(f.Suspensions) + len(f.Finishes)
	begun := time.Now()
	err := s.store.Flush(s.background, f)
	s.intercepts.Flushed(runs, writes, time.Since(begun), err)
	return err
}

// settleWrites settles the taken writes by their outcomes, and requeues the executions that have more. last is that of
// write. by has sent them.
func (s *Session) settleWrites(es []*execution, last uint64, by store.Witness) {
	var ended []uuid.UUID
	var due []store.DueRun // children that were started, and suspended runs that others should claim
	var settled []*write
	var unheard bool
	for _, e := range es {
		e.mu.Lock()
		failed := e.outbox.failures > 0
		settled, unheard = e.outbox.settleLocked(settled[:0])
		e.outbox.told = e.outbox.told || unheard
		busy := e.outbox.apart
		e.acknowledgeLocked(settled, by)
		worst := store.Done
		for _, w := range settled {
			if o := w.outcome(); o == store.Lost || o == store.Unfounded {
				worst = o
			}
		}
		e.stopAfterLocked(worst) // at once: no branch may take the write for written because it left the outbox
		e.mu.Unlock()
		if failed {
			s.failures.Over(s.logger(s.ID()), flushingAlone)
		}
		progress := false
		for _, w := range settled {
			o := w.outcome()
			if worst == store.Unfounded && w.empty() {
				o = worst // what it waited for is not written
			}
			if o == store.Done && w.finish != nil {
				ended = append(ended, s.finished(e, w.finish, last)...)
			}
			if o == store.Done && w.suspension != nil && s.suspended(e.run.Queue, w.suspension) {
				due = append(due, store.DueRun{Queue: e.run.Queue, Type: e.run.Type, Version: e.run.Version})
			}
			for _, r := range w.records {
				if r.Outcome == store.Done && r.Kind == store.KindFunction && r.Status != store.Running {
					s.tally.steps.Add(1)
					progress = true
				}
				if r.Start != nil && r.Outcome == store.Done {
					due = append(due, store.DueRun{Queue: r.Start.Queue, Type: r.Start.Type, Version: r.Start.Version})
				}
			}
			w.settle(o)
		}
		if progress && e.run.CrashLoopSuspect() {
			s.endSuspect(e)
		}
		if unheard {
			s.hasNews(e)
			s.requeue(e, 0)
		} else if busy {
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
			RunID: f.RunID, Queue: e.run.Queue, Type: e.run.Type, Version: e.run.Version,
			Status: f.Status, Kind: f.ErrorKind, Age: e.age(),
		})
	}
	if f.Status != store.Cancelled { // only the table has the reason of the cancel
		s.cfg.Hints.Deliver(store.Ended{
			RunID: f.RunID, Type: e.run.Type, Status: f.Status, Output: f.Output, ErrorKind: f.ErrorKind,
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
	q := s.queues.named(queue)
	leaves := s.draining || q == nil || !q.active()
	if !leaves {
		if q.suspendedUntil.IsZero() || due.Before(q.suspendedUntil) {
			q.suspendedUntil = due
		}
		if due.Before(q.nextClaim) {
			q.wantClaim()
		}
	}
	return leaves || left <= memoryWait
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
// do without that write. If it cannot, the write is the end of the run and has nothing of the application in it: it is
// tried again.
func (s *Session) refused(e *execution, err error) (done bool) {
	e.mu.Lock()
	w := e.outbox.writes[0]
	switch {
	case w.progress != nil: // the rest may be written without it
		w.progress = nil
		e.mu.Unlock()
		e.log().Warn("kagzi: a progress may be why a write is refused, and is left out", "error", err)
		s.requeue(e, 0)
		return true
	case w.aside != nil: // perhaps because of their reasons; without its mark, a message is only found unread again
		e.outbox.writes = slices.Delete(e.outbox.writes, 0, 1)
		e.mu.Unlock()
		e.log().Error("kagzi: the database refuses to note that messages do not decode", "error", err)
		s.requeue(e, 0)
		return true
	case w.failsRun() && (w.bare || w.finish.Status == store.Cancelled):
		e.mu.Unlock()
		return false
	case w.failsRun():
		own := w.finish.Error
		w.bare = true
		w.finish.ErrorKind, w.finish.Error, w.finish.Forget = string(kind.Database), bareFailure(err), nil
		e.mu.Unlock()
		e.log().Error("kagzi: the database refuses the text of a run's failure", "failure", text.OneLine(own),
			"error", err)
		s.requeue(e, 0)
		return true
	}
	cause := fmt.Errorf("the run's end cannot be recorded: %w", err)
	if !w.ends() {
		cause = fmt.Errorf("step %q cannot be recorded: %w", w.record().StepID, err)
	}
	dropped, ends := e.refuseLocked(failure.Of(kind.Database, cause))
	e.mu.Unlock()
	e.log().Error("kagzi: the database refuses a write of a run, which fails: nothing that follows is written",
		"error", cause)
	for _, w := range dropped { // the execution has stopped: no branch takes them for written
		w.settle(store.Lost)
	}
	if ends {
		s.end(e)
	}
	s.requeue(e, 0)
	return true
}

// bareFailure returns a text that any database can store, for a failure whose own text was refused with err.
func bareFailure(err error) string {
	code := "unknown"
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		code = pe.Code
	}
	return fmt.Sprintf("the run has failed, and the database refuses the text of its failure (SQLSTATE %s): the log "+
		"of the worker has both", code)
}
