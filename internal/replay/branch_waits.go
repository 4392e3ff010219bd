package replay

import (
	"runtime"
	"time"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// wait blocks the calling branch until the time by the database's clock, unless it is zero, or until on comes. It
// returns the branch's cause if the branch is cancelled meanwhile, and exits the goroutine if the execution stops. See
// doc_waits.go.
func (p *replayer) wait(until time.Time, what waits.Wait, on next) error {
	return p.waitFor(&wait{until: until, what: what}, on)
}

// waitFor is wait with the time and reason of w.
func (p *replayer) waitFor(w *wait, on next) error {
	if w.isUnrecorded() {
		if p.closed {
			return errBranchCancelled
		}
		if err := p.cancelled(); err != nil {
			return err
		}
		p.passHistory(p.e.fire)
		if !p.e.beginsNew() {
			p.exitUnrecorded()
		}
	}
	return p.e.wait(&p.node, w, on)
}

// waitAnyway waits for another branch although this one is cancelled, because this one is behind its history. It also
// returns when no branch is busy.
func (p *replayer) waitAnyway(on next) { _ = p.waitFor(&wait{anyway: true}, on) }

// park waits while the run is paused. It exits the goroutine if the execution is suspended meanwhile, and returns the
// cause if the branch is cancelled.
func (p *replayer) park() error {
	for {
		unpaused, paused := p.e.pause()
		if !paused {
			return nil
		}
		if err := p.waitFor(&wait{parked: true}, unpaused); err != nil {
			return err
		}
	}
}

// suspendWith suspends the execution with wait w of the branch and its record r in one transaction, and exits the
// goroutine. It does nothing if another branch is busy or parked, another wait ends soon, the branch is cancelled, or
// on has come: then the caller records r by itself.
func (p *replayer) suspendWith(r *store.Record, w *wait, on next) {
	e := p.e
	runtime.Gosched() // see suspendLocked
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		runtime.Goexit()
	}
	if !e.isAloneLocked(e.Now()) || p.Err() != nil || on.hasComeLocked() {
		return
	}
	first := e.earliestLocked()
	e.addWaitLocked(w, e.Now().Add(r.Wake)) // about: the row has the time by the database's clock
	sus := e.newSuspension(store.Sleeping, e.waitingOnLocked())
	sus.Wake, sus.WakeAt, sus.Need, sus.Seen = r.Wake, first, e.needLocked(), e.seenLocked()
	e.suspendLocked(&write{by: &p.node, records: []*store.Record{r}, suspension: sus, settled: e.written})
	runtime.Goexit()
}
