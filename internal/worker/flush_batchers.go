package worker

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A flusher writes what the runs of a session record, many in one transaction. See doc_flush.go.
type flusher struct {
	*standing.Worker
	hints *hints.Hints
	told  flushed // nil: nothing is told
	by    flushes
	tally *tally

	// Batchers of runs with unsettled writes. A run is in one of them at a time.
	writer *batch.Batcher[*held] // all runs but those of the other two
	// those whose last flush met a lock or failed alone: the others do not wait with them
	retries *batch.Batcher[*held]
	// of these, the ones that may wait for a transaction of a stranger: one in each flush
	alone *batch.Batcher[*held]
	steps sync.WaitGroup // of compensations that a flush has let begin
}

// A flushed is told of a transaction with so many writes of so many executions. It must not block.
type flushed func(runs, writes int, took time.Duration, err error)

// A flushes is the session: it hears what a flush has made of its runs.
type flushes interface {
	suspended(queue string, keyed bool, p *store.Suspension) (announce bool)
	hasNews(h *held)
	endSuspect(h *held)
}

// flushesApart bounds the concurrent flushes that may wait for transactions of others: each occupies a connection
// meanwhile.
const flushesApart = 2

func newFlusher(w *standing.Worker, h *hints.Hints, told flushed, by flushes, t *tally) *flusher {
	f := &flusher{Worker: w, hints: h, told: told, by: by, tally: t}
	f.writer = batch.New(batch.Config[*held]{Flush: f.flush})
	f.retries = batch.New(batch.Config[*held]{Flush: f.flush})
	f.alone = batch.New(batch.Config[*held]{Flush: f.flush, MaxItems: 1, Flushes: flushesApart})
	return f
}

// wait waits until the batchers are empty. It is called after Worker.GiveUp: from then on a requeued write goes to the
// writer.
func (f *flusher) wait() {
	f.alone.Wait()
	f.retries.Wait()
	f.writer.Wait()
}

// waitForSteps waits until the compensations have begun that flushes have let begin.
func (f *flusher) waitForSteps() { f.steps.Wait() }

// requeue is called when a flush is done with the run. If any writes are left, it puts the run into a batcher again:
// after the pause, if that is not zero.
func (f *flusher) requeue(h *held, pause time.Duration) {
	h.turning.Lock()
	defer h.turning.Unlock()
	switch more, mayWait := h.More(h.apart); {
	case !more:
	case pause > 0 && !f.GivesUp():
		h.pausing = time.AfterFunc(pause, func() { f.endPause(h) })
	default:
		f.batcher(h.apart, mayWait).Add(h)
	}
}

// endPause ends the run's pause, if it makes one, and puts it into a batcher.
func (f *flusher) endPause(h *held) {
	h.turning.Lock()
	defer h.turning.Unlock()
	if h.endPauseLocked() {
		_, mayWait := h.More(true)
		f.batcher(h.apart, mayWait).Add(h)
	}
}

// batcher returns the batcher for a run's next flush. While another transaction has the row of its run locked, every
// flush with it takes as long as a wait for a lock may, so it is apart: it shares none with the runs that are not
// affected. A write that may wait for a stranger's transaction is flushed alone. See docs/architecture.md, Locks.
func (f *flusher) batcher(apart, mayWait bool) *batch.Batcher[*held] {
	switch {
	case !apart || f.GivesUp():
		return f.writer
	case mayWait:
		return f.alone
	default:
		return f.retries
	}
}
