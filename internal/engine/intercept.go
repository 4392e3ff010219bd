package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
)

// intercept calls the workflow function inside of the interceptors. See doc_interceptors.go.
func (e *execution) intercept(h Handler) {
	err := failure.OfGoexit() // unless they return or panic
	defer func() {
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
		e.intercepted(err)
	}()
	x := e.interception
	this := InterceptedRun{ClaimedRun: e.ClaimedRun, Decoded: e.decodedHeaders(), Waited: e.waited()}
	this.Age = e.age() // after Waited, which is not more
	err = e.intercepts.Execute(e.background, this, func(ctx context.Context) error {
		switch x.enter() {
		case enteredBefore:
			return ErrNextAgain
		case settledBefore:
			return e.howEnded()
		}
		x.values.Store(&ctx)
		go e.call(h, executionContext{e.context(), ctx})
		<-x.over
		return e.howEnded()
	})
}

// age returns how long ago the run was started.
func (e *execution) age() time.Duration { return max(0, e.now().Sub(e.CreatedAt)) }

// waited returns how long the run was due before its execution, zero if that is not known.
func (e *execution) waited() time.Duration {
	if e.DueAt.IsZero() {
		return 0
	}
	return max(0, e.now().Sub(e.DueAt))
}

// intercepted is called when the interceptors have returned err.
func (e *execution) intercepted(err error) {
	entered, settled := e.interception.leave()
	switch {
	case settled:
		e.interception.conclude(func() {
			e.judge(err)
			e.conclude()
		})
	case !entered:
		if err == nil {
			err = ErrNoNext
		}
		e.guard(newRoot(e.context(), e), func() error { return err }, func() {})
	}
}

// judge lets the error of an interceptor fail an attempt of the run that would have succeeded. It changes no other end.
func (e *execution) judge(err error) {
	if err == nil {
		return
	}
	if e.reasonOf() == stopReturned {
		if e.outcome() == nil {
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
func (e *execution) howEnded() error {
	e.Lock()
	reason, cause := e.whyLocked()
	last := e.suspensionLocked()
	e.Unlock()
	switch reason {
	case stopReturned:
		return e.endOfAttempt(e.outcome())
	case stopFailed:
		return cause
	case stopCancelled, stopCancelling:
		return errCancelled
	case stopLost:
		return fmt.Errorf("%w: %w", ErrSuspended, ErrLeaseLost)
	case stopSuspended:
		if last != nil && last.suspension.WaitingOn != "" {
			return fmt.Errorf("%w: it waits for %s", ErrSuspended, last.suspension.WaitingOn)
		}
		return ErrSuspended
	}
	if errors.Is(context.Cause(e.context()), ErrLeaseLost) { // another worker may have the run, so it is given up
		return fmt.Errorf("%w: %w", ErrSuspended, ErrLeaseLost)
	}
	return fmt.Errorf("%w: %w", ErrSuspended, ErrShutdown)
}

// endOfAttempt returns err, the failure of an attempt of the run, with ErrRetried if another attempt follows.
func (e *execution) endOfAttempt(err error) error {
	if err == nil || e.errors.Classify(err).Permanent {
		return err
	}
	if policy, _ := e.policy(e.RetryPolicy); !policy.Allows(e.runAttempt()) { // retryPolicy logs an error
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
