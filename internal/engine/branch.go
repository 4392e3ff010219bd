package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Branch is a part of a run with a goroutine of its own: the run's own, or one that the function has begun.
type Branch struct {
	e      *execution
	parent *Branch // nil of the run's own
	prefix string  // of the IDs of its steps: "" or "ship/"
	ctx    context.Context
	cancel context.CancelCauseFunc
	result *branchResult

	// Set before the branch's goroutine begins, and never again.
	closed   bool           // the history has its end, or that of a branch above it: nothing begins on it
	closedAt time.Time      // when the first of these ends was, by the database's clock; zero if it is not closed
	row      *store.StepRow // its failure in the history; nil if there is none
	attempt  int            // of the newest record of its failure

	// Only the branch's goroutine uses these, and who has waited for it once it has ended.
	names         map[string]int            // how often each was used
	patches       map[string]bool           // what Patched said
	registered    map[string]*registrations // compensations, by ID
	leftovers     []leftover                // of a fork: compensations that are left with the other run
	lastLookup    historyLookup             // what it last asked the history for
	now           time.Time                 // the time of the last recorded event that the function has passed
	own           int                       // steps and branches of this branch in the history
	reached       int                       // of own, those that the function has come to. It grows from 0 to own.
	reachedCopied int                       // of those that a fork has copied, likewise
	replayed      int                       // of own, those that the function has passed: their results were returned
	started       bool                      // it has started branches
	discarded     bool                      // in mode verify: it came to an operation that the history does not have, and its goroutine exits
	misusedInStep error                     // the step whose function is being executed called a durable operation of this branch
	unfollowed    []*knownFailure           // that it knows of, and began nothing after

	logOnce sync.Once // a step of the branch may log from goroutines of its own
	log     *slog.Logger

	end    *knownFailure // what ended it: its own failure, set by failLocked, or its group's decision, set by group.learn; nil if nothing did
	racing bool          // it is in a Race that is not decided: what it takes is its own only if it wins. The execution's mutex guards it.

	goid        atomic.Uintptr // of its goroutine while that lives; 0 afterwards
	inStep      atomic.Bool    // a step's function is being executed. Its goroutine sets and resets it.
	live        atomic.Bool    // its Logger speaks: the function is past its history. Its goroutine sets it, for good.
	pastHistory atomic.Bool    // it came to an operation that the history does not have, or waits for one. Set by passHistory, for good.
	dead        atomic.Bool    // it has failed, or its group was decided without it, and that is recorded or deferred. Never reset.
	lost        atomic.Bool    // set by group.lose: it lost a race. It and the branches below it record nothing any more.
}

// A historyLookup is what the branch last asked the history for.
type historyLookup struct {
	id, kind string
	found    bool
}

// A branchResult says how a branch ended. Its execution's mutex guards it.
type branchResult struct {
	of    *Branch // nil if it was never started
	name  string
	done  event // fired once, by settleBranch
	past  event // the branch is done, or has passed its history
	err   error
	now   time.Time // the branch's Now at its end
	asked bool      // somebody asked for it, or cancelled the branch: its error is not the run's by itself
	group *ends     // of the group that the branch belongs to, as its index-th
	index int
}

// ends are the branches of a group in the order in which they ended. The execution's mutex guards them.
type ends struct {
	event
	order []int
}

func (b *Branch) Done() <-chan struct{} { return b.ctx.Done() }

func (b *Branch) Err() error { return context.Cause(b.ctx) }

func (b *Branch) RunID() string { return b.e.runID }

// FireTime is the tick that the run stands for, zero if no schedule has fired it.
func (b *Branch) FireTime() time.Time { return b.e.run.FireAt.UTC() }

func (b *Branch) Attempt() int { return b.e.attempt }

func (b *Branch) Now() time.Time { return b.now.UTC() } // a step may be named after it, wherever it is replayed

func (b *Branch) Logger() *slog.Logger {
	b.logOnce.Do(func() { b.log = slog.New(replayHandler{b.e.log().Handler(), b}) })
	return b.log
}

// replayHandler drops what a function logs while it comes past recorded steps: it was logged the first time.
type replayHandler struct {
	slog.Handler
	b *Branch
}

func (h replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.b.live.Load() && h.Handler.Enabled(ctx, level)
}

func (h replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return replayHandler{h.Handler.WithAttrs(attrs), h.b}
}

