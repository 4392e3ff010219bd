package replay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/kind"
)

// A node is the place of a branch in the tree of the run's branches: those above it, and its end.
type node struct {
	mu     *sync.Mutex // the execution's
	parent *node       // nil for the run's own branch
	ctx    context.Context
	cancel context.CancelCauseFunc
	result *branchResult

	closing      // as the history has it
	fate         // how it ends
	started bool // it has begun branches. Set by Future.start, for good. Only the branch's goroutine uses it.

	pastHistory atomic.Bool // it has reached an unrecorded operation, or waits for one. Set by passHistory, for good.
}

// A knownFailure is a recorded failure that a branch was given. See doc_steps.go.
type knownFailure struct {
	id       string      // of its record
	by       *node       // the branch that was given it
	kept     bool        // only an operator lets the step be tried again
	followed atomic.Bool // a branch that knew of it has begun something after it. Set by follow, for good.
}

// A branchResult is the end of a branch. Its execution's mutex guards it.
type branchResult struct {
	of    *node // nil if it was never started
	name  string
	done  event // fired once, by settleBranch, which sets err and now
	past  event // fired when the branch is done, or has passed its history
	err   error
	now   time.Time // the branch's Now at its end
	asked bool      // the workflow asked for it, or cancelled the branch: its error alone does not fail the run
	group *ends     // of its group, in which it has that index; nil for a branch of Go
	index int
}

// ends lists the branches of a group in the order in which they ended. The execution's mutex guards it.
type ends struct {
	event
	order []int
}

// after is the end of one more branch after so many.
func (n *ends) after(taken int) next { return next{&n.event, taken} }

// atLocked returns the index of the branch that ended after so many others; ok is false if none has.
func (n *ends) atLocked(taken int) (index int, ok bool) {
	if len(n.order) <= taken {
		return 0, false
	}
	return n.order[taken], true
}

// addLocked adds the branch with that index, and returns the event of its end.
func (n *ends) addLocked(index int) *event {
	n.order = append(n.order, index)
	return &n.event
}

// A closing is the end of a branch in the history, or of one above it. It is set before the branch's
// goroutine begins, and does not change afterwards.
type closing struct {
	closed   bool      // there is one: nothing begins on the branch
	closedAt time.Time // the earliest of these ends, by the database's clock; zero if the branch is not closed
}

// A fate is how a branch ends.
type fate struct {
	// end is the failure that ended the branch: its own, set by failLocked, or its group's decision, set by endsWith.
	// It is nil if there is none.
	end *knownFailure

	// racing says that the branch is in an undecided Race: messages that it takes are its own only if it wins. It is
	// set by joins, and reset when the branch wins or no branch does. The execution's mutex guards it.
	racing bool

	// outrun says that another branch has won the branch's Race, in this execution or in the history. It is set by
	// outrunLocked, for good. The execution's mutex guards it.
	outrun bool

	// it has failed, or its group was decided without it; recorded or deferred. Set by failLocked and die, for good.
	dead atomic.Bool
	// it lost a race: it and the branches below it record nothing any more. Set by lose, for good.
	lost atomic.Bool
}

// at returns the place of a branch.
func (n *node) at() *node { return n }

func (n *node) Done() <-chan struct{} { return n.ctx.Done() }

func (n *node) Err() error { return context.Cause(n.ctx) }

// context returns the context from which those of the branch's steps descend. It ends when the branch is cancelled, or
// the execution stops.
func (n *node) context() context.Context { return n.ctx }

// isRoot reports whether the branch is the run's own.
func (n *node) isRoot() bool { return n.parent == nil }

