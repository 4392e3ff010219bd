package replay

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/kagzi/kagzi/store"
)

// ends is called when the goroutine of b ends, with err. Unless b succeeds, it cancels the branches below b, and the
// children of b and of those.
func (b *Branch) ends(err error) {
	b.goid.Store(0)
	e := b.e
	var r *store.Record
	// methods of the application's errors must not be called under the mutex
	if err != nil && b.parent != nil && !b.isOver() {
		r = b.newFailure(err)
	}
	e.Lock()
	if !e.underWayLocked() || b.discarded {
		e.Unlock()
		return
	}
	b.result.asked = b.result.asked || b.ctx.Err() != nil // cancelled by its caller, who no longer waits
	if err != nil && b.parent != nil {
		b.failLocked(r)
	}
	// branches below a closed one end by themselves, where their history does
	if err != nil && e.cancelsOthers() && !b.closed {
		b.cancel(errBranchCancelled)
	}
	e.Unlock()
	if b.hasEnded() {
		e.cancelChildrenBelow(&b.node, &b.node)
	}
}

// endLocked notes how the branch has ended, and wakes those that wait for that. It returns false for a branch that has
// reached, in mode verify, an unrecorded operation: waiters keep waiting.
func (b *Branch) endLocked(err error) bool {
	if b.discarded {
		return false
	}
	b.result.err, b.result.now = err, b.now
	if err == nil && b.parent != nil && !b.started {
		b.cancel(nil)
	}
	b.e.fireLocked(&b.result.done)
	b.e.fireLocked(&b.result.past)
	if g := b.result.group; g != nil {
		b.e.fireLocked(g.addLocked(b.result.index))
	}
	return true
}

// newFailure prepares the record of the branch's failure. The output lists the IDs of the failures in err's chain.
func (b *Branch) newFailure(err error) *store.Record {
	r := b.newRecord(b.result.name, store.KindBranch, store.Failed, b.attempt+1, b.attempt+1)
	describe(r, b.e.errors().Classify(err), err)
	var failed []*branchResult // a copy: methods of err must not be called under the mutex
	b.e.Lock()
	_, branches := b.e.knownLocked()
	for _, other := range branches {
		if other.err != nil {
			failed = append(failed, &branchResult{name: other.name, err: other.err})
		}
	}
	b.e.Unlock()
	ids := map[string]bool{}
	b.e.addChain(ids, err, failed)
	r.Output, _ = json.Marshal(slices.Sorted(maps.Keys(ids))) // strings
	return r
}

// failLocked notes the failure of a branch that was not cancelled: in a replay it is closed, with all branches below
// it. The record, r, is deferred. That of a racer must not be written without the messages that the racer took.
func (b *Branch) failLocked(r *store.Record) {
	if b.row == nil && (r == nil || b.isOver()) { // it was cancelled, and its failure is not recorded
		return
	}
	b.end = b.failsLocked(b.result.name)
	b.dead.Store(true)
	if b.row != nil {
		return
	}
	r.EndedAt = b.now
	if now := b.e.Now(); now.After(b.now) { // a fork compares this time
		r.EndedAt = now
	}
	_, branches := b.e.knownLocked()
	for _, other := range branches { // branches below it may end later than the estimate of the clock, which lags
		if other.done.hasFiredLocked() && other.now.After(r.EndedAt) {
			r.EndedAt = other.now
		}
	}
	if b.mayLose() {
		b.deferLocked(r, nil)
	} else {
		b.deferForRunLocked(r)
	}
}
