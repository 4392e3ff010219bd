package kagzi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// Compensate registers call, a workflow that undoes an effect of this run. The compensation starts if the run fails for
// good, is cancelled, or passes its Timeout. It does not start if the run completes, is ended by
// admin.Client.Terminate, or gets another attempt. Compensations run one after the other, the last registered first,
// each as a child run of its own with its own [RetryPolicy]. Any worker with a handler for the workflow can execute it,
// without the code of this run. If a compensation fails for good, the others still run, and the run ends as failed with
// [kind.Compensation]; admin.Client.Resume runs the failed one again.
//
// Compensations of a handled failure, and of branches that lost a [Race], do not run if the run completes: the workflow
// must undo such effects itself. They run if the run fails later. A child that fails or is cancelled runs its
// compensations at once, and those of its parent begin after them. A child that completed runs none, so register in the
// parent how to undo it.
//
// Compensate returns once the registration is recorded. Call it before the step whose effect it undoes, so that a crash
// in between cannot lose it; the compensation must tolerate a step that never ran. A registration under the same name
// on the same branch, with another workflow or input, replaces the one before, and counts as the newest. So register
// with the data that are known before the step, such as the order's ID, and again with the data known after it.
// [UndoneBy] does the latter for a step of the same name. Unlike a step's name, the name is not counted: in a loop, put
// the item's key into it. A registration cannot be withdrawn.
//
// call may have any option of a start but [ID], [At], [Message], [InTx] and [Detached]. Without a [Queue] it runs in
// the run's queue. A wrong call fails the run, and ends the function there. On a cancelled branch Compensate registers
// nothing, and the branch's next operation returns the cancellation.
func Compensate(ctx Context, name string, call Call) {
	b, c, err := branchOf(ctx)
	if err != nil {
		panic(err)
	}
	b.Compensate(name, func() (*engine.Registration, error) {
		r, err := c.newRegistration(call)
		return r, errors.Join(valid.StepName("compensation", name), err)
	})
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
func (c *Client) newRegistration(call Call) (*engine.Registration, error) {
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
	return &engine.Registration{Hash: hash[:engine.HashSize], Call: &store.Compensation{
		Queue: run.Queue, Type: run.Type, Version: run.Version, Priority: run.Priority, Delay: run.Delay,
		Timeout:     run.Timeout,
		RetryPolicy: run.RetryPolicy, Metadata: run.Metadata, Headers: run.Headers, Input: run.Input,
	}}, nil
}
