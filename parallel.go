package kagzi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
)

// A Future is the result of a branch.
type Future[T any] struct {
	f   *replay.Future
	err error // the reason why there is no branch; nil if there is one
}

// Go runs fn as a branch of its own, with its own goroutine and Context. Its steps are recorded under the branch's
// name; the rules of [Step]'s names apply. A run does not complete before its branches. If no branch asks for the
// result of a branch that fails, its error fails the run. A branch that fails cancels the branches below it, whose
// errors then no longer count. It stays failed: a replay begins nothing in it.
func Go[T any](ctx Context, name string, fn func(Context) (T, error)) *Future[T] {
	b, c, err := branchOf(ctx)
	if err != nil {
		return &Future[T]{err: err}
	}
	return &Future[T]{f: b.Go(name, valid.StepName("branch", name), untyped(c, fn))}
}

// untyped returns fn without its result type, or nil if fn is nil.
func untyped[T any](c *Client, fn func(Context) (T, error)) func(*replay.Branch) (any, error) {
	if fn == nil {
		return nil
	}
	return func(b *replay.Branch) (any, error) { return fn(&runContext{b, c}) }
}

// typed returns the result v of an untyped function as a T, or the zero T if the function failed.
func typed[T any](v any) T {
	out, _ := v.(T)
	return out
}

// Result waits for the branch to end and returns its result and error. ctx is the caller's, not the branch's.
func (f *Future[T]) Result(ctx Context) (T, error) {
	var zero T
	if f == nil || f.err == nil && f.f == nil {
		return zero, failure.BadRequest(errors.New("kagzi: the Future is empty: kagzi.Go returns one"))
	}
	if f.err != nil {
		return zero, f.err
	}
	b, _, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	v, err := f.f.Await(b)
	return typed[T](v), err
}

// Parallel runs the branches and waits for all of them. The first error cancels the other branches, and is returned as
// a *[BranchError]. With [CollectErrors] every branch runs to its end, and [BranchErrors] has all failures. With a
// [Timeout], branches that are not done in time are cancelled, and the error has [kind.Timeout] and is [Permanent]: in
// a further attempt of the run the time is over, too.
func Parallel(ctx Context, name string, branches map[string]func(Context) error, opts ...BranchOption) error {
	b, c, err := branchOf(ctx)
	if err != nil {
		return err
	}
	members := membersOf(branches, func(fn func(Context) error) func(*replay.Branch) (any, error) {
		return func(b *replay.Branch) (any, error) { return nil, fn(&runContext{b, c}) }
	})
	_, err = b.All(newGroupSpec(name, members, nil, opts))
	return err
}

// Map runs fn as one branch for each item, and returns the results in the order of items. With [CollectErrors] a result
// is zero where fn failed; without it all results are zero if one failed. Errors are as in [Parallel], with the item's
// index. Branches are named by their index: the step "pack" of the first item of Map "ship" is "ship/0/pack".
//
// items must be the same in every replay: take them from the input or a step. Map records a hash of the encoding of
// each item, which shows if one has changed. A field added to the items' type changes them too, unless it has the tag
// `json:",omitzero"`.
func Map[In, Out any](ctx Context, name string, items []In, fn func(Context, In) (Out, error),
	opts ...BranchOption,
) ([]Out, error) {
	b, c, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	members, hashes := make([]replay.MemberSpec, len(items)), make([]string, len(items))
	var refused error
	for i, item := range items {
		hash, err := c.core.Payloads.Identity(payloads.Subject{Kind: fmt.Sprintf("item %d of Map", i), Name: name},
			item)
		if err != nil {
			members, hashes, refused = nil, nil, failure.Permanent(kind.Validation, err)
			break
		}
		hashes[i] = hex.EncodeToString(hash[:8])
		if members[i].Name = strconv.Itoa(i); fn != nil {
			members[i].Call = func(b *replay.Branch) (any, error) { return fn(&runContext{b, c}, item) }
		}
	}
	spec := newGroupSpec(name, members, hashes, opts)
	spec.Refused = refused
	values, err := b.All(spec)
	if values == nil {
		return nil, err
	}
	out := make([]Out, len(values))
	for i, v := range values {
		out[i] = typed[Out](v)
	}
	return out, err
}

// Race returns the name and result of the first branch to succeed, and cancels the others. The winner is recorded. A
// replay repeats what the other branches had recorded, and begins nothing in them. If no branch succeeds, the error is
// a [BranchErrors] with all failures. A Race without branches is refused.
func Race[T any](ctx Context, name string, branches map[string]func(Context) (T, error),
	opts ...BranchOption,
) (winner string, result T, err error) {
	b, c, err := branchOf(ctx)
	if err != nil {
		return "", result, err
	}
	if len(branches) == 0 {
		return "", result, b.Misuse(fmt.Errorf("kagzi: Race %s has no branches, so none can win: call it only if "+
			"there is at least one", text.Quote(name)))
	}
	members := membersOf(branches, func(fn func(Context) (T, error)) func(*replay.Branch) (any, error) {
		return untyped(c, fn)
	})
	winner, v, err := b.First(newGroupSpec(name, members, nil, opts))
	return winner, typed[T](v), err
}

func branchOptions(opts []BranchOption) (branchConfig, error) {
	var cfg branchConfig
	core.Each(opts, &cfg.Given, func(o BranchOption) { o.branch(&cfg) })
	return cfg, cfg.Wrong()
}

// newGroupSpec returns the specification of a group for the engine.
func newGroupSpec(name string, members []replay.MemberSpec, hashes []string, opts []BranchOption) replay.GroupSpec {
	cfg, invalid := branchOptions(opts)
	for i, m := range members {
		members[i].BadName = valid.StepName("branch", m.Name)
	}
	return replay.GroupSpec{
		Name: name, BadName: valid.StepName("branch group", name), Members: members, Hashes: hashes,
		Invalid: invalid, Timeout: cfg.timeout, Concurrency: cfg.concurrency, Collect: cfg.collect,
	}
}

// membersOf returns the branches in the order of their names.
func membersOf[F any](branches map[string]F, call func(F) func(*replay.Branch) (any, error)) []replay.MemberSpec {
	members := make([]replay.MemberSpec, 0, len(branches))
	for _, n := range slices.Sorted(maps.Keys(branches)) {
		m := replay.MemberSpec{Name: n}
		if fn := branches[n]; !reflect.ValueOf(fn).IsNil() {
			m.Call = call(fn)
		}
		members = append(members, m)
	}
	return members
}
