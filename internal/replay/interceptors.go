package replay

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Interceptors are code of the application around executions and attempts of steps. A nil function wraps nothing.
type Interceptors struct {
	// Execute wraps an execution of a run. ctx does not end. next blocks until the execution has settled.
	Execute func(ctx context.Context, run InterceptedRun, next func(context.Context) error) error
	// Attempt wraps the function of one attempt of a step.
	Attempt func(ctx context.Context, step StepIdentity, next func(context.Context) error) error
	// OfStep reports whether ctx descends from the one that the attempt's interceptors got.
	OfStep func(ctx context.Context, step StepIdentity) bool
}

// An InterceptedRun is a run that is about to be executed.
type InterceptedRun struct {
	*store.ClaimedRun
	Decoded map[string]string // its headers: not to be changed
	Age     time.Duration     // how long ago it was started
	Waited  time.Duration     // how long it was due; zero if that is not known
}

// Errors of interceptors. None of them is worth another attempt.
var (
	ErrNoNext = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor returned no error and did "+
		"not call next: call it, or return why not"))
	ErrNextAgain = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor called next again: call "+
		"it once"))
	ErrNextLate = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor called next after it had "+
		"returned: call it before, on the interceptor's goroutine"))
	errForeign = failure.Permanent(kind.BadRequest, errors.New("kagzi: an interceptor gave next a context that does "+
		"not descend from its own: derive it from that"))
)

// A NextCall lets interceptors call next once, and not after they have returned. If they return before next, which runs
// on another goroutine, End waits for it: otherwise what it does would go on beside another attempt, and its result
// would be unknown.
type NextCall struct {
	mu           sync.Mutex
	called, over bool
	running      sync.WaitGroup // next
}

// Begin is called before next, and Done after it unless Begin returns an error.
func (c *NextCall) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return ErrNextLate
	case c.called:
		return ErrNextAgain
	}
	c.called = true
	c.running.Add(1)
	return nil
}

// Done is called when next has returned or exited.
func (c *NextCall) Done() { c.running.Done() }

// End is called when the interceptors have returned or panicked. It reports whether they have called next, which has
// returned then.
func (c *NextCall) End() (called bool) {
	c.mu.Lock()
	c.over = true
	called = c.called
	c.mu.Unlock()
	c.running.Wait()
	return called
}

// An interception is the state of the application's interceptors around one execution. They run on a goroutine of their
// own, because those of the execution exit when it stops. See doc_interceptors.go.
type interception struct {
	over      chan struct{} // closed by settle
	concludes sync.Once
	// that the interceptors gave to next, for lines of the log; nil before that
	values atomic.Pointer[context.Context]

	mu      sync.Mutex
	entered bool        // the interceptors have called next, so the function has begun
	left    bool        // the interceptors have returned
	settled bool        // the execution has settled
	patient *time.Timer // concludes if the interceptors do not return; nil until settle has set it
}

// interceptGrace is how long the end of an execution waits for interceptors that have not returned. They are code of
// the application, and must not hold up a drain for ever.
const interceptGrace = 10 * time.Second

// An intercepting is a run's part of interceptors. It is set before the function begins, and never again.
type intercepting struct {
	interception *interception // nil: there are no interceptors
}

// ofExecution returns the part of a run that is about to be executed.
func (i *Interceptors) ofExecution() (in intercepting) {
	if i.Execute != nil {
		in.interception = &interception{over: make(chan struct{})}
	}
	return in
}

// isIntercepted reports whether there are interceptors of the execution.
func (in *intercepting) isIntercepted() bool { return in.interception != nil }

// concludeWith lets end write the outcome of the execution, which has settled: see interception.settle.
func (in *intercepting) concludeWith(end func()) {
	if in.interception == nil {
		end()
		return
	}
	in.interception.settle(end)
}

// interceptedLog returns the logger for lines about the execution.
func (in *intercepting) interceptedLog(log *slog.Logger) *slog.Logger {
	if in.interception == nil {
		return log
	}
	return slog.New(executionHandler{log.Handler(), in.interception})
}

// What enter returns.
type entry int

const (
	enteredNow    entry = iota
	enteredBefore       // the function has begun
	settledBefore       // the execution has settled: the function must not begin
)

// enter is called before the function begins.
func (x *interception) enter() entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.entered:
		return enteredBefore
	case x.settled:
		return settledBefore
	}
	x.entered = true
	return enteredNow
}

// leave is called when the interceptors have returned.
func (x *interception) leave() (entered, settled bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = true
	return x.entered, x.settled
}

// settle is called once, when the execution has settled. It lets end write the outcome: at once, unless interceptors
// that have let the function begin have yet to return.
func (x *interception) settle(end func()) {
	x.mu.Lock()
	x.settled = true
	waits := x.entered && !x.left
	if waits {
		x.patient = time.AfterFunc(interceptGrace, func() { x.conclude(end) })
	}
	x.mu.Unlock()
	close(x.over)
	if !waits {
		x.conclude(end)
	}
}

// conclude calls end, unless the outcome is about to be written already.
func (x *interception) conclude(end func()) {
	x.concludes.Do(func() {
		x.mu.Lock()
		if x.patient != nil {
			x.patient.Stop()
		}
		x.mu.Unlock()
		end()
	})
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

// An interceptedAttempt is an attempt of a step inside of the interceptors.
type interceptedAttempt struct {
	NextCall
	by     *Interceptors
	step   StepIdentity
	inner  func(context.Context) ([]byte, error) // calls the function
	data   []byte
	failed error // what next returned
}

// ofAttempts reports whether there are interceptors of attempts.
func (i *Interceptors) ofAttempts() bool { return i.Attempt != nil }

// attempt makes an attempt of step inside of the interceptors.
func (i *Interceptors) attempt(ctx context.Context, step StepIdentity,
	inner func(context.Context) ([]byte, error),
) ([]byte, error) {
	a := &interceptedAttempt{by: i, step: step, inner: inner, failed: failure.OfGoexit()} // unless next returns
	// also if the interceptors panic
	defer a.End()
	err := i.Attempt(ctx, step, a.next)
	switch called := a.End(); {
	case err != nil:
		return nil, err
	case !called:
		return nil, ErrNoNext
	case a.failed != nil:
		return nil, a.failed
	}
	return a.data, nil
}

func (a *interceptedAttempt) next(ctx context.Context) error {
	if err := a.Begin(); err != nil {
		return err
	}
	defer a.Done()
	if !a.by.OfStep(ctx, a.step) {
		a.failed = errForeign
		return a.failed
	}
	a.failed = protected(func() (err error) {
		a.data, err = a.inner(ctx)
		return err
	})
	return a.failed
}

// An executionHandler gives lines without a context that of the interceptors, so that the application's handler finds
// what these put into it.
type executionHandler struct {
	slog.Handler
	x *interception
}

func (h executionHandler) context(ctx context.Context) context.Context {
	if values := h.x.values.Load(); values != nil && ctx == context.Background() {
		return *values
	}
	return ctx
}

func (h executionHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(h.context(ctx), level)
}

func (h executionHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.Handler.Handle(h.context(ctx), r)
}

func (h executionHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return executionHandler{h.Handler.WithAttrs(attrs), h.x}
}

func (h executionHandler) WithGroup(name string) slog.Handler {
	return executionHandler{h.Handler.WithGroup(name), h.x}
}

// since returns how long ago the time was; zero if it is not known.
func since(at, now time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}
