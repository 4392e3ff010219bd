package engine

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/kagzi/kagzi/store"
)

// enter begins a durable operation and returns the ID under which it is recorded: its name on this branch, counted if the
// name is used again. badName says what is wrong with the name. It ends the goroutine if the execution has
// ended, and returns the cause if the branch alone was cancelled.
func (b *Branch) enter(name string, badName error) (string, error) {
	if !b.owned() {
		return "", b.foreign()
	}
	b.e.exitIfStopped()
	if badName != nil {
		return "", b.Misuse(badName)
	}
	id := b.prefix + name
	if n := b.names[name] + 1; n > 1 {
		id += "#" + strconv.Itoa(n)
	}
	if err := b.cancelled(); err != nil && !(b.behind() && b.recorded(id)) {
		return "", err
	}
	if !b.closed || b.recorded(b.prefix+name) {
		b.follow()
	}
	if b.names == nil {
		b.names = map[string]int{}
	}
	b.names[name]++
	if b.reached < b.own && b.recorded(id) {
		b.reached++
	}
	if b.e.copied != nil && b.e.hasCopied(id) {
		b.reachedCopied++
		for i := range b.leftovers {
			b.leftovers[i].pending = false
		}
	}
	return id, nil
}

// lookup returns the history's row of a step, or nil. A row of another kind fails the run: code and history
// cannot both be right.
func (b *Branch) lookup(id, kind string) *store.StepRow {
	row := b.e.history[id]
	b.lastLookup = historyLookup{id, kind, row != nil}
	if row == nil {
		known := b.recorded(id) // a group may have no record of its own, only its branches have
		if known && kind != store.KindMarker {
			b.e.nondeterministic("%q was recorded as a branch or group of branches, and the code now uses the name for %s: give the new one another name", id, kindWord(kind))
		}
		if !known {
			b.goLive()
		}
		return nil
	}
	if row.Kind != kind {
		b.e.nondeterministic("step %q was recorded as %s, and the code now uses the name for %s: give the new one another name", id, kindWord(row.Kind), kindWord(kind))
	}
	return row
}

// kindCancel is the kind of what [Child.Cancel] begins, for messages.
const kindCancel = "CANCEL"

func kindWord(kind string) string {
	return map[string]string{
		store.KindFunction: "a step", store.KindSleep: "a sleep", store.KindMarker: "a group of branches",
		store.KindSignal: "a wait for a signal", store.KindChild: "a child", store.KindCompensation: "a compensation",
		store.KindBranch: "a branch", kindCancel: "the cancel of child",
	}[kind]
}

// mayBegin is begins without the compensations that a fork has left with the other run.
func (b *Branch) mayBegin() error {
	if b.closed {
		return errBranchCancelled
	}
	if err := b.cancelled(); err != nil {
		return err
	}
	b.passHistory()
	b.live.Store(true)
	if !b.e.mode.begins() {
		b.exitUnrecorded()
	}
	return nil
}

// cancelled returns the cause if the branch was cancelled. It exits the goroutine if the execution has ended.
func (b *Branch) cancelled() error {
	if b.ctx.Err() == nil {
		return nil
	}
	b.e.exitIfStopped()
	return context.Cause(b.ctx)
}

// behind reports whether the branch was cancelled before it passed its history. It passes that all the same: the function
// gets the same results in every execution, whenever others decide that the branch ends.
func (b *Branch) behind() bool { return b.ctx.Err() != nil && !b.pastHistory.Load() }

// passHistory notes that the branch begins an operation that the history does not have, or waits for one. Closed branches that
// wait for it are woken: in the history they had not waited for more. A group with such a branch has no end in the history
// either.
func (b *Branch) passHistory() {
	for ; b != nil && b.pastHistory.CompareAndSwap(false, true); b = b.parent {
		b.e.mu.Lock()
		b.e.fireLocked(&b.result.past)
		b.e.mu.Unlock()
		if b.result.group == nil {
			return
		}
	}
}

// goLive switches the branch's Logger on, because the function is past its history. A closed branch logs nothing new.
func (b *Branch) goLive() {
	if !b.closed {
		b.live.Store(true)
	}
}

// exitUnrecorded is for mode verify: it exits the goroutine of a branch at its first unrecorded operation. Waiters keep waiting.
func (b *Branch) exitUnrecorded() {
	b.discarded = true
	b.e.mu.Lock()
	b.e.verifier.unrecordedLocked(b)
	b.e.mu.Unlock()
	runtime.Goexit()
}

// passed notes that the function has passed row, a step that ended.
func (b *Branch) passed(row *store.StepRow) {
	b.advance(row.FinishedAt)
	b.replay()
}

// advance moves Now on to t.
func (b *Branch) advance(t time.Time) {
	if t.After(b.now) {
		b.now = t
	}
}

// replay counts one of the steps and branches in the history as past.
func (b *Branch) replay() {
	if b.replayed++; b.replayed >= b.own {
		b.goLive()
	}
}

// passedBranch notes that the function has passed the branch or group that is recorded under id.
func (b *Branch) passedBranch(id string) {
	if b.recorded(id) {
		b.replay()
	}
}

// newBranch prepares a branch of b's execution under b; its goroutine is to call init.
func (b *Branch) newBranch(id string) *Branch {
	ctx, cancel := context.WithCancelCause(b.ctx)
	child := &Branch{e: b.e, parent: b, prefix: id + "/", ctx: ctx, cancel: cancel, now: b.now, closed: b.closed, closedAt: b.closedAt, result: &branchResult{name: id}}
	child.result.of = child
	if row := b.e.history[id]; row != nil {
		if row.Kind != store.KindBranch {
			b.e.nondeterministic("%q was recorded as %s, and the code now uses the name for a branch: give the branch another name", id, kindWord(row.Kind))
		}
		child.attempt = row.Attempt
		if !b.e.forgot(row) {
			child.row = row
			child.close(row.FinishedAt)
		}
	}
	return child
}
