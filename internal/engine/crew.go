package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A crew executes the run: the goroutines of its branches, their waits and their results. The execution's mutex guards
// the fields. The crew's files lock it, and a method ending in Locked is called with it.
type crew struct {
	mu    *sync.Mutex // the execution's
	begun bool        // set by begin: execute was called, or is about to be, and its goroutines settle the execution
	// goroutines that have not ended. Future.start adds one, settleBranch removes one; 1 before the execution begins.
	// busy == 0 and live > 0 means that all of them wait.
	live     int
	busy     int // of them, those that do not wait. waitFor removes one, wakeLocked adds one
	waits    []*wait
	guarded  []*Branch // whose goroutines have begun and not ended. Added by init, removed by settleBranch.
	paused   bool      // its row says that the branches are to park. Set by setPaused.
	unpaused event     // paused was reset
	// set by noteMisuse: the first wrong call. The run does not complete, even if the function drops this error.
	misused error

	// settleBranch sets output, err and returned.
	output   []byte          // the function's
	err      error           // the function's
	returned bool            // the function returned, or it panicked
	branches []*branchResult // begun by Go, in their order
	failures []*knownFailure // that branches were given
}

// newCrew returns a crew of one goroutine, which is about to begin.
func newCrew(mu *sync.Mutex) crew { return crew{mu: mu, live: 1, busy: 1} }

// hasBegunLocked reports whether the function was called, or is about to be.
func (c *crew) hasBegunLocked() bool { return c.begun }

// isLiveLocked reports whether a goroutine has not ended.
func (c *crew) isLiveLocked() bool { return c.live > 0 }

// waitsLocked reports whether all goroutines wait.
func (c *crew) waitsLocked() bool { return c.live > 0 && c.busy == 0 }

// startLocked notes that a goroutine begins.
func (c *crew) startLocked() {
	c.live++
	c.busy++
}

// addBranchLocked notes that Go has begun the branch.
func (c *crew) addBranchLocked(r *branchResult) { c.branches = append(c.branches, r) }

// dismissLocked gives up the goroutine that was about to begin.
func (c *crew) dismissLocked() { c.live, c.busy, c.begun = 0, 0, false }

// addGuardedLocked appends the branches whose goroutines have begun and not ended.
func (c *crew) addGuardedLocked(to []*Branch) []*Branch { return append(to, c.guarded...) }

// isPausedLocked reports whether the branches are to park.
func (c *crew) isPausedLocked() bool { return c.paused }

// misuseLocked notes the error of a wrong call, and reports whether it is the first.
func (c *crew) misuseLocked(err error) (first bool) {
	first = c.misused == nil
	if first {
		c.misused = err
	}
	return first
}

// giveFailureLocked notes that a branch was given the failure.
func (c *crew) giveFailureLocked(f *knownFailure) { c.failures = append(c.failures, f) }

// knownLocked returns the failures that branches were given, and the branches that Go has begun.
func (c *crew) knownLocked() ([]*knownFailure, []*branchResult) { return c.failures, c.branches }

// overruleLocked lets the function fail with err, although it has succeeded.
func (c *crew) overruleLocked(err error) { c.err = err }

// resultLocked returns the function's output. returned reports whether the function has returned.
func (c *crew) resultLocked() (output []byte, returned bool) { return c.output, c.returned }

// An event is something that branches wait for. It may happen more than once.
type event struct {
	fired   int     // how often it happened
	calls   int     // how many of these were because the run may have been called, for a step that waits for a limit
	waiters []*wait // for the next time it happens
}

// A wait is a branch that waits until a time, for an event, or for either. See doc_waits.go.
type wait struct {
	b        *Branch         // nil if the wait suspends the run at once
	ctx      context.Context // ends the wait: the branch's, or the execution's if anyway is set
	until    time.Time       // by the database's clock; zero: the wait is for an event alone
	why      string          // for people: what the run waits for. A wait for a branch alone does not show it.
	need     int             // how many further wake-ups of the run may end the wait; zero: none does
	child    bool            // the wake-ups are ends of children
	inMemory bool            // it does not last: the run is not suspended meanwhile
	parked   bool            // the branch waits until the run is no longer paused
	anyway   bool            // the branch waits although it is cancelled: see waitAnyway
	woken    chan struct{}   // closed by wakeLocked, which counts the branch busy again
}

// fireLocked notes that ev has happened, and wakes the branches that wait for it.
func (c *crew) fireLocked(ev *event) {
	ev.fired++
	for _, w := range ev.waiters {
		c.wakeLocked(w)
	}
	ev.waiters = nil
}

// wakeLocked ends the wait, unless it has ended, and counts its branch busy again.
func (c *crew) wakeLocked(w *wait) {
	i := slices.Index(c.waits, w)
	if i < 0 {
		return
	}
	c.waits = slices.Delete(c.waits, i, i+1)
	c.busy++
	close(w.woken)
}

// earliestLocked returns the wait that ends first by its time. ok is false if none has a time.
func (c *crew) earliestLocked() (first *wait, ok bool) {
	for _, w := range c.waits {
		if !w.until.IsZero() && (first == nil || w.until.Before(first.until)) {
			first = w
		}
	}
	return first, first != nil
}

// needLocked returns how many further wake-ups of the run may end a wait, at the least; zero if none ends any.
func (c *crew) needLocked() (need int) {
	for _, w := range c.waits {
		if w.need > 0 && (need == 0 || w.need < need) {
			need = w.need
		}
	}
	return need
}

// A knownFailure is a recorded failure that a branch was given. See doc_steps.go.
type knownFailure struct {
	id       string      // of its record
	by       *Branch     // the branch that was given it
	followed atomic.Bool // a branch that knew of it has begun something after it. Set by follow, for good.
}
