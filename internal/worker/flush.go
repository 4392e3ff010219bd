package worker

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// flush writes the runs' outboxes, in one transaction, or in several if they are too large for one. Writes of an
// execution that do not fit come with the next flush, behind the other executions. See doc_flush.go.
func (fl *flusher) flush(hs []*held) {
	for len(hs) > 0 {
		n, writes, bytes := 0, 0, 0
		for ; n < len(hs); n++ {
			before := writes
			if writes, bytes = hs[n].take(writes, bytes); writes == before && n > 0 {
				break
			}
		}
		fl.flushTogether(hs[:n])
		hs = hs[n:]
	}
}

// flushTogether writes, in one transaction, the writes taken from the runs' outboxes. While the database is away
// it repeats that: the statements find what an earlier try has written. It returns when each execution is settled or
// requeued.
func (fl *flusher) flushTogether(hs []*held) {
	last := fl.hints.LastWaiter()
	for failures := 0; ; failures++ {
		var err error
		if hs, err = fl.write(hs, last); err != nil && maySplit(err, failures) {
			hs, err = fl.flushInHalves(hs, err, last)
		}
		if err == nil || len(hs) == 0 {
			return
		}
		fl.Trouble(err)
		fl.Pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
	}
}

// write is one try of flushTogether. It leaves out the runs whose writes may not be made any more, and returns the
// others. last is the number of the last waiter for a result before the first try: later ones do not get these ends
// from memory.
func (fl *flusher) write(hs []*held, last uint64) ([]*held, error) {
	f := &store.Flush{Records: make([]*store.Record, 0, len(hs))}
	if hs = fl.addTo(f, hs); len(hs) == 0 {
		return nil, nil
	}
	if len(f.Records)+len(f.Suspensions)+len(f.Finishes)+len(f.Progress)+len(f.Aside) > 0 {
		fl.Failpoint("before flush", uuid.Nil)
		begun := time.Now()
		err := fl.Store.Records.Flush(context.Background(), f)
		fl.tell(f, len(hs), begun, err)
		fl.Failpoint("after flush", uuid.Nil)
		if err != nil {
			return hs, err
		}
		fl.Away.End()
		fl.Failing.Over(fl.Logger(fl.ID()), flushing)
	}
	fl.settleWrites(hs, last, f.By)
	_ = fl.hints.Due(standing.NoWait, nil, f.Woken...) // fails only in a transaction
	if len(f.Step) > 0 {
		fl.steps.Go(func() { fl.hints.Compensate(context.Background(), f.Step) })
	}
	return hs, nil
}

// addTo adds the taken writes of the runs to f. It returns the runs without those that have dropped their writes,
// because these may not be made any more: the worker is closing and the database away, or the lease is lost.
func (fl *flusher) addTo(f *store.Flush, hs []*held) []*held {
	kept := hs
	for i, h := range hs {
		added := h.AddTo(f)
		switch {
		case !added && len(kept) == len(hs): // the first of them
			kept = slices.Clone(hs[:i])
		case added && len(kept) < len(hs):
			kept = append(kept, h)
		}
		if !added {
			fl.requeue(h, 0)
		}
	}
	return kept
}

// Operations that fail, as logs and health reports name them.
const (
	flushing      = "flush" // as the store names it in its errors
	flushingAlone = "flush what some runs have recorded"
)

