package engine

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// An operation is a call of the workflow's code into the engine.
type operation struct{ b *Branch }

// operate counts an operation as under way until done is called. For the watchdog, a branch without one is in the
// application's code.
func (b *Branch) operate() operation {
	b.operations.Add(1)
	return operation{b}
}

func (o operation) done() { o.b.operations.Add(1<<32 - 1) }

// enter begins a durable operation and returns the ID of its record: the branch's prefix and the name, with a number
// from the second use on. badName is why the name is invalid, or nil. enter exits the goroutine if the execution has
// stopped, and returns the cause if only the branch was cancelled. See doc_replay.go.
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
	if err := checkPath(id); err != nil {
		return "", b.Misuse(err)
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
	if b.e.isCopy() && b.e.hasCopied(id) {
		b.reachedCopied++
		for i := range b.leftovers {
			b.leftovers[i].pending = false
		}
	}
	return id, nil
}

// longestPath is the most bytes of the ID of an operation: the names of its branches, and its own. It is part of the
// keys of tables, which may have 2,704 bytes with the run, the namespace and what Kagzi adds to some IDs.
const longestPath = 2000

// checkPath returns the error of an operation whose ID is too long.
func checkPath(id string) error {
	if len(id) <= longestPath {
		return nil
	}
	return fmt.Errorf("kagzi: the path %s, of the names of its branches and its own, has %d bytes: at most %d are "+
		"allowed; nest branches less deeply, or give them shorter names",
		text.Quote(id), len(id), longestPath)
}

// lookup returns the record of a step in the history, or nil. A record of another kind quarantines the run: code and
// history contradict each other.
func (b *Branch) lookup(id, kind string) *store.StepRow {
	row := b.e.recordOf(id)
	b.lastLookup = historyLookup{id, kind, row != nil}
	if row == nil {
		// a group may have no record of its own, but records of its branches
		known := b.recorded(id)
		if known && kind != store.KindMarker {
			b.e.nondeterministic(id, "%q was recorded as a branch or group of branches, and the code now uses the "+
				"name for %s: give the new one another name", id, kindWord(kind))
		}
		if !known {
			b.goLive()
		}
		return nil
	}
	if row.Kind != kind {
		b.e.nondeterministic(id, "step %q was recorded as %s, and the code now uses the name for %s: give the new "+
			"one another name", id, kindWord(row.Kind), kindWord(kind))
	}
	return row
}

// kindCancel stands for the operation of [Child.Cancel] in messages.
const kindCancel = "CANCEL"

func kindWord(kind string) string {
	return map[string]string{
		store.KindFunction: "a step", store.KindSleep: "a sleep", store.KindMarker: "a group of branches",
		store.KindSignal: "a wait for a signal", store.KindChild: "a child", store.KindCompensation: "a compensation",
		store.KindPeek: "a look at a topic", store.KindReserve: "a reservation of events",
		store.KindPublish: "a publishing of events", store.KindMetadata: "a change of metadata",
		store.KindBranch: "a branch", kindCancel: "the cancel of child",
	}[kind]
}

// mayBegin is begins without the registration of leftovers.
func (b *Branch) mayBegin() error {
	if b.closed {
		return errBranchCancelled
	}
	if err := b.cancelled(); err != nil {
		return err
	}
	b.passHistory()
	b.live.Store(true)
	if !b.e.beginsNew() {
		b.exitUnrecorded()
	}
	return nil
}

// cancelled returns the cause if the branch was cancelled. It exits the goroutine if the execution has stopped.
func (b *Branch) cancelled() error {
	if b.ctx.Err() == nil {
		return nil
	}
	b.e.exitIfStopped()
	return context.Cause(b.ctx)
}

// behind reports whether the branch was cancelled before it passed its history. Such a branch goes on to the end of its
// history: so the function gets the same results in every execution, whenever another branch cancels this one.
func (b *Branch) behind() bool { return b.ctx.Err() != nil && !b.pastHistory.Load() }

// passHistory marks the branch as past its history: it begins an operation that is not in the history, or waits for
// one. That wakes closed branches that wait for this branch, because in the history they waited no longer. If the
// branch belongs to a group, the history does not have the group's end either, so the branch above is past its history,
// too.
func (b *Branch) passHistory() {
	for ; b != nil && b.pastHistory.CompareAndSwap(false, true); b = b.parent {
		b.e.Lock()
		b.e.fireLocked(&b.result.past)
		b.e.Unlock()
		if b.result.group == nil {
			return
		}
	}
}

// goLive switches the branch's Logger on, because the function is past its history. A closed branch never logs.
func (b *Branch) goLive() {
	if !b.closed {
		b.live.Store(true)
	}
}

// exitUnrecorded exits the goroutine of a branch at its first unrecorded operation, in mode verify. Waiters keep
// waiting.
func (b *Branch) exitUnrecorded() {
	b.discarded = true
	b.e.Lock()
	b.e.verifier.unrecordedLocked(b)
	b.e.Unlock()
	runtime.Goexit()
}

// passed counts row, a step that ended, as passed by the function.
func (b *Branch) passed(row *store.StepRow) {
	b.advance(row.FinishedAt)
	b.replay()
}

// advance moves the branch's Now forward to t, never back.
func (b *Branch) advance(t time.Time) {
	if t.After(b.now) {
		b.now = t
	}
}

// replay counts one more of the branch's steps and branches in the history as passed.
func (b *Branch) replay() {
	if b.replayed++; b.replayed >= b.own {
		b.goLive()
	}
}

// passedBranch counts the branch or group with that ID as passed, if the history has it.
func (b *Branch) passedBranch(id string) {
	if b.recorded(id) {
		b.replay()
	}
}

// newBranch returns a new branch under b. Its goroutine must call init.
func (b *Branch) newBranch(id string) *Branch {
	ctx, cancel := context.WithCancelCause(b.ctx)
	child := &Branch{
		e: b.e, parent: b, prefix: id + "/", ctx: ctx, cancel: cancel, now: b.now, metadata: b.metadata,
		closed: b.closed, closedAt: b.closedAt, result: &branchResult{name: id},
	}
	child.result.of = child
	if row := b.e.recordOf(id); row != nil {
		if row.Kind != store.KindBranch {
			b.e.nondeterministic(id, "%q was recorded as %s, and the code now uses the name for a branch: give the "+
				"branch another name", id, kindWord(row.Kind))
		}
		child.attempt = row.Attempt
		if !b.e.forgot(row) {
			child.row = row
			child.close(row.FinishedAt)
		}
	}
	return child
}