// root returns the run's own branch.
func (n *node) root() *node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// under reports whether the branch is other, or a branch below it.
func (n *node) under(other *node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// hasLost reports whether the branch or one above it has lost a race.
func (n *node) hasLost() bool {
	for ; n != nil; n = n.parent {
		if n.lost.Load() {
			return true
		}
	}
	return false
}

// hasEnded reports whether the branch or one above it has failed, was cancelled by its group, or has lost. The run's
// own branch does not count: its end is the end of an attempt, after which children go on.
func (n *node) hasEnded() bool {
	for ; n.parent != nil; n = n.parent {
		if n.closed || n.dead.Load() {
			return true
		}
	}
	return false
}

// isOver reports whether the branch was cancelled, has lost, or has its end in the history: then this execution does
// not record how it ends.
func (n *node) isOver() bool { return n.closed || n.ctx.Err() != nil || n.hasLost() }

// mayLose reports whether the branch, or one above it, is in an undecided Race.
func (n *node) mayLose() bool {
	for ; n != nil; n = n.parent {
		if n.racing {
			return true
		}
	}
	return false
}

// keeperLocked returns the branch whose writes take the deferred records of this one. A branch that has ended writes no
// more; the branch above depends on its result, and takes its records. A branch in a race keeps its records until it
// has won.
func (n *node) keeperLocked() *node {
	for n.parent != nil && !n.racing && n.result.done.hasFiredLocked() {
		n = n.parent
	}
	return n
}

// belowEndedBranch reports whether a branch above it, other than the run's own, has failed, was cancelled or has lost:
// then a failure of the branch does not count by itself. The execution's mutex is held.
func (n *node) belowEndedBranch() bool {
	for p := n.parent; p != nil && p.parent != nil; p = p.parent {
		if p.closed || p.lost.Load() || p.result.err != nil || errors.Is(context.Cause(p.ctx), kind.Cancelled) {
			return true
		}
	}
	return false
}

// belowFailedBranch reports whether a branch above it has failed: that cancelled it, at whatever point it was. The
// execution's mutex is held.
func (n *node) belowFailedBranch() bool {
	for n = n.parent; n != nil; n = n.parent {
		if n.result.done.hasFiredLocked() && n.result.err != nil {
			return true
		}
	}
	return false
}

// callOff cancels the branch, and those below it.
func (n *node) callOff() { n.cancel(errBranchCancelled) }

// close notes that the history has an end of the branch, or of one above it, at that time.
func (c *closing) close(at time.Time) {
	if !c.closed || at.Before(c.closedAt) {
		c.closedAt = at
	}
	c.closed = true
}

// Closed reports whether the history has an end of the branch, or of one above it.
func (c *closing) Closed() bool { return c.closed }

// outlived reports whether another branch's end, at that time, came after the recorded end: then the branch did not
// see it when it was first executed.
func (c *closing) outlived(at time.Time) bool { return c.closed && at.After(c.closedAt) }

// behind reports whether the branch was cancelled before it passed its history. Such a branch goes on to the end of its
// history: so the function gets the same results in every execution, whenever another branch cancels this one.
func (n *node) behind() bool { return n.ctx.Err() != nil && !n.pastHistory.Load() }

// passHistory marks the branch as past its history: it begins an operation that is not in the history, or waits for
// one. That wakes closed branches that wait for this branch, because in the history they waited no longer. If the
// branch belongs to a group, the history does not have the group's end either, so the branch above is past its history,
// too.
func (n *node) passHistory(fire func(*event)) {
	for ; n != nil && n.pastHistory.CompareAndSwap(false, true); n = n.parent {
		fire(&n.result.past)
		if n.result.group == nil {
			return
		}
	}
}

// die notes that the decision of the branch's group has ended the branch.
func (f *fate) die() { f.dead.Store(true) }

func (f *fate) isDead() bool { return f.dead.Load() }

// lose keeps the branch, and those below it, from recording anything more.
func (f *fate) lose() { f.lost.Store(true) }

// raceNoMoreLocked notes that the branch has won its Race, or that no branch has.
func (f *fate) raceNoMoreLocked() { f.racing = false }

// outrunLocked notes that another branch has won the branch's Race.
func (f *fate) outrunLocked() { f.outrun = true }

// endsWith notes that the failure has ended the branch, unless something else has. always says that it does so
// in any case, if it is not nil.
func (f *fate) endsWith(end *knownFailure, always bool) {
	if f.end == nil || always && end != nil {
		f.end = end
	}
}

// joins makes the branch, which has not begun, a member of a group. races says that the group is an undecided Race.
func (n *node) joins(g *ends, index int, races bool) {
	n.racing = races
	n.result.group, n.result.index = g, index
}

// gaveBack reports whether the branch, or one above it, has failed or lost a Race: what it had reserved goes back. It
// is the same in a replay.
func (n *node) gaveBack() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at := n; at != nil; at = at.parent {
		if at.outrun || at.result.err != nil {
			return true
		}
	}
	return false
}

// followedFailure returns a failure that the function has dealt with.
func followedFailure() *knownFailure {
	f := &knownFailure{}
	f.followed.Store(true)
	return f
}

// addTo adds the failure's ID, unless the function has dealt with it.
func (f *knownFailure) addTo(ids map[string]bool) {
	if !f.stands() {
		ids[f.id] = true
	}
}

// keep lets the failure stand until an operator decides otherwise. The execution's mutex guards that.
func (f *knownFailure) keep(is bool) { f.kept = is }

// keptLocked adds the failure's ID if it stands until an operator decides otherwise.
func (f *knownFailure) keptLocked(ids map[string]bool) {
	if f.kept {
		ids[f.id] = true
	}
}

// stands reports whether the function has dealt with the failure: something was begun after it, or after the end of a
// branch that contains it.
func (f *knownFailure) stands() bool {
	if f.followed.Load() {
		return true
	}
	for n := f.by; n != nil; n = n.parent {
		if n.end != nil && n.end.followed.Load() {
			return true
		}
	}
	return false
}

// unaskedLocked returns the failure of a branch that was not asked for, and that counts by itself.
func (r *branchResult) unaskedLocked() (f BranchFailure, failed bool) {
	if !r.done.hasFiredLocked() || r.err == nil || r.asked || r.of != nil && r.of.belowEndedBranch() {
		return f, false
	}
	return BranchFailure{Name: r.name, Err: r.err}, true
}
