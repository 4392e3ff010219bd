package kagzi

import (
	"context"
	"errors"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/kind"
)

// Checkpoint keeps v for the next attempt of the step, which gets it from [LastCheckpoint]. It is deleted when the step
// succeeds. See docs/steps.md.
//
// Call it in a step's function, as often as you like. It waits for nothing, and is written within a second.
//
// In [StepTx] and [DoTx], Checkpoint commits what the function has written so far, together with v, and tx goes on as a
// new transaction. If that fails, tx has ended, and the attempt fails.
//
// It returns an error of [kind.BadRequest] if ctx is of no step under way, or a savepoint or a query of tx is open;
// [ErrPayloadTooLarge]; and errors of the client's Codec and Sealer.
func Checkpoint(ctx context.Context, v any) error {
	scope := scopeOf(ctx)
	if scope == nil {
		return errNoCheckpoint
	}
	data, err := scope.coder.Encode(payloads.Subject{Kind: "the checkpoint"}, v)
	if err != nil {
		return payloads.Unstorable(err)
	}
	return scope.step.By.SaveCheckpoint(ctx, scope.step.Try, data)
}

// LastCheckpoint returns what the last [Checkpoint] of the step has kept. It returns the zero value if there is none.
//
// It returns an error of [kind.BadRequest] if ctx belongs to no step that is under way, and one of [kind.Validation] if
// the checkpoint does not decode into T, as after a deploy.
func LastCheckpoint[T any](ctx context.Context) (T, error) {
	var v, none T
	scope := scopeOf(ctx)
	if scope == nil {
		return none, errNoCheckpoint
	}
	data, err := scope.step.By.LastCheckpoint(ctx, scope.step.Try)
	if err != nil || data == nil {
		return none, err
	}
	if err := scope.coder.Decode(data, &v); err != nil {
		return none, failure.Of(kind.Validation, failure.Wrap(err, "the checkpoint does not decode into %T", v))
	}
	return v, nil
}

var errNoCheckpoint = failure.BadRequest(errors.New("kagzi: checkpoint: ctx belongs to no step: give the ctx of a " +
	"step's function"))
