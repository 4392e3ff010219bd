package engine

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"strconv"
	"strings"
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

// root is the run's own branch.
func (b *Branch) root() *Branch {
	for b.parent != nil {
		b = b.parent
	}
	return b
}

func (b *Branch) Done() <-chan struct{} { return b.ctx.Done() }
func (b *Branch) Err() error            { return context.Cause(b.ctx) }
func (b *Branch) RunID() string         { return b.e.runID }

// FireTime is the tick that the run stands for, zero if no schedule has fired it.
func (b *Branch) FireTime() time.Time { return b.e.run.FireAt.UTC() }
func (b *Branch) Attempt() int        { return b.e.attempt }
func (b *Branch) Now() time.Time      { return b.now.UTC() } // a step may be named after it, wherever it is replayed
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

// init prepares the branch on its own goroutine.
func (b *Branch) init() {
	b.goid.Store(goroutine.ID())
	b.own = b.e.own[b.prefix]
	b.live.Store(b.own == 0 && !b.closed)
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

// enter begins a durable operation and returns the ID under which it is remembered: its name on this branch,
// counted if the name comes again. badName says what is wrong with the name. It ends the goroutine if the execution has
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
	if b.met < b.own && b.recorded(id) {
		b.met++
	}
	if b.e.copied != nil && b.e.hasCopied(id) {
		b.metCopied++
		for i := range b.left {
			b.left[i].pending = false
		}
	}
	return id, nil
}

// cancelled returns the cause if the branch was cancelled. It exits the goroutine if the execution has ended.
func (b *Branch) cancelled() error {
	if b.ctx.Err() == nil {
		return nil
	}
	b.e.exitIfStopped()
	return context.Cause(b.ctx)
}

// behind reports whether the branch was cancelled on its way through its history. It comes past that all the same: what
// the function has seen it sees in every execution, whenever others decide that it ends.
func (b *Branch) behind() bool { return b.ctx.Err() != nil && !b.fresh.Load() }

// recorded reports whether the history knows of a step or branch.
func (b *Branch) recorded(id string) bool {
	_, below := b.e.own[id+"/"]
	return below || b.e.history[id] != nil
}

// hasCopied reports whether the execution's run, a fork, has a step or branch from the other run. What it has forgotten it is
// to execute itself.
func (e *execution) hasCopied(id string) bool {
	_, below := e.copied[id+"/"]
	row := e.history[id]
	return below || row != nil && row.RunAttempt == 0 && !e.forgot(row)
}

// lookedUp is what the branch last asked the history for.
type lookedUp struct {
	id, kind string
	found    bool
}

// lookup returns the history's row of a step, or nil. A row of another kind fails the run: code and history
// cannot both be right.
func (b *Branch) lookup(id, kind string) *store.StepRow {
	row := b.e.history[id]
	b.looked = lookedUp{id, kind, row != nil}
	if row == nil {
		known := b.recorded(id) // a group may have no record but its branches'
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

// begins says that b comes to what the history does not have, which it has looked up, and registers what a fork has left with
// the other run and is about that. It returns an error if nothing begins on the branch any
// more; in a verification, where nothing begins at all, it ends the goroutine.
func (b *Branch) begins() error {
	if err := b.mayBegin(); err != nil {
		return err
	}
	return b.registerLeft(b.looked.id)
}

// mayBegin is begins but for what a fork has left with the other run.
func (b *Branch) mayBegin() error {
	if b.closed {
		return errBranchCancelled
	}
	if err := b.cancelled(); err != nil {
		return err
	}
	b.leaveHistory()
	b.live.Store(true)
	if !b.e.mode.begins() {
		b.exitUnrecorded()
	}
	return nil
}

// leaveHistory says that the branch comes to what its history does not have, or waits for that. Closed branches that wait
// for it learn that: they had not waited for more. A group whose branch goes on does not end in the history either.
func (b *Branch) leaveHistory() {
	for ; b != nil && b.fresh.CompareAndSwap(false, true); b = b.parent {
		b.e.mu.Lock()
		b.e.fireLocked(&b.result.past)
		b.e.mu.Unlock()
		if b.result.group == nil {
			return
		}
	}
}

// goLive lets the branch's Logger speak: the function is past its history. One that has ended there says nothing new.
func (b *Branch) goLive() {
	if !b.closed {
		b.live.Store(true)
	}
}

// forgot reports whether an attempt of the run before this one has forgotten the failure that row is.
func (e *execution) forgot(row *store.StepRow) bool {
	return row.ForgottenBy > 0 && row.ForgottenBy < e.attempt
}

// exitUnrecorded ends the goroutine of a branch that came to what the history does not have. Waiters keep waiting.
func (b *Branch) exitUnrecorded() {
	b.discarded = true
	b.e.mu.Lock()
	b.e.verifier.unrecordedLocked(b)
	b.e.mu.Unlock()
	runtime.Goexit()
}

// passed notes that the function has come past row, a step that ended.
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

// passedBranch notes that the function has come past what is recorded under id.
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

// ownOf counts, for each branch's prefix, the steps and branches right under it of which the history knows. What begins
// with '#' is neither: see [Patched].
func ownOf(history map[string]*store.StepRow) map[string]int {
	own, seen := map[string]int{}, map[string]bool{}
	for id := range history {
		for end := len(id); end > 0 && !seen[id[:end]]; {
			seen[id[:end]] = true
			start := strings.LastIndexByte(id[:end], '/') + 1
			if strings.HasPrefix(id[start:end], "#") || strings.HasSuffix(id[:end], store.CompensationID("")) {
				own[id[:start]] += 0 // the branch is known all the same
			} else {
				own[id[:start]]++
			}
			end = start - 1
		}
	}
	return own
}

// historyOf makes a map of a run's rows.
func historyOf(rows []*store.StepRow) map[string]*store.StepRow {
	if len(rows) == 0 {
		return nil
	}
	return maps.Collect(func(yield func(string, *store.StepRow) bool) {
		for _, r := range rows {
			if !yield(r.StepID, r) {
				return
			}
		}
	})
}
