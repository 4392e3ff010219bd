package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Interceptors are code of the application around executions and attempts of steps. A nil function wraps nothing.
type Interceptors struct {
	// Execute wraps an execution of a run, which was due for that long before. ctx does not end. next blocks until the execution has settled.
	Execute func(ctx context.Context, run *store.ClaimedRun, waited time.Duration, next func(context.Context) error) error
	// Attempt wraps the function of one attempt of a step.
	Attempt func(ctx context.Context, step StepIdentity, next func(context.Context) error) error
	// OfStep reports whether ctx descends from the one that the attempt's interceptors got.
	OfStep func(ctx context.Context, step StepIdentity) bool
}

// Errors of interceptors. None of them is worth another attempt.
var (
	errNoNext    = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor returned no error and did not call next: call it, or return why not"))
	errNextAgain = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor called next again: call it once"))
	errForeign   = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor gave next a context that does not descend from its own: derive it from that"))
)

// intercept calls the workflow function inside of the interceptors. See docs/architecture.md, Interceptors.
func (e *execution) intercept(h Handler) {
	err := failure.OfGoexit() // unless they return or panic
	defer func() {
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
		e.intercepted(err)
	}()
	x := e.interception
	err = e.env.intercepts.Execute(e.env.background, e.run, e.waited(), func(ctx context.Context) error {
		switch x.enter() {
		case enteredBefore:
			return errNextAgain
		case settledBefore:
			return e.end()
		}
		go e.call(h, executionContext{e.ctx, ctx})
		<-x.over
		return e.end()
	})
}

// waited returns how long the run was due before its execution, zero if that is not known.
func (e *execution) waited() time.Duration {
	if e.run.DueAt.IsZero() {
		return 0
	}
	return max(0, e.env.now().Sub(e.run.DueAt))
}

// intercepted is called when the interceptors have returned err.
func (e *execution) intercepted(err error) {
	entered, settled := e.interception.leave()
	switch {
	case settled:
		e.interception.conclude(func() {
			e.judge(err)
			e.host.settled(e)
		})
	case !entered:
		if err == nil {
			err = errNoNext
		}
		e.guard(e.newRoot(e.ctx), func() error { return err }, func() {})
	}
}

// judge lets the error of an interceptor fail an attempt of the run that would have succeeded. It changes no other end.
func (e *execution) judge(err error) {
	if err == nil {
		return
	}
	if e.reasonOf() == stopReturned {
		if e.outcome() == nil {
			e.mu.Lock()
			e.err = err
			e.mu.Unlock()
		}
		return
	}
	if _, panicked := errors.AsType[*failure.Panic](err); panicked {
		e.log().Warn("kagzi: an interceptor panicked after its run had stopped", "error", text.OneLine(failure.Text(err)))
	}
}

func (e *execution) reasonOf() stopReason {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason
}

// end returns how the execution has ended: nil if the function has returned its result.
func (e *execution) end() error {
	e.mu.Lock()
	reason, cause, suspension := e.reason, e.failure, e.suspension
	e.mu.Unlock()
	switch reason {
	case stopReturned:
		return e.outcome()
	case stopFailed:
		return cause
	case stopCancelled, stopCancelling:
		return errCancelled
	case stopLost:
		return fmt.Errorf("%w: %w", ErrSuspended, ErrLeaseLost)
	case stopSuspended:
		if suspension != nil && suspension.suspension.WaitingOn != "" {
			return fmt.Errorf("%w: it waits for %s", ErrSuspended, suspension.suspension.WaitingOn)
		}
		return ErrSuspended
	}
	return fmt.Errorf("%w: %w", ErrSuspended, ErrShutdown)
}

// An executionContext is the context of an execution with the values that interceptors have added. Their deadlines do not count: a step must
// end for reasons that its run knows.
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

// protected calls f, and turns a panic into an error.
func protected(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
	}()
	return f()
}

// interceptAttempt makes an attempt inside of the interceptors.
func (s *stepCall) interceptAttempt(ctx context.Context, attempt func(context.Context) ([]byte, error)) ([]byte, error) {
	i := s.b.e.env.intercepts
	step := s.identity()
	var data []byte
	var failed error
	called := false
	err := i.Attempt(ctx, step, func(ctx context.Context) error {
		if called {
			return errNextAgain
		}
		called = true
		if !i.OfStep(ctx, step) {
			failed = errForeign
			return failed
		}
		failed = protected(func() (err error) {
			data, err = attempt(ctx)
			return err
		})
		return failed
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, failed
	case !called:
		return nil, errNoNext
	}
	return data, nil
}
