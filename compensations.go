package kagzi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/store"
)

// Compensate registers call, a workflow that undoes an effect of this run. It starts if the run fails for good, is cancelled, or
// passes its Timeout, and not if the run completes, or is ended by [Client.Terminate], or another attempt of it follows.
// Compensations run one after the other, the last registered first, each as a child run of its own, which is tried again as its
// own [RetryPolicy] says. Any worker that has a handler for it will do: the code of this run is not needed. If one fails for
// good the others run nevertheless, and the run ends as failed with [kind.Compensation]; [Client.Resume] runs it again.
//
// Compensations of a handled failure, and of branches that lost a [Race], do not run if the run completes: undo there in the
// workflow. They run if the run fails later. A child that fails or is cancelled runs its own at once, and those of its parent
// begin after them; one that completed runs none, so register in the parent what undoes it.
//
// Compensate returns once the registration is recorded. Call it before the step whose effect it undoes, because a crash in
// between must not lose it; the compensation must then tolerate a step that never ran. Registered again under its name on the
// same branch, with another workflow or input, it replaces the one before, and counts as the newest: register before the step what is
// known before it, such as the order's ID, and again what is known after it. [UndoneBy] does the latter for a step of the same
// name. Unlike a step's, the name is not counted: in a loop put the item's key into it. A registration cannot be taken back.
//
// call may have any option of a start but [ID], [At], [Message], [InTx] and [Detached]. Without a [Queue] it runs on the
// run's own. A wrong call fails the run, and ends the function there. On a branch that was cancelled Compensate registers
// nothing, and the branch's next operation says so.
func Compensate(ctx Context, name string, call Call) {
	b, c, err := branchOf(ctx)
	if err != nil {
		panic(err)
	}
	b.Compensate(name, func() (*engine.Registration, error) {
		r, err := c.newRegistration(call)
		return r, errors.Join(validateStepName("compensation", name), err)
	})
}

// UndoneBy makes the step's result the input of a compensation, which is recorded with the result, in one transaction:
// see [Compensate], also for opts. It has the step's name, counted as that is, so that it replaces what Compensate has
// registered under that before the step. wf's input must be of the type that the step returns: another type, and a [Do], fail
// the run with [kind.BadRequest]. An attempt that failed, or that a cancel no longer waited for, registers nothing: if it may
// have had its effect, register with Compensate what is known before it.
func UndoneBy[In, Out any](wf Workflow[In, Out], opts ...StartOption) StepOption {
	return undoneBy{reflect.TypeFor[In](), func(result any) Call {
		in, _ := result.(In) // nil, of an interface
		return wf.With(in, opts...)
	}}
}

type undoneBy struct {
	input reflect.Type
	call  func(result any) Call
}

func (undoneBy) stepOption() {}

// validate refuses a compensation of a step that returns another type.
func (u undoneBy) validate(result reflect.Type) error {
	switch {
	case u.call == nil:
		return nil
	case u.input == result:
		call := u.call(nil)
		call.as = asCompensation
		_, err := call.config(nil)
		return err
	case result == nil || result == reflect.TypeFor[any]():
		return fmt.Errorf("kagzi: UndoneBy gives the step's result to a workflow that takes %v, and this step returns nothing of that type: use Step or StepTx, or Compensate", u.input)
	}
	return fmt.Errorf("kagzi: UndoneBy gives the step's result to a workflow that takes %v, and this step returns %v: these must be one type, or use Compensate", u.input, result)
}

// newRegistration makes of a call what is recorded.
func (c *Client) newRegistration(call Call) (*engine.Registration, error) {
	call.as = asCompensation
	run, cfg, err := c.newRun(context.Background(), call, nil)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(append([]byte(call.workflow+"\x00"), cfg.inputHash...))
	return &engine.Registration{Hash: hash[:engine.HashSize], Call: &store.Compensation{
		Queue: run.Queue, Type: run.Type, Version: run.Version, Priority: run.Priority, Delay: run.Delay, Timeout: run.Timeout,
		RetryPolicy: run.RetryPolicy, Metadata: run.Metadata, Input: run.Input,
	}}, nil
}
