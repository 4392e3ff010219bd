package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// maxRecoveries is how often a run may be recovered from dead workers without progress. After one more it is
// quarantined.
const maxRecoveries = 20

// A lane reads histories one by one, and admits few runs at a time. See internal/worker/doc_claims.go.
type lane struct {
	l       *loader
	most    int // runs that it admits
	reading *batch.Batcher[*held]

	mu sync.Mutex // guards n
	n  int        // runs in the lane. add adds one; reading removes it after the try to read its history.
}

func newLane(l *loader, most, atOnce int) *lane {
	p := &lane{l: l, most: most}
	p.reading = batch.New(batch.Config[*held]{MaxItems: 1, Flushes: atOnce, Flush: func(hs []*held) {
		for _, h := range hs {
			l.readAlone(h)
			p.mu.Lock()
			p.n--
			p.mu.Unlock()
		}
	}})
	return p
}

// add queues the read of h's history, or yields h's run for a while if the lane is full.
func (p *lane) add(h *held) {
	p.mu.Lock()
	room := p.n < p.most
	if room {
		p.n++
	}
	p.mu.Unlock()
	switch {
	case room:
		p.reading.Add(h)
	default:
		h.Unread(nil, max(2, h.LoadFailures))
	}
}

// readAlone reads the history of one run, unless checkSuspect ends the run.
func (l *loader) readAlone(h *held) {
	for failures := 0; len(stillLoading([]*held{h})) > 0; failures++ {
		over, err := l.checkSuspect(h)
		if over {
			return
		}
		if err == nil {
			err = l.readOne(h)
		}
		if err == nil {
			return
		}
		switch class := pg.Classify(err); {
		case class != pg.ClassBusy && class != pg.ClassConflict && l.worker.Readable():
			h.Unread(err, h.LoadFailures+1)
			return
		case !l.wait(err, []*held{h}, failures):
			return
		}
	}
}

// readOne reads the history of h, whatever its size, once the memory for large histories has room.
func (l *loader) readOne(h *held) error {
	timeout := min(aloneTimeout<<min(h.LoadFailures, 10), l.longest)
	var size int64
	if err := l.slowly(func() (err error) {
		size, err = l.worker.Store.Histories.Size(l.worker.Reads, h.RunID, timeout)
		return err
	}); err != nil {
		return err
	}
	if size > sharedEach {
		got := l.large.acquire(size, h.Stopped(), shareWait)
		if got == 0 {
			h.Unread(nil, 3)
			return nil
		}
		h.holdMemory(got)
	}
	var loaded store.Loaded
	var begun time.Time
	if err := l.slowly(func() (err error) {
		begun = time.Now()
		loaded, err = l.worker.Store.Histories.Load(l.worker.Reads, request([]*held{h}, store.NoLimit, timeout))
		return err
	}); err != nil {
		l.releaseMemory(h)
		return err
	}
	if size <= sharedEach && time.Since(begun) < partTimeout {
		l.unmark(h)
	}
	l.begin(h, loaded)
	if h.stopped() { // perhaps before h.large was set: then its removal released nothing
		l.releaseMemory(h)
	}
	return nil
}

// releaseMemory releases h's share of the memory for large histories.
func (l *loader) releaseMemory(h *held) {
	l.large.release(h.freeMemory())
}

// checkSuspect asks whether a crash-loop suspect has made progress since its recoveries began. If not, it notes that
// the run begins; or, if the run was recovered too often, it ends the run. It comes before the read of the history,
// because that may be what kills the workers.
func (l *loader) checkSuspect(h *held) (over bool, err error) {
	if !h.CrashLoopSuspect() {
		return false, nil
	}
	var found store.CrashLoopEvidence
	if err := l.slowly(func() (err error) {
		found, err = l.worker.Store.Histories.CrashLoopEvidence(l.worker.Reads, h.RunID, h.RecoveriesSince,
			aloneTimeout)
		return err
	}); err != nil {
		return false, err
	}
	if found.Progress {
		if err := l.worker.Store.Leases.ResetRecoveries(context.Background(), h.lease()); err != nil {
			l.worker.Log.Warn("kagzi: recoveries of a run that made progress are not reset", "workflow", h.Type, "run",
				h.RunID, "run_attempt", h.Attempts+1, "error", err)
		}
		h.Recoveries = 0
		return false, nil
	}
	if h.Recoveries <= maxRecoveries {
		if err := l.worker.Store.Leases.BeginSuspect(l.worker.Reads, h.lease()); err != nil {
			l.worker.Trouble(err)
			h.Yield("recovery", time.Second)
			return true, nil
		}
		return false, nil
	}
	h.FailUnread(failure.Quarantine(kind.CrashLoop, fmt.Errorf("the run was taken over from a dead "+
		"worker %d times without progress: it may be killing them", h.Recoveries)), found.Children)
	return true, nil
}
