package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
)

// An interceptedCall is the call of a run's function inside of the interceptors. See doc_interceptors.go.
type interceptedCall struct {
	e *Run
	x *interception // of the run
}

// intercept calls the workflow function inside of the interceptors.
func intercept(e *Run, h Handler) {
	c := interceptedCall{e, e.interception}
	c.call(h)
}

func (c interceptedCall) call(h Handler) {
	e, x := c.e, c.x
	err := failure.OfGoexit() // unless they return or panic
	defer func() {
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
		c.returned(err)
	}()
	err = e.interceptors().Execute(context.Background(), e.described(e.Now()), func(ctx context.Context) error {
		switch x.enter() {
		case enteredBefore:
			return ErrNextAgain
		case settledBefore:
			return c.howEnded()
		}
		x.values.Store(&ctx)
		go e.call(h, executionContext{e.context(), ctx})
		<-x.over
		return c.howEnded()
	})
}

// returned is called when the interceptors have returned err.
func (c interceptedCall) returned(err error) {
	e := c.e
	entered, settled := c.x.leave()
	switch {
	case settled:
		c.x.conclude(func() {
			c.judge(err)
			e.conclude()
		})
	case !entered:
		if err == nil {
			err = ErrNoNext
		}
		e.guard(e.newRoot(e.context()), func() error { return err }, func() {})
	}
}

// judge lets the error of an interceptor fail an attempt of the run that would have succeeded. It changes no other end.
func (c interceptedCall) judge(err error) {
	if err == nil {
		return
	}
	e := c.e
	if e.reasonOf() == stopReturned {
		if outcomeOf(e) == nil && !c.continues() {
			e.Lock()
			e.overruleLocked(err)
			e.Unlock()
		}
		return
	}
	if _, panicked := errors.AsType[*failure.Panic](err); panicked {
		e.log().Warn("kagzi: an interceptor panicked after its run had stopped", "error",
			text.OneLine(failure.Text(err)))
	}
}

// howEnded returns how the execution has ended: nil if the function has returned its result.
func (c interceptedCall) howEnded() error {
	e := c.e
	e.Lock()
	reason, cause := e.whyLocked()
	waitsFor := e.waitsForLocked()
	e.Unlock()
	switch reason {
	case stopReturned:
		err := outcomeOf(e)
		if err == nil && c.continues() {
			return fmt.Errorf("%w: it continues with another input", ErrSuspended)
		}
		return c.endOfAttempt(err)
	case stopFailed:
		return cause
	case stopCancelled, stopCancelling:
		return errCancelled
	case stopLost:
		return fmt.Errorf("%w: %w", ErrSuspended, standing.ErrLeaseLost)
	case stopSuspended:
		if waitsFor != nil {
			return fmt.Errorf("%w: it waits for %s", ErrSuspended, waitsFor)
		}
		return ErrSuspended
	}
	// another worker may have the run, so it is given up
	if errors.Is(context.Cause(e.context()), standing.ErrLeaseLost) {
		return fmt.Errorf("%w: %w", ErrSuspended, standing.ErrLeaseLost)
	}
	return fmt.Errorf("%w: %w", ErrSuspended, standing.ErrShutdown)
}

// continues reports whether the function has let the run begin again.
func (c interceptedCall) continues() bool {
	c.e.Lock()
	defer c.e.Unlock()
	return c.e.nextLocked() != nil
}

// endOfAttempt returns err, the failure of an attempt of the run, with ErrRetried if another attempt follows.
func (c interceptedCall) endOfAttempt(err error) error {
	if err == nil {
		return nil
	}
	e := c.e
	policy, _ := e.policy(e.RetryPolicy) // retryPolicy logs an error
	if _, again := nextAttempt(e.errors().Classify(err), policy, e.runAttempt()); !again {
		return err
	}
	return &retriedError{err}
}

// A retriedError is the failure of an attempt of a run that is not the last one. It is an ErrRetried, which does not
// stand in its chain: the kind of the failure is that of the chain.
type retriedError struct{ error }

// Unwrap returns the failure.
func (e *retriedError) Unwrap() error { return e.error }

// Is reports whether target is ErrRetried.
func (e *retriedError) Is(target error) bool { return target == ErrRetried }

// An executionContext is the context of an execution with the values that interceptors have added. Their deadlines do
// not count: a step must end for reasons that its run knows.
type executionContext struct {
	context.Context
	values context.Context
}

// Value returns a value of the interceptors' context, else of the execution's.
func (c executionContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
