package kagzi

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
)

// errBranchCancelled is the cause of a branch that was cancelled because another failed, or won.
var errBranchCancelled = failure.Of(failure.KindCancelled, errors.New("kagzi: branch was cancelled"))

// A Future is the result of a branch.
type Future[T any] struct {
	value  T // guarded, as result is, by the execution's mutex
	result *branchResult
	passed bool  // in the replay of the branch that started it
	err    error // there is no branch
}

// Go runs fn as a branch of its own, on a goroutine of its own, with a Context of its own: its steps are
// remembered under the branch's name, for which the rules of [Step]'s names hold. A run does not complete before
// its branches; the error of one that nobody asked for fails the run. A branch that fails cancels those below it, whose
// errors then count no more, and what failed stays so: a replay begins nothing in it.
func Go[T any](ctx Context, name string, fn func(Context) (T, error)) *Future[T] {
	b, err := branchOf(ctx)
	if err != nil {
		return &Future[T]{err: err}
	}
	id, err := b.enter("branch", name)
	if err == nil && fn == nil {
		err = b.misuse(fmt.Errorf("kagzi: branch %q: the function is nil", name))
	}
	if err == nil {
		err = b.beginsBranch(id)
	}
	f := &Future[T]{}
	if err != nil {
		// Who has cancelled the branch asks for nothing of it any more.
		f.result = &branchResult{name: name, done: event{fired: 1}, past: event{fired: 1}, err: err, asked: b.ctx.Err() != nil}
	} else {
		f.start(b.newBranch(id), fn)
	}
	b.e.mu.Lock()
	b.e.branches = append(b.e.branches, f.result)
	b.e.mu.Unlock()
	return f
}

// start runs fn as the branch that child is.
func (f *Future[T]) start(child *branch, fn func(Context) (T, error)) {
	e := child.e
	f.result = child.result
	child.parent.started = true
	e.mu.Lock()
	if e.reason != underWay {
		e.mu.Unlock()
		runtime.Goexit()
	}
	e.live++
	e.busy++
	e.mu.Unlock()
	go func() {
		var value T
		e.guard(child, func() (err error) {
			value, err = fn(child)
			return err
		}, func() { f.value = value })
	}()
}

// Result waits for the branch and returns what it returned. ctx is the caller's, not the branch's.
func (f *Future[T]) Result(ctx Context) (T, error) {
	var zero T
	if f == nil || f.err == nil && f.result == nil {
		return zero, failure.BadRequest(errors.New("kagzi: the Future is empty: kagzi.Go returns one"))
	}
	if f.err != nil {
		return zero, f.err
	}
	b, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	if !b.owned() {
		return zero, b.foreign()
	}
	b.e.exitIfStopped()
	if err := f.wait(b); err != nil {
		return zero, err
	}
	value, now, err := f.take(b)
	b.advance(now)
	b.learn(f.result.of)
	if !f.passed && strings.HasPrefix(f.result.name, b.prefix) {
		f.passed = true
		b.passedBranch(f.result.name)
	}
	return value, err
}

// wait waits until the branch has ended. What ends in a later execution a closed b has not lived to see, and what waits for
// a branch that has left its history leaves it, too.
func (f *Future[T]) wait(b *branch) error {
	why := "branch " + f.result.name
	if b.closed || !b.fresh.Load() {
		err := b.wait(time.Time{}, why, &f.result.past, 0)
		if err != nil && b.behind() {
			b.waitAnyway(why, &f.result.past, 0)
			if f.doneFor(b) {
				return nil
			}
		}
		if err != nil || f.doneFor(b) {
			return err
		}
		if b.closed {
			return errBranchCancelled
		}
		b.leaveHistory()
	}
	return b.wait(time.Time{}, why, &f.result.done, 0)
}

// doneFor reports whether the branch has ended, and b, if it is closed, has lived to see that.
func (f *Future[T]) doneFor(b *branch) bool {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	return f.result.done.fired > 0 && !b.outlived(f.result.now)
}

