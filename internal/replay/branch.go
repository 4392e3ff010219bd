package replay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Branch is a part of a run with a goroutine of its own: the workflow function, or a branch that it has begun. See
// doc_groups.go.
type Branch struct {
	*identity

	replayer     // its way through the history, and its records
	failedBefore // in the history
	undoing      // compensations
	knowing      // what its function has learned
	setting      // its changes of values
	stepping     // the step that is under way
	logging
	goroutineOf
	operating
}

// A replayer takes a branch through its history: it looks records up, and lets the branch wait. It exits the goroutine
// where nothing may begin. Only the branch's goroutine calls its methods.
type replayer struct {
	e *Run
	recorder
	passage
	prefix string // of the IDs of the branch's operations: "" or "ship/"
}

// A failedBefore is the failure of a branch in the history. It is set before the branch's goroutine begins, and does
// not change afterwards.
type failedBefore struct {
	row     *store.StepRow // nil if there is none or a retry has forgotten it
	attempt int            // of the newest record of it; zero if there is none
}

// A passage is how far a branch has come in its history. Only the branch's goroutine uses it while it lives, but for
// live. Afterwards branches that have waited for its end may read it.
type passage struct {
	names      map[string]int  // how often each name of an operation was used
	patches    map[string]bool // the answers of Patched, by the name of the change
	lastLookup historyLookup   // the operation that it last looked up in the history
	// the time of the last recorded event that the function has passed; never moves back
	now time.Time
	// how many steps and branches the history has directly under this branch. Set by begin.
	own     int
	reached int // how many of own the function has reached. enter counts it up to own.
	// in a fork: how many of the copied operations of this branch the function has reached. enter counts it up.
	reachedCopied int
	// how many of own the function has passed: their results were returned. Counted by replay.
	replayed int
	// it reached, in mode verify, an unrecorded operation, and exits. Set by exitUnrecorded, for good.
	discarded bool
	// the function is past its history: it logs, unless the branch is closed. The branch's goroutine sets it, for good.
	live atomic.Bool
}

// An undoing has a branch's compensations. It is used like a passage.
type undoing struct {
	by         *replayer                 // the branch's. Set by begin.
	registered map[string]*registrations // by ID
	leftovers  []leftover                // in a fork: those that stay with the source run
}

// A knowing is what a branch's function has learned. It is used like a passage.
type knowing struct {
	by *replayer // the branch's. Set by begin.
	// the changes of metadata that it knows, in their order. The slice is replaced, never changed.
	metadata   []metadataChange
	unfollowed []*knownFailure // failures that it knows of, and after which it has begun nothing. follow empties it.
}

// A logging is the Logger of a branch.
type logging struct {
	logOnce sync.Once // a step of the branch may log from goroutines of its own
	log     *slog.Logger
}

// A goroutineOf says on which goroutine a branch is.
type goroutineOf struct {
	goid  atomic.Uintptr // its ID. Set by begin, reset to 0 by ends.
	place int            // of the branch in the guarded ones. The execution's mutex guards it.
}

// A guarded lists the branches of an execution whose goroutines have begun and not ended.
type guarded struct {
	mu  *sync.Mutex // the execution's, which guards the list
	all []*Branch   // added by begin, removed by settleBranch
}

// guards notes that the branch's goroutine has begun.
func (g *guarded) guards(b *Branch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b.place = len(g.all)
	g.all = append(g.all, b)
}

// guardsNoMoreLocked notes that the branch's goroutine ends.
func (g *guarded) guardsNoMoreLocked(b *Branch) {
	all := g.all
	if b.place >= len(all) || all[b.place] != b { // begin did not come so far
		return
	}
	last := len(all) - 1
	all[b.place], all[last].place = all[last], b.place
	all[last] = nil
	g.all = all[:last]
}

// addGuardedLocked appends the branches whose goroutines have begun and not ended.
func (g *guarded) addGuardedLocked(to []*Branch) []*Branch { return append(to, g.all...) }

// An operating counts the operations of a branch: the low half those under way, the high half those that have ended.
type operating struct{ operations atomic.Int64 }

// An operation is a call of the workflow's code into the engine.
type operation struct{ of *operating }

// operate counts an operation as under way until done is called. For the watchdog, a branch without one is in the
// application's code.
func (o *operating) operate() operation {
	o.operations.Add(1)
	return operation{o}
}

func (o operation) done() { o.of.operations.Add(1<<32 - 1) }

// in UTC: a step may be named after it, and must have the same name in every replay
func (p *passage) Now() time.Time { return p.now.UTC() }

// afterNow returns a time for the end of an operation that does not wait for its write: see endsAfter.
func (p *passage) afterNow(now time.Time) time.Time { return p.endsAfter(time.Microsecond, now) }

// endsAfter returns a time for the end of an operation that took so long: now, by the estimate of the database's clock,
// which lags, and that long after the branch's last event, because a fork compares these times.
func (p *passage) endsAfter(took time.Duration, now time.Time) time.Time {
	at := p.now.Add(took)
	if now.After(at) {
		at = now
	}
	return at.Truncate(time.Microsecond) // as a replay reads it
}

// notBefore returns the time, or that of the branch's last event if that is later.
func (p *passage) notBefore(at time.Time) time.Time {
	if p.now.After(at) {
		return p.now
	}
	return at
}

// Misuse returns err as the failure of a wrong call, and notes it.
func (b *Branch) Misuse(err error) error {
	err = failure.BadRequest(err)
	b.noteMisuse(err)
	return err
}

// noteMisuse keeps the run from completing, even if the function drops the error of a wrong call: the call had no
// effect. Any goroutine may call it. A branch that was cancelled, or has lost a race, does not count.
func (b *Branch) noteMisuse(err error) {
	if b.hasLost() || errors.Is(context.Cause(b.ctx), kind.Cancelled) {
		return
	}
	e := b.e
	e.Lock()
	first := e.misuseLocked(err)
	e.Unlock()
	if first {
		e.log().Warn("kagzi: a call in a workflow is wrong", "error", text.OneLine(err.Error()))
	}
}

// A metadataChange is a recorded change of the run's metadata. An empty value removes a tag.
type metadataChange struct {
	position int64 // of the record: the changes of all branches apply in this order
	tags     map[string]string
}
