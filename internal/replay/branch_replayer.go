package replay

import (
	"runtime"
	"time"

	"github.com/kagzi/kagzi/store"
)

// lookup returns the record of a step in the history, or nil. A record of another kind quarantines the run: code and
// history contradict each other.
func (p *replayer) lookup(id, kind string) *store.StepRow {
	row := p.recordOf(id)
	p.lastLookup = historyLookup{id, kind, row != nil}
	if row == nil {
		// a group may have no record of its own, but records of its branches
		known := p.hasRecorded(id)
		if known && kind != store.KindMarker {
			p.e.nondeterministic(id, "%q was recorded as a branch or group of branches, and the code now uses the "+
				"name for %s: give the new one another name", id, kindWord(kind))
		}
		if !known {
			p.goLive()
		}
		return nil
	}
	if row.Kind != kind {
		p.e.nondeterministic(id, "step %q was recorded as %s, and the code now uses the name for %s: give the new "+
			"one another name", id, kindWord(row.Kind), kindWord(kind))
	}
	return row
}

// looksFor notes that the branch is about to begin an operation which the history does not have.
func (p *passage) looksFor(id, kind string) { p.lastLookup = historyLookup{id: id, kind: kind} }

// mayBegin is begins without the registration of leftovers.
func (p *replayer) mayBegin() error {
	if p.closed {
		return errBranchCancelled
	}
	if err := p.cancelled(); err != nil {
		return err
	}
	p.passHistory(p.e.fire)
	p.goLive()
	if !p.e.beginsNew() {
		p.exitUnrecorded()
	}
	return nil
}

// goLive switches the branch's Logger on, because the function is past its history.
func (p *passage) goLive() { p.live.Store(true) }

// logs reports whether the function is past its history. A closed branch never logs.
func (p *replayer) logs() bool { return !p.closed && p.live.Load() }

// exitUnrecorded exits the goroutine of a branch at its first unrecorded operation, in mode verify. Waiters keep
// waiting.
func (p *replayer) exitUnrecorded() {
	p.discarded = true
	p.e.Lock()
	p.e.reachLocked(&p.node, p.lastLookup)
	p.e.Unlock()
	runtime.Goexit()
}

// passed counts row, a step that ended, as passed by the function.
func (p *passage) passed(row *store.StepRow) {
	p.advance(row.FinishedAt)
	p.replay()
}

// advance moves the branch's Now forward to t, never back.
func (p *passage) advance(t time.Time) {
	if t.After(p.now) {
		p.now = t
	}
}

// replay counts one more of the branch's steps and branches in the history as passed.
func (p *passage) replay() {
	if p.replayed++; p.replayed >= p.own {
		p.goLive()
	}
}

// passedBranch counts the branch or group with that ID as passed, if the history has it.
func (p *replayer) passedBranch(id string) {
	if p.hasRecorded(id) {
		p.replay()
	}
}
