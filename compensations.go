package kagzi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/epochs"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// Compensate registers call, a workflow that undoes an effect of this run: it starts if the run fails for good, is
// cancelled, passes its Timeout, or rolls back.
//
// Call Compensate before the step whose effect it undoes, so that a crash in between cannot lose it. It returns once
// the registration is recorded.
//
// A registration under the same name on the same branch, with another workflow or input, replaces the one before, and
// counts as the newest. Unlike a step's name, the name is not counted: in a loop, put the item's key into it.
//
// call may have any option of a start but [ID], [At], [Message], [InTx] and [Detached].
//
// See docs/compensation.md for order, branches, children and failures of compensations.
func Compensate(ctx Context, name string, call Call) {
	b, c, err := branchOf(ctx)
	if err != nil {
		panic(err)
	}
	b.Compensate(name, func() (*replay.Registration, error) {
		r, err := c.newRegistration(call)
		return r, errors.Join(valid.StepName("compensation", name), err)
	})
}

// Rollback ends the run as COMPLETED. Its compensations run first. Return Rollback's error, as it is, from the workflow
// function, together with the result.
//
//	return Receipt{Declined: true}, kagzi.Rollback(ctx)
//
// It is for an end that is no failure, but business: a declined card, a withdrawn order. Those who wait for the run get
// the result. If a compensation fails for good, the run fails with [kind.Compensation]. Then admin.Runs.Resume runs the
// rest, and the result is kept.
//
// ctx is the function's, not a branch's. A consumer's run cannot be rolled back: it fails.
func Rollback(ctx Context) error {
	b, _, err := branchOf(ctx)
	if err != nil {
		return err
	}
	return epochs.Rollback(b)
}

// UndoneBy registers a compensation whose input is the step's result, in one transaction with that result: see
// [Compensate], also for opts. The compensation has the step's name, with its count, so it replaces one that Compensate
// registered under that name before the step. The input of wf must have the type that the step returns: another type,
// and a [Do], fail the run with [kind.BadRequest]. A failed attempt, and one that a cancel no longer waited for,
// register nothing: if such an attempt may have had its effect, also call Compensate before the step.
func UndoneBy[In, Out any](wf Workflow[In, Out], opts ...StartOption) StepOption {
	return &undoneBy{reflect.TypeFor[In](), func(result any) Call {
		in, _ := result.(In) // nil, of an interface
		return wf.With(in, opts...)
	}}
}

type undoneBy struct {
	input reflect.Type
	call  func(result any) Call
}

func (u *undoneBy) step(c *stepConfig) { c.undoneBy = u }

// validate refuses a compensation of a step that returns another type.
func (u *undoneBy) validate(result reflect.Type) error {
	switch {
	case u.input == result:
		call := u.call(nil)
		call.as = asCompensation
		_, err := call.config(nil)
		return err
	case result == nil || result == reflect.TypeFor[any]():
		return fmt.Errorf("kagzi: UndoneBy gives the step's result to a workflow that takes %v, and this step "+
			"returns nothing of that type: use Step or StepTx, or Compensate", u.input)
	}
	return fmt.Errorf("kagzi: UndoneBy gives the step's result to a workflow that takes %v, and this step returns "+
		"%v: these must be one type, or use Compensate", u.input, result)
}

// newRegistration returns the registration that is recorded for a call.
func (c *Client) newRegistration(call Call) (*replay.Registration, error) {
	call.as = asCompensation
	cfg, err := call.config(nil)
	if err != nil {
		return nil, err
	}
	run, err := c.newRun(context.Background(), call, &cfg)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(append([]byte(call.workflow+"\x00"), cfg.inputHash...))
	return &replay.Registration{Hash: hash[:replay.HashSize], Call: &store.Compensation{
		Spec: run.Spec, Delay: run.Delay, Input: run.Input,
	}}, nil
}
