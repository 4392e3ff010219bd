package replay

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Branch is a part of a run with a goroutine of its own: the workflow function, or a branch that it has begun. See
// doc_groups.go.
type Branch struct {
	e      *Run
	parent *Branch // nil for the run's own branch
	prefix string  // of the IDs of its operations: "" or "ship/"
	ctx    context.Context
	cancel context.CancelCauseFunc
	result *branchResult

	row     *store.StepRow // its failure in the history, nil if there is none or a retry has forgotten it
	attempt int            // of the newest record of its failure; zero if there is none

	closing  // as the history has it
	passage  // through the history
	undoing  // compensations
	knowing  // what its function has learned
	stepping // the step that is under way
	fate     // how it ends
	logging
	place int // in crew.guarded. The execution's mutex guards it.

	goid atomic.Uintptr // the ID of its goroutine. Set by init, reset to 0 by settleBranch when that ends.
	// the low half counts those under way, the high half those that have ended. Set by operate and done.
	operations atomic.Int64
}

// A closing is the end of a branch in the history, or of one above it. It is set, as row and attempt are, before the
// branch's goroutine begins, and does not change afterwards.
type closing struct {
	closed   bool      // there is one: nothing begins on the branch
	closedAt time.Time // the earliest of these ends, by the database's clock; zero if the branch is not closed
}

// A passage is how far a branch has come in its history. Only the branch's goroutine uses it while it lives, but for
// pastHistory. Afterwards branches that have waited for its end may read it.
type passage struct {
	names      map[string]int  // how often each name of an operation was used
	patches    map[string]bool // the answers of Patched, by the name of the change
	lastLookup historyLookup   // the operation that it last looked up in the history
	// the time of the last recorded event that the function has passed; never moves back
	now time.Time
	// how many steps and branches the history has directly under this branch. Set by init.
	own     int
	reached int // how many of own the function has reached. enter counts it up to own.
	// in a fork: how many of the copied operations of this branch the function has reached. enter counts it up.
	reachedCopied int
	// how many of own the function has passed: their results were returned. Counted by replay.
	replayed int
	started  bool // it has begun branches. Set by Future.start, for good.
	// it reached, in mode verify, an unrecorded operation, and exits. Set by exitUnrecorded, for good.
	discarded   bool
	pastHistory atomic.Bool // it has reached an unrecorded operation, or waits for one. Set by passHistory, for good.
}

// An undoing has a branch's compensations. It is used like a passage.
type undoing struct {
	registered map[string]*registrations // by ID
	leftovers  []leftover                // in a fork: those that stay with the source run
}

// A knowing is what a branch's function has learned. It is used like a passage.
type knowing struct {
	// the changes of metadata that it knows, in their order. The slice is replaced, never changed.
	metadata   []metadataChange
	unfollowed []*knownFailure // failures that it knows of, and after which it has begun nothing. follow empties it.
}

// A stepping is the step of a branch that is under way.
type stepping struct {
	display display
	awaits  awaitedRuns
	inStep  atomic.Bool // a step's function is being executed. Its goroutine sets and resets it.
	// a step's function called a durable operation of this branch. Set by foreign, reset for each attempt.
	misusedInStep error
}

// A fate is how a branch ends.
type fate struct {
	// end is the failure that ended the branch: its own, set by failLocked, or its group's decision, set by
	// group.learn. It is nil if there is none.
	end *knownFailure

	// racing says that the branch is in an undecided Race: messages that it takes are its own only if it wins. It is
	// set by group.start, and reset when the branch wins or no branch does. The execution's mutex guards it.
	racing bool

	// outrun says that another branch has won the branch's Race, in this execution or in the history. It is set by
	// group.learn, for good. The execution's mutex guards it.
	outrun bool

	// it has failed, or its group was decided without it; recorded or deferred. Set by failLocked and markDead, for
	// good.
	dead atomic.Bool
	// it lost a race: it and the branches below it record nothing any more. Set by group.lose, for good.
	lost atomic.Bool
}

// A logging is the Logger of a branch.
type logging struct {
	logOnce sync.Once // a step of the branch may log from goroutines of its own
	log     *slog.Logger
	// it logs, because the function is past its history. The branch's goroutine sets it, for good.
	live atomic.Bool
}

// A historyLookup is an operation that a branch has looked up in the history.
type historyLookup struct {
	id, kind string
	found    bool
}