// take returns what the branch, which has ended, returned, and its time.
func (f *Future[T]) take(b *branch) (T, time.Time, error) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	f.result.asked = true
	return f.value, f.result.now, f.result.err
}

// Parallel runs the branches and waits for all; the first error cancels the others and is returned as a
// *[BranchError]. With [CollectErrors] every branch runs to its end, and [BranchErrors] has all that failed. With
// a [Timeout], branches that are not done by then are cancelled, and the error is of [KindTimeout] and [Permanent]: in a
// further attempt of the run the time is over, too.
func Parallel(ctx Context, name string, branches map[string]func(Context) error, opts ...BranchOption) error {
	wrapped := make(map[string]func(Context) (struct{}, error), len(branches))
	for n, fn := range branches {
		if wrapped[n] = nil; fn != nil {
			wrapped[n] = func(ctx Context) (struct{}, error) { return struct{}{}, fn(ctx) }
		}
	}
	g, err := newGroup(ctx, name, sorted(wrapped), opts, nil)
	if err != nil {
		return err
	}
	_, err = g.all()
	return err
}

// Map runs fn as one branch for each item, and returns the results in the order of items: with [CollectErrors]
// zero where fn failed, without it all zero if one failed. Errors are as in [Parallel], with the item's index. The
// branches are named by their index: the step "pack" of the first item of Map "ship" is "ship/0/pack".
//
// items must be the same in every replay: take them from the input or a step. What is remembered of them is a hash
// of each as it is encoded, which tells which one changed. A field added to their type changes them too, unless it
// has the tag `json:",omitzero"`.
func Map[In, Out any](ctx Context, name string, items []In, fn func(Context, In) (Out, error), opts ...BranchOption) ([]Out, error) {
	b, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	members, hashes := make([]member[Out], len(items)), make([]string, len(items))
	for i, item := range items {
		hash, err := b.e.s.cfg.client.identity(what{fmt.Sprintf("item %d of Map", i), name}, item)
		if err != nil {
			return nil, failure.Permanent(failure.KindValidation, err)
		}
		hashes[i] = hex.EncodeToString(hash[:8])
		if members[i].name = strconv.Itoa(i); fn != nil {
			members[i].fn = func(ctx Context) (Out, error) { return fn(ctx, item) }
		}
	}
	g, err := newGroup(ctx, name, members, opts, hashes)
	if err != nil {
		return nil, err
	}
	return g.all()
}

// Race returns the name and result of the first branch to succeed, for good, and cancels the others: of those a replay
// repeats what they had recorded, and begins nothing. If none succeeds the error is a [BranchErrors] of all of them. A Race without branches is refused.
func Race[T any](ctx Context, name string, branches map[string]func(Context) (T, error), opts ...BranchOption) (winner string, result T, err error) {
	b, err := branchOf(ctx)
	if err != nil {
		return "", result, err
	}
	if len(branches) == 0 {
		return "", result, b.misuse(fmt.Errorf("kagzi: Race %s has no branches, so none can win: ask before whether there are any", text.Quote(name)))
	}
	g, err := newGroup(ctx, name, sorted(branches), opts, nil)
	if err != nil {
		return "", result, err
	}
	return g.first()
}

// A member is a branch of a group.
type member[T any] struct {
	name   string
	fn     func(Context) (T, error)
	future *Future[T] // nil until started
	branch *branch

	// How it ended, once that was taken in.
	over  bool
	value T
	ended time.Time // the branch's Now
	err   error
}

func sorted[T any](branches map[string]func(Context) (T, error)) []member[T] {
	members := make([]member[T], 0, len(branches))
	for n, fn := range branches {
		members = append(members, member[T]{name: n, fn: fn})
	}
	slices.SortFunc(members, func(a, b member[T]) int { return cmp.Compare(a.name, b.name) })
	return members
}
