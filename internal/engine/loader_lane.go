package engine

import (
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

// A lane reads histories one by one, and admits few runs at a time. See doc_claims.go.
type lane struct {
	l       *loader
	most    int // runs that it admits
	reading *batch.Batcher[*execution]

	mu sync.Mutex // guards n
	n  int        // runs in the lane. add adds one; reading removes it after the try to read its history.
}

func newLane(l *loader, most, atOnce int) *lane {
	p := &lane{l: l, most: most}
	p.reading = batch.New(batch.Config[*execution]{MaxItems: 1, Flushes: atOnce, Flush: func(es []*execution) {
		for _, e := range es {
			l.readAlone(e)
			p.mu.Lock()
			p.n--
			p.mu.Unlock()
		}
	}})
	return p
}

// add queues the read of e's history, or yields e's run for a while if the lane is full.
func (p *lane) add(e *execution) {
	p.mu.Lock()
	room := p.n < p.most
	if room {
		p.n++
	}
	p.mu.Unlock()
	switch {
	case room:
		p.reading.Add(e)
	default:
		e.yield(waitsForHistory, loadPause(max(2, e.LoadFailures)), store.HistoryUntried)
	}
}

// readAlone reads the history of one run, unless checkSuspect ends the run.
func (l *loader) readAlone(e *execution) {
	for failures := 0; len(stillLoading([]*execution{e})) > 0; failures++ {
		over, err := l.checkSuspect(e)
		if over {
			return
		}
		if err == nil {
			err = l.readOne(e)
		}
		if err == nil {
			return
		}
		switch class := pg.Classify(err); {
		case class != pg.ClassBusy && class != pg.ClassConflict && l.env.readable():
			e.unreadable(err)
			return
		case !l.wait(err, []*execution{e}, failures):
			return
		}
	}
}

// readOne reads the history of e, whatever its size, once the memory for large histories has room.
func (l *loader) readOne(e *execution) error {
	timeout := min(aloneTimeout<<min(e.LoadFailures, 10), l.longest)
	var size int64
	if err := l.slowly(func() (err error) {
		size, err = l.env.store.Histories.Size(l.env.reads, e.RunID, timeout)
		return err
	}); err != nil {
		return err
	}
	if size > sharedEach {
		if size = min(size, l.large.most); !l.large.acquire(size, e.whenDone(), shareWait) {
			e.yield(waitsForHistory, loadPause(3), store.HistoryUntried)
			return nil
		}
		e.holdMemory(size)
	}
	var loaded store.Loaded
	var begun time.Time
	if err := l.slowly(func() (err error) {
		begun = time.Now()
		loaded, err = l.env.store.Histories.Load(l.env.reads, request([]*execution{e}, store.NoLimit, timeout))
		return err
	}); err != nil {
		l.releaseMemory(e)
		return err
	}
	if size <= sharedEach && time.Since(begun) < partTimeout {
		l.unmark(e)
	}
	l.begin(e, loaded)
	if e.stopped() { // perhaps before e.large was set: then its removal released nothing
		l.releaseMemory(e)
	}
	return nil
}

// releaseMemory releases e's share of the memory for large histories.
func (l *loader) releaseMemory(e *execution) {
	l.large.release(e.freeMemory())
}

// checkSuspect asks whether a crash-loop suspect has made progress since its recoveries began. If not, it notes that
// the run begins; or, if the run was recovered too often, it ends the run. It comes before the read of the history,
// because that may be what kills the workers.
func (l *loader) checkSuspect(e *execution) (over bool, err error) {
	if !e.CrashLoopSuspect() {
		return false, nil
	}
	var found store.CrashLoopEvidence
	if err := l.slowly(func() (err error) {
		found, err = l.env.store.Histories.CrashLoopEvidence(l.env.reads, e.RunID, e.RecoveriesSince, aloneTimeout)
		return err
	}); err != nil {
		return false, err
	}
	if found.Progress {
		if err := l.env.store.Leases.ResetRecoveries(l.env.background, e.held()); err != nil {
			e.log().Warn("kagzi: recoveries of a run that made progress are not reset", "error", err)
		}
		e.Recoveries = 0
		return false, nil
	}
	if e.Recoveries <= maxRecoveries {
		if err := l.env.store.Leases.BeginSuspect(l.env.reads, e.held()); err != nil {
			l.env.databaseTrouble(err)
			e.yield("recovery", time.Second, store.HistoryUntried)
			return true, nil
		}
		return false, nil
	}
	why := e.isToEnd()
	if why == underWay {
		e.stopUnbegun(stopFailed, failure.Quarantine(kind.CrashLoop, fmt.Errorf("the run was taken over from a dead "+
			"worker %d times without progress: it may be killing them", e.Recoveries)))
		return true, nil
	}
	if found.Children {
		e.expectAny()
	}
	e.stopUnbegun(why, failure.ErrDeadline)
	return true, nil
}
