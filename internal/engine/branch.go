package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// A branch is a part of a run with a goroutine of its own: the run's own, or one that the function has begun.
type Branch struct {
	e      *execution
	prefix string // of the IDs of its steps: "" or "ship/"
	ctx    context.Context
	cancel context.CancelCauseFunc
	goid   atomic.Uintptr // of its goroutine, while that lives: it may be another's afterwards
	result *branchResult

	// Only the branch's goroutine uses these.
	names      map[string]int            // how often each was used
	patches    map[string]bool           // what Patched said
	registered map[string]*registrations // compensations, by ID
	left       []leftover                // of a fork: compensations that are left with the other run
	now        time.Time
	own        int       // steps and branches of this branch in the history
	met        int       // of them, those that the function has come to
	metCopied  int       // of those that a fork has copied, likewise
	replayed   int       // of them, those the function has come past
	started    bool      // it has started branches
	logOnce    sync.Once // a step of the branch may log from goroutines of its own
	log        *slog.Logger

	looked lookedUp

	misusedInStep error // the step whose function is being executed called a durable operation of this branch

	parent     *Branch
	closed     bool            // the history has its end, or that of a branch above it: nothing begins on it
	closedAt   time.Time       // when the first of these ends was, by the database's clock; zero if it is not closed
	row        *store.StepRow  // its failure in the history; nil if there is none
	attempt    int             // of the newest record of its failure
	end        *knownFailure   // what its end came of: its own failure, or the decision of its group; nil if it has none
	unfollowed []*knownFailure // that it knows of, and began nothing after
	racing     bool            // in a Race: what it takes is its own only if it wins
	dead       atomic.Bool     // it has failed, or its group was decided without it: that is recorded, or noted
	fresh      atomic.Bool     // it has come past its history, or waits for what that does not have
	discarded  bool            // of a verification: it has come to what the history does not have. Its goroutine sets it, and exits
	inStep     atomic.Bool     // a step's function is being executed
	live       atomic.Bool     // the function is past its history. Its goroutine sets it; its Logger asks, in other branches too
	mute       atomic.Bool     // lost a race: it and the branches below record nothing any more
}

// lookedUp is what the branch last asked the history for.
type lookedUp struct {
	id, kind string
	found    bool
}

// A branchResult is what became of a branch. Its execution's mutex guards it.
type branchResult struct {
	of    *Branch // nil if it was never started
	name  string
	done  event
	past  event // it is done, or has left its history
	err   error
	now   time.Time // the branch's Now at its end
	asked bool      // somebody looked at it
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

func (b *Branch) muted() bool {
	for ; b != nil; b = b.parent {
		if b.mute.Load() {
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
func (b *Branch) isOver() bool { return b.closed || b.ctx.Err() != nil || b.muted() }

// mayLose reports whether b, or a branch above it, is in a Race that is not decided.
func (b *Branch) mayLose() bool {
	for ; b != nil; b = b.parent {
		if b.racing {
			return true
		}
	}
	return false
}

// covered reports whether a branch above has failed, was cancelled or has lost: that says all there is to say about those
// below it. The execution's mutex is held.
func (b *Branch) covered() bool {
	if b == nil {
		return false
	}
	for p := b.parent; p != nil && p.parent != nil; p = p.parent {
		if p.closed || p.mute.Load() || p.result.err != nil || failure.IsOf(context.Cause(p.ctx), failure.KindCancelled) {
			return true
		}
	}
	return false
}

// orphaned reports whether a branch above has failed: that cancelled this one, wherever it was. The execution's mutex is
// held.
func (b *Branch) orphaned() bool {
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

// misuse is err as the failure of a call that is wrong. It notes the failure.
func (b *Branch) Misuse(err error) error {
	err = failure.BadRequest(err)
	b.noteMisuse(err)
	return err
}

// noteMisuse keeps the run from completing, should the function drop the error of a wrong call: what the call was to do
// has not happened. Any goroutine may call it. What a branch does that was cancelled, or has lost a race, does not count.
func (b *Branch) noteMisuse(err error) {
	if b.muted() || failure.IsOf(context.Cause(b.ctx), failure.KindCancelled) {
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