func (h replayHandler) WithGroup(name string) slog.Handler {
	return replayHandler{h.Handler.WithGroup(name), h.b}
}

// root is the run's own branch.
func (b *Branch) root() *Branch {
	for b.parent != nil {
		b = b.parent
	}
	return b
}

// under reports whether b is other, or a branch below it.
func (b *Branch) under(other *Branch) bool {
	for ; b != nil; b = b.parent {
		if b == other {
			return true
		}
	}
	return false
}

func (b *Branch) hasLost() bool {
	for ; b != nil; b = b.parent {
		if b.lost.Load() {
			return true
		}
	}
	return false
}

// hasEnded reports whether b or a branch above it has failed, was cancelled by its group, or has lost. The end of the run's
// own branch is that of an attempt, after which children go on.
func (b *Branch) hasEnded() bool {
	for ; b.parent != nil; b = b.parent {
		if b.closed || b.dead.Load() {
			return true
		}
	}
	return false
}

// isOver reports whether the branch was cancelled, has lost, or had ended in the history: how it ends now is not recorded.
func (b *Branch) isOver() bool { return b.closed || b.ctx.Err() != nil || b.hasLost() }

// mayLose reports whether b, or a branch above it, is in a Race that is not decided.
func (b *Branch) mayLose() bool {
	for ; b != nil; b = b.parent {
		if b.racing {
			return true
		}
	}
	return false
}

// belowEndedBranch reports whether a branch above has failed, was cancelled or has lost: that says all there is to say about those
// below it. The execution's mutex is held.
func (b *Branch) belowEndedBranch() bool {
	if b == nil {
		return false
	}
	for p := b.parent; p != nil && p.parent != nil; p = p.parent {
		if p.closed || p.lost.Load() || p.result.err != nil || errors.Is(context.Cause(p.ctx), kind.Cancelled) {
			return true
		}
	}
	return false
}

// belowFailedBranch reports whether a branch above has failed: that cancelled this one, wherever it was. The execution's mutex is
// held.
func (b *Branch) belowFailedBranch() bool {
	for b = b.parent; b != nil; b = b.parent {
		if b.result.done.fired > 0 && b.result.err != nil {
			return true
		}
	}
	return false
}

// close notes that the history has an end of the branch, or of one above it, which was then.
func (b *Branch) close(at time.Time) {
	if !b.closed || at.Before(b.closedAt) {
		b.closedAt = at
	}
	b.closed = true
}

// outlived reports whether what ended at that time, on another branch, ended after the branch itself: in its execution the
// branch has not learned of it.
func (b *Branch) outlived(at time.Time) bool { return b.closed && at.After(b.closedAt) }

// recorded reports whether the history knows of a step or branch.
func (b *Branch) recorded(id string) bool {
	_, below := b.e.own[id+"/"]
	return below || b.e.history[id] != nil
}

// owned reports whether the caller is the branch's goroutine, outside of a step of its own. Then it may exit it.
func (b *Branch) owned() bool { return !b.inStep.Load() && goroutine.ID() == b.goid.Load() }

// foreign says what is wrong if the caller does not own the branch, and notes it.
func (b *Branch) foreign() error {
	if b.inStep.Load() && goroutine.ID() == b.goid.Load() {
		b.misusedInStep = failure.Explain("a durable operation inside of a step: call it before or after the step, in the workflow function", ErrForeignGoroutine)
		return b.misusedInStep
	}
	b.noteMisuse(ErrForeignGoroutine)
	return ErrForeignGoroutine
}

// Misuse is err as the failure of a call that is wrong. It notes the failure.
func (b *Branch) Misuse(err error) error {
	err = failure.BadRequest(err)
	b.noteMisuse(err)
	return err
}

// noteMisuse keeps the run from completing, should the function drop the error of a wrong call: what the call was to do
// has not happened. Any goroutine may call it. What a branch does that was cancelled, or has lost a race, does not count.
func (b *Branch) noteMisuse(err error) {
	if b.hasLost() || errors.Is(context.Cause(b.ctx), kind.Cancelled) {
		return
	}
	e := b.e
	e.mu.Lock()
	first := e.misused == nil
	if first {
		e.misused = err
	}
	e.mu.Unlock()
	if first {
		e.log().Warn("kagzi: a call in a workflow is wrong", "error", text.OneLine(err.Error()))
	}
}
