package replay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/waits"
)

// A crew executes the run: the goroutines of its branches, their waits and their results. The execution's mutex guards
// the fields. The crew's files lock it, and a method ending in Locked is called with it.
type crew struct {
	mu     *sync.Mutex // the execution's
	env    *Env
	begun  bool // set by begin: execute was called, or is about to be, and its goroutines settle the execution
	loaded bool // the history is read, or needs not to be: set by Load
	// goroutines that have not ended. Future.start adds one, settleBranch removes one; 1 before the execution begins.
	// busy == 0 and live > 0 means that all of them wait.
	live     int
	busy     int // of them, those that do not wait. wait removes one, wakeLocked adds one
	waits    []*wait
	paused   bool  // its row says that the branches are to park. Set by setPaused.
	unpaused event // paused was reset
	// set by noteMisuse: the first wrong call. The run does not complete, even if the function drops this error.
	misused error

	functionEnd
	branches []*branchResult // begun by Go, in their order
	failures []*knownFailure // that branches were given
	beyond   []unrecorded    // the branches that exited at an unrecorded operation, in mode verify
}

// A functionEnd is the result of the run's function. settleBranch sets it.
type functionEnd struct {
	output   []byte
	err      error
	returned bool // the function returned, or it panicked
}

// An unrecorded is a branch that reached an operation whose result is not in the history.
type unrecorded struct {
	by   *node
	what historyLookup
}

// reachLocked notes that the branch has reached an operation whose result is not in the history; its goroutine exits.
func (c *crew) reachLocked(by *node, what historyLookup) {
	c.beyond = append(c.beyond, unrecorded{by, what})
}

// beyondLocked returns the first unrecorded operation that the code comes to; the message is empty if there is none.
// additions allows operations that the history does not have. added says that the code has come to such a one.
func (c *crew) beyondLocked(additions bool) (step, message string, added bool) {
	for _, u := range c.beyond {
		switch {
		case u.by.belowFailedBranch():
		case additions && u.what.isNew():
			added = true
		default:
			step, message = u.what.beyond()
			return step, message, false
		}
	}
	return "", "", added
}

// newCrew returns a crew of one goroutine, which is about to begin.
func newCrew(mu *sync.Mutex, env *Env) crew { return crew{mu: mu, env: env, live: 1, busy: 1} }

// hasBegunLocked reports whether the function was called, or is about to be.
func (c *crew) hasBegunLocked() bool { return c.begun }

// loadedLocked notes that the history is read.
func (c *crew) loadedLocked() { c.loaded = true }

// isUnreadLocked reports whether the function has not begun because the history is still to be read.
func (c *crew) isUnreadLocked() bool { return !c.begun && !c.loaded }

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

// misusedLocked returns the error of the first wrong call, nil if there was none.
func (c *crew) misusedLocked() error { return c.misused }

// giveFailureLocked notes that a branch was given the failure.
func (c *crew) giveFailureLocked(f *knownFailure) { c.failures = append(c.failures, f) }

// knownLocked returns the failures that branches were given, and the branches that Go has begun.
func (c *crew) knownLocked() ([]*knownFailure, []*branchResult) { return c.failures, c.branches }

// overruleLocked lets the function fail with err, although it has succeeded.
func (c *crew) overruleLocked(err error) { c.err = err }

// resultLocked returns the function's output. returned reports whether the function has returned.
func (c *crew) resultLocked() (output []byte, returned bool) { return c.output, c.returned }

// result returns the output of the function.
func (c *crew) result() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output
}

// outcome returns the error of the execution: of the function, else of a failed branch that was not asked for, else of
// a wrong call.
func (c *crew) outcome() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for _, r := range c.branches {
		if f, failed := r.unaskedLocked(); failed {
			return c.env.errors().Branch(f)
		}
	}
	return c.misused
}

// An event is something that branches wait for. It may happen more than once.
type event struct {
	fired   int     // how often it happened
	calls   int     // how many of these were because the run may have been called, for a step that waits for a limit
	waiters []*wait // for the next time it happens
}

// A wait is a branch that waits until a time, for an event, or for either. See doc_waits.go.
type wait struct {
	by       *node           // the branch; nil if the wait suspends the run at once
	ctx      context.Context // ends the wait: the branch's, or the execution's if anyway is set
	until    time.Time       // by the database's clock; zero: the wait is for an event alone
	what     waits.Wait      // what the run waits for; zero for a wait for a branch alone
	need     int             // how many further wake-ups of the run may end the wait; zero: none does
	child    bool            // the wake-ups are ends of children
	looks    bool            // until is when the branch looks again, and no end; what has the end
	inMemory bool            // it does not last: the run is not suspended meanwhile
	parked   bool            // the branch waits until the run is no longer paused
	anyway   bool            // the branch waits although it is cancelled: see waitAnyway
	woken    chan struct{}   // closed by wakeLocked, which counts the branch busy again
}

// A next is what an event does after it has happened a number of times: it happens again. The zero value never comes.
type next struct {
	on   *event
	past int // how often it happened before
}

// firstOf is the first time that the event happens.
func firstOf(on *event) next { return next{on: on} }

// nextLocked is the next time that the event happens.
func (ev *event) nextLocked() next { return next{ev, ev.fired} }

// heardLocked is nextLocked, with how often the run may have been called.
func (ev *event) heardLocked() (on next, calls int) { return ev.nextLocked(), ev.calls }

// hasFiredLocked reports whether the event has happened.
func (ev *event) hasFiredLocked() bool { return ev.fired > 0 }

// hasComeLocked reports whether it has happened.
func (n next) hasComeLocked() bool { return n.on != nil && n.on.fired > n.past }

// isUnrecorded reports whether the end of the wait is not in the history.
func (w *wait) isUnrecorded() bool { return !w.until.IsZero() || w.need > 0 }

// fireLocked notes that ev has happened, and wakes the branches that wait for it.
func (c *crew) fireLocked(ev *event) {
	ev.fired++
	for _, w := range ev.waiters {
		c.wakeLocked(w)
	}
	ev.waiters = nil
}

// fire is fireLocked with the lock.
func (c *crew) fire(ev *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fireLocked(ev)
}

// callLocked is fireLocked because the run may have been called.
func (c *crew) callLocked(ev *event) {
	ev.calls++
	c.fireLocked(ev)
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

// earliestLocked returns when the first wait ends by its time, zero if none has a time.
func (c *crew) earliestLocked() (first time.Time) {
	for _, w := range c.waits {
		if !w.until.IsZero() && (first.IsZero() || w.until.Before(first)) {
			first = w.until
		}
	}
	return first
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