// A branchResult is the end of a branch. Its execution's mutex guards it.
type branchResult struct {
	of    *Branch // nil if it was never started
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

func (b *Branch) Done() <-chan struct{} { return b.ctx.Done() }

func (b *Branch) Err() error { return context.Cause(b.ctx) }

func (b *Branch) RunID() string { return b.e.id() }

// ExternalID returns the ID that the run has for the application; empty if it has none.
func (b *Branch) ExternalID() string { return b.e.ExternalID }

// FireTime returns the tick that the run stands for, zero if no schedule has fired it.
func (b *Branch) FireTime() time.Time { return b.e.FireAt.UTC() }

// Headers returns the run's headers, nil if it has none. They must not be changed.
func (b *Branch) Headers() map[string]string { return b.e.decodedHeaders() }

func (b *Branch) Attempt() int { return b.e.runAttempt() }

// in UTC: a step may be named after it, and must have the same name in every replay
func (b *Branch) Now() time.Time { return b.now.UTC() }

func (b *Branch) Logger() *slog.Logger {
	b.logOnce.Do(func() { b.log = slog.New(replayHandler{b.e.log().Handler(), b}) })
	return b.log
}

// A replayHandler drops the lines that a function logs while it passes recorded steps: the first execution has logged
// them.
type replayHandler struct {
	slog.Handler
	b *Branch
}

func (h replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.b.live.Load() && h.Handler.Enabled(h.context(ctx), level)
}

func (h replayHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.Handler.Handle(h.context(ctx), r)
}

// context returns the branch's context for a line that has none, so that the application's handler finds what
// interceptors put into it.
func (h replayHandler) context(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return h.b.ctx
	}
	return ctx
}

func (h replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return replayHandler{h.Handler.WithAttrs(attrs), h.b}
}

func (h replayHandler) WithGroup(name string) slog.Handler {
	return replayHandler{h.Handler.WithGroup(name), h.b}
}

// root returns the run's own branch.
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

// hasLost reports whether b or a branch above it has lost a race.
func (b *Branch) hasLost() bool {
	for ; b != nil; b = b.parent {
		if b.lost.Load() {
			return true
		}
	}
	return false
}

// hasEnded reports whether b or a branch above it has failed, was cancelled by its group, or has lost. The run's own
// branch does not count: its end is the end of an attempt, after which children go on.
func (b *Branch) hasEnded() bool {
	for ; b.parent != nil; b = b.parent {
		if b.closed || b.dead.Load() {
			return true
		}
	}
	return false
}

// isOver reports whether the branch was cancelled, has lost, or has its end in the history: then this execution does
// not record how it ends.
func (b *Branch) isOver() bool { return b.closed || b.ctx.Err() != nil || b.hasLost() }

// mayLose reports whether b, or a branch above it, is in an undecided Race.
func (b *Branch) mayLose() bool {
	for ; b != nil; b = b.parent {
		if b.racing {
			return true
		}
	}
	return false
}

// belowEndedBranch reports whether a branch above b, other than the run's own, has failed, was cancelled or has lost:
// then a failure of b does not count by itself. The execution's mutex is held.
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

// belowFailedBranch reports whether a branch above b has failed: that cancelled b, at whatever point it was. The
// execution's mutex is held.
func (b *Branch) belowFailedBranch() bool {
	for b = b.parent; b != nil; b = b.parent {
		if b.result.done.fired > 0 && b.result.err != nil {
			return true
		}
	}
	return false
}

// close notes that the history has an end of the branch, or of one above it, at that time.
func (b *Branch) close(at time.Time) {
	if !b.closed || at.Before(b.closedAt) {
		b.closedAt = at
	}
	b.closed = true
}

// outlived reports whether another branch's end, at that time, came after the recorded end of b: then b did not see it
// when it was first executed.
func (b *Branch) outlived(at time.Time) bool { return b.closed && at.After(b.closedAt) }

// recorded reports whether the history has the step or branch id.
func (b *Branch) recorded(id string) bool { return b.e.hasRecorded(id) }

// owned reports whether the caller is the branch's goroutine, outside of a step's function. Only then may it exit the
// goroutine.
func (b *Branch) owned() bool { return !b.inStep.Load() && goroutine.ID() == b.goid.Load() }

// foreign returns the error for a caller that does not own the branch, and notes it.
func (b *Branch) foreign() error {
	if b.inStep.Load() && goroutine.ID() == b.goid.Load() {
		b.misusedInStep = failure.Explain("a durable operation inside of a step: call it before or after the step, "+
			"in the workflow function", ErrForeignGoroutine)
		return b.misusedInStep
	}
	b.noteMisuse(ErrForeignGoroutine)
	return ErrForeignGoroutine
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

// Metadata returns the run's metadata as b sees them: those of the start, with the changes of b, those that the
// branches above it had made when b began, and those of branches that b has waited for. So a replay sees the same. The
// map is the caller's.
func (b *Branch) Metadata() map[string]string {
	all := map[string]string{}
	if b.e.Metadata != nil {
		_ = json.Unmarshal(b.e.Metadata, &all) // the client wrote a map of strings
	}
	for _, c := range b.metadata {
		for key, value := range c.tags {
			if value == "" {
				delete(all, key)
			} else {
				all[key] = value
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// knowMetadata adds changes to those that b knows.
func (b *Branch) knowMetadata(changes ...metadataChange) {
	if len(changes) == 0 {
		return
	}
	all := append(slices.Clip(b.metadata), changes...) // a copy: branches below b may have the old one
	slices.SortStableFunc(all, func(a, b metadataChange) int { return int(a.position - b.position) })
	b.metadata = slices.CompactFunc(all, func(a, b metadataChange) bool { return a.position == b.position })
}

// withMetadata returns the metadata that b would see after the change.
func (b *Branch) withMetadata(c metadataChange) map[string]string {
	with := Branch{e: b.e, knowing: knowing{metadata: append(slices.Clip(b.metadata), c)}}
	return with.Metadata()
}
