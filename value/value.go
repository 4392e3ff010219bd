package value

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// ErrNotSet is what [Get] returns for a value that the run has not set.
var ErrNotSet = errors.New("the run has not set the value")

// A Value is a contract, like a kagzi.Signal: a name, and a type. Declare it once, as a package variable that workflows
// and readers import. Each run has values of its own.
type Value[T any] struct{ name string }

// Define names a value. The rules of [kagzi.Step]'s names apply. Functions that use the value return an error for a bad
// name.
func Define[T any](name string) Value[T] { return Value[T]{name} }

// Name returns the value's name.
func (v Value[T]) Name() string { return v.name }

// Current is what a run has set a value to.
type Current[T any] struct {
	Value   T
	Version int64 // grows with each change that was written
	SetAt   time.Time
}

// A scope is a kagzi.Context.
type scope interface {
	Engine() *replay.Branch
	Client() *kagzi.Client
}

// Set sets the value of the run, instead of what it was set to before. The change is written with the run's next
// record, at most a second later, and Set does not wait for that: of several changes until then, only the last one is
// written. The last value stays when the run has ended. A replay does not set it again.
//
// If several branches set a value, the last change counts. A branch that loses a [kagzi.Race] sets nothing.
//
// Set returns an error if to is too large or does not encode, and if the branch was cancelled.
func Set[T any](ctx kagzi.Context, v Value[T], to T) error {
	s, ok := ctx.(scope)
	if !ok {
		return core.ErrNilContext
	}
	return replay.SetValue(s.Engine(), replay.ValueSpec{
		Name: v.name, BadName: valid.StepName("value name", v.name),
		Encode: func(row *store.StepRow) (later bool, err error) {
			row.Output, err = s.Client().Core().Payloads.Encode(payloads.Subject{Kind: "value", Name: v.name}, to)
			return payloads.IsSealing(err), err
		},
	})
}

// Get returns what the run has set the value to; for a [kagzi.ID], that is the active run, else the newest. It returns
// [ErrNotSet] if the run has not set it, and [kagzi.ErrNotFound] if there is no such run.
func Get[T any](ctx context.Context, c *kagzi.Client, run kagzi.Ref, v Value[T]) (Current[T], error) {
	return read(ctx, c, run, v, "get", func(ctx context.Context, k store.ValueKey) (none store.Value, err error) {
		found, err := c.Core().Store.Runs.Values(ctx, []store.ValueKey{k}, 0)
		if err != nil {
			return none, err
		}
		if len(found) == 0 || found[0].Version == 0 && !found[0].NoRun {
			return none, ErrNotSet
		}
		if found[0].NoRun {
			return none, store.ErrRunNotFound
		}
		return found[0], nil
	})
}

// Wait waits until the run has set the value to another version than is known: the [Current.Version] of an earlier
// call, or zero for the first one. It returns the last change and not each of them.
//
// If the run ends without another version, Wait returns [kagzi.ErrRunFinished], with a *[kagzi.RunError] unless the run
// completed. It returns [kagzi.ErrNotFound] if there is no such run. In a step, the step holds its slot of the worker
// while it waits.
func Wait[T any](ctx context.Context, c *kagzi.Client, run kagzi.Ref, v Value[T], known int64) (Current[T], error) {
	return read(ctx, c, run, v, "wait for", func(ctx context.Context, k store.ValueKey) (store.Value, error) {
		defer core.AwaitsRun(ctx, k.RunID)()
		k.Known = known
		found, err := c.Core().Hints.Value(ctx, k)
		if err == nil && found.Version == 0 {
			err = over(&found.End)
		}
		return found, err
	})
}

// read returns what find finds.
func read[T any](ctx context.Context, c *kagzi.Client, run kagzi.Ref, v Value[T], what string,
	find func(context.Context, store.ValueKey) (store.Value, error),
) (now Current[T], err error) {
	at := core.RefOf(run)
	found, err := findIn(ctx, c.Core(), at, v.name, find)
	if err == nil {
		now.Version, now.SetAt = found.Version, found.SetAt
		if err = c.Core().Payloads.Decode(found.Output, &now.Value); err != nil {
			err = fmt.Errorf("kagzi: it does not decode into %v: %w", reflect.TypeFor[T](), err)
		}
	}
	return now, c.Core().FailedIf(ctx, err, "%s value %q of %v", what, v.name, at)
}

// findIn calls find with the key of the value.
func findIn(ctx context.Context, c *core.Client, at core.Ref, name string,
	find func(context.Context, store.ValueKey) (store.Value, error),
) (none store.Value, err error) {
	if err := c.Usable(ctx); err != nil {
		return none, err
	}
	if err := valid.StepName("value name", name); err != nil {
		return none, err
	}
	id, err := c.Resolve(ctx, nil, at)
	if err != nil {
		return none, err
	}
	return find(ctx, store.ValueKey{RunID: id, Name: name})
}

// over returns the error of a wait for a run that has ended.
func over(end *store.Ended) error {
	if end.Status == store.Completed {
		return failure.Explain("the run has completed without another change", kagzi.ErrRunFinished)
	}
	e := &kagzi.RunError{
		Run: kagzi.RunID(end.RunID.String()), Workflow: end.Type, Status: kagzi.Status(end.Status),
		Kind: kind.Kind(end.ErrorKind), Message: end.Error,
	}
	return failure.Explain("the run is over without another change: "+e.Error(), kagzi.ErrRunFinished, e)
}