const (
	// busyPause is how long a run's writes pause after they met a lock of another transaction.
	busyPause = 100 * time.Millisecond

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
func (fl *flusher) flushInHalves(hs []*held, err error, last uint64) ([]*held, error) {
	loneFailures := 0
	var halving store.Halving[*held]
	halving = store.Halving[*held]{
		Try: func(some []*held) ([]*held, error) {
			left, err := fl.write(some, last)
			if err == nil && len(left) > 0 {
				loneFailures = 0
			}
			return left, err
		},
		Divides: func(err error) bool { return !fl.GivesUp() && maySplit(err, mostWholeFlushes) },
		Alone: func(h *held, err error) ([]*held, error) {
			switch {
			case h.takeFewer():
				return halving.Send([]*held{h})
			case pg.Refused(err) && fl.refused(h, err):
				loneFailures = 0
			default:
				fl.requeueFailed(h, err)
				if loneFailures++; loneFailures == mostLoneFailures {
					return nil, err
				}
			}
			return nil, nil
		},
	}
	return halving.Divide(hs, err)
}

// requeueFailed requeues a run that has failed alone, after a growing pause. It reports the failure as one of
// some runs, unless the database does not answer.
func (fl *flusher) requeueFailed(h *held, err error) {
	if pg.Unavailable(err) && !pg.Answered(err) {
		fl.Trouble(err)
	} else {
		fl.TroubleWith(flushingAlone, err)
	}
	fl.requeue(h, outage.Backoff(h.failedAlone()))
}

// tell tells the application of f, which has the writes of so many executions, and of its error.
func (fl *flusher) tell(f *store.Flush, runs int, begun time.Time, err error) {
	if fl.told != nil {
		fl.told(runs, len(f.Records)+len(f.Suspensions)+len(f.Finishes), time.Since(begun), err)
	}
}

// settleWrites settles the taken writes by their outcomes, and requeues the runs that have more. last is that of write.
// by has sent them.
func (fl *flusher) settleWrites(hs []*held, last uint64, by store.Witness) {
	w := written{by: fl, last: last}
	for _, h := range hs {
		w.of, w.steps = h, 0
		busy, unheard := h.Settle(by, &w)
		if h.flushed(busy) {
			fl.Failing.Over(fl.Logger(fl.ID()), flushingAlone)
		}
		if w.steps > 0 && h.CrashLoopSuspect() {
			fl.by.endSuspect(h)
		}
		if unheard {
			fl.by.hasNews(h)
			fl.requeue(h, 0)
		} else if busy {
			fl.requeue(h, busyPause)
		} else {
			fl.requeue(h, 0)
		}
	}
	if len(w.ended) > 0 {
		fl.hints.Ended(standing.NoWait, w.ended, w.awaited)
	}
	if len(w.replied) > 0 {
		fl.hints.Replied(standing.NoWait, w.replied)
	}
	fl.hints.Left(w.left)
	if len(w.valued) > 0 {
		fl.hints.Valued(standing.NoWait, w.valued)
	}
	_ = fl.hints.Due(standing.NoWait, nil, w.due...) // fails only in a transaction
}

// A written hears what a flush has written: it tells the session, the waiters in this process, and, in the end, other
// processes.
type written struct {
	by      *flusher
	of      *held  // the run that is settled
	last    uint64 // see flusher.write
	steps   int    // of the run
	ended   []uuid.UUID
	awaited []uuid.UUID // parents of ended, and those of ended that queued runs may wait for
	replied []store.Answer
	left    []store.Answer // requests of runs that have ended
	valued  []uuid.UUID    // runs that have set values
	due     []store.DueRun // children that were started, and suspended runs that others should claim
}

// Stepped counts the ends of steps.
func (w *written) Stepped(steps int) {
	w.steps += steps
	w.by.tally.stepped(steps)
}

// Replied notes an answer to deliver and to announce.
func (w *written) Replied(r *store.Record) { w.replied = append(w.replied, store.ReplyOf(r)) }

// Left notes requests whose askers are told that the run has ended.
func (w *written) Left(open []store.Answer) { w.left = append(w.left, open...) }

// Valued notes a run to announce.
func (w *written) Valued(run uuid.UUID) { w.valued = append(w.valued, run) }

// Started notes a child to announce.
func (w *written) Started(r *store.NewRun) {
	w.due = append(w.due, store.DueRun{Queue: r.Queue, Type: r.Type, Version: r.Version})
}

// Suspended notes a suspended run that others should claim.
func (w *written) Suspended(p *store.Suspension) {
	if h := w.of; w.by.by.suspended(h.Queue, h.Key.Name != "", p) {
		due := store.DueRun{Queue: h.Queue, Type: h.Type, Version: h.Version}
		if p.Next != nil {
			due.Version = p.Next.Version
		}
		w.due = append(w.due, due)
	}
}

// Finished delivers the run's end to the waiters in this process, and notes it for other processes.
func (w *written) Finished(f *store.Finish) {
	fl, h := w.by, w.of
	fl.tally.ended(f.Status)
	if f.Compensating {
		return
	}
	if told := fl.hints.OnEnd; told != nil {
		told(store.EndedRun{
			RunID: f.RunID, Queue: h.Queue, Type: h.Type, Version: h.Version,
			Status: f.Status, Kind: f.ErrorKind, Age: max(0, fl.Now().Sub(h.CreatedAt)),
		})
	}
	if f.Status != store.Cancelled { // only the table has the reason of the cancel
		fl.hints.Deliver(store.Ended{
			RunID: f.RunID, Type: h.Type, Status: f.Status, Output: f.Output, ErrorKind: f.ErrorKind,
			Error: f.Error,
		}, w.last)
	}
	w.ended = append(w.ended, f.RunID)
	if f.Parent != uuid.Nil {
		w.awaited = append(w.awaited, f.Parent)
	}
	if f.Scheduled {
		w.awaited = append(w.awaited, f.RunID)
	}
}

// refused is called when the server refuses the run's first write by itself. It reports whether the run can do without
// that write. If it cannot, the write is tried again.
func (fl *flusher) refused(h *held, err error) (done bool) {
	if done = h.Refused(err); done {
		fl.requeue(h, 0)
	}
	return done
}
