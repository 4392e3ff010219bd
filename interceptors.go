package kagzi

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// An Interceptor wraps what a client and its workers do, like middleware around an http.Handler: see
// [ClientConfig].Interceptors. A nil function wraps nothing.
//
// Each function calls next once, on its own goroutine, with a context that descends from its own, and returns next's
// error, or another. It may refuse by returning an error without a call of next. If it returns nil although next has
// failed, the failure stays. A panic is an error of [kind.Panic]. What a replay passes calls no interceptor, and
// neither do [Worker.Replay] and the replays of package kagzitest.
type Interceptor struct {
	// Start wraps a call that starts runs: [Start] and the like, [Client.StartMany] with all its calls,
	// admin.Runs.Restart and Fork, admin.Schedules.Trigger and Backfill; the start of a child, which is stored with the
	// next write of its parent, after next has returned; and in a coordinator the ticks of a schedule that are due,
	// whether these start a run or not. In a bulk verb, each run is a call of its own. If it fails for the ticks of a
	// schedule, they are tried again; a coordinator's ctx has no values of a request. Nothing wraps the start of
	// compensations and of consumers' runs, and of runs that [Client.Schedule] and the like start when they change a
	// schedule.
	Start func(ctx context.Context, starts []*StartCall, next func(context.Context) error) error

	// Signal wraps [Client.Signal]. A message that goes with a start belongs to Start.
	Signal func(ctx context.Context, m *SignalCall, next func(context.Context) error) error

	// Execute wraps one execution of a run in a worker: from the call of its function until that has returned, or left
	// memory for a long wait or for another worker. Values of the context that it gives to next reach the contexts of
	// the run's steps and the lines of its Logger; its deadline and its end do not.
	//
	// next returns nil if the function has returned its result, the function's error, or an error that is
	// [ErrSuspended] if the run goes on later. After a result, an error of an Execute fails this attempt of the run.
	// Otherwise its error is ignored. The worker waits ten seconds at most for an Execute to return after next.
	Execute func(ctx context.Context, e Execution, next func(context.Context) error) error

	// Step wraps the function of one attempt of a [Step], [StepTx], [Do] or [DoTx], without the commit of the
	// transaction. next returns the attempt's error, a timeout and a panic among them. The error of a Step is the
	// attempt's. The Headers are shared: do not change them. If the worker must give up the run while next runs, next
	// may exit the goroutine: what must happen belongs in a deferred function.
	Step func(ctx context.Context, s StepInfo, next func(context.Context) error) error

	// Ended wraps nothing. It is called after the end of a run is stored by this client: by its workers, its
	// coordinators, and its calls such as [Client.Cancel], once for each run that these end. It is not called for an
	// end that is part of the caller's transaction ([InTx]), and it is missed if the process dies. Calls may be
	// concurrent. It must return at once, because others wait for it.
	Ended func(r EndedRun)

	// Flushed wraps nothing. It is called after each transaction by which a worker has stored, or failed to store, what
	// its runs have recorded. Calls may be concurrent. It must return at once, because these runs wait for it.
	Flushed func(f Flush)
}

// An EndedRun is a run that has ended: see [Interceptor].
type EndedRun struct {
	Run      RunID
	Workflow string
	Version  int // zero if no worker has executed the run
	Queue    string
	Status   Status
	Kind     kind.Kind     // of the failure or the cancel; empty if the run completed
	Age      time.Duration // from its start to its end, a Delay included
}

// A Flush is a transaction of a worker: see [Interceptor].
type Flush struct {
	Runs   int           // whose writes share it
	Writes int           // records of steps, waits and children, suspensions, and ends of runs
	Took   time.Duration // with its round trips and its commit
	Err    error         // the worker tries such a transaction again
}

// A StartCall is a run that is about to be started: see [Interceptor]. Changes of its Headers before next are stored
// with the run. Other changes have no effect.
type StartCall struct {
	Workflow   string // empty for a restart or fork
	ID         ID     // empty if the call gives none
	Queue      string // empty if the call gives none: that of the parent, the schedule or the run that it comes from
	Schedule   string // whose ticks are due, or that is triggered
	Parent     RunID  // of a child
	ParentStep string // the name under which the parent starts it, with its branches
	Origin     RunID  // of a restart or fork, the run that it comes from
	Headers    Headers
	Run        RunID // the run; after next the active one that existed, if there was one. Empty for a schedule.
	Existed    bool  // set by next: see [Run.Existed]
}

// SetHeader sets a header of the run and keeps the others, such as those of the caller and of other interceptors.
func (c *StartCall) SetHeader(name, value string) { c.Headers = c.Headers.with(name, value) }

// A SignalCall is a message that is about to be sent: see [Interceptor]. Changes of its Headers before next are stored
// with the message. Other changes have no effect.
type SignalCall struct {
	Run     Ref    // a RunID or an ID, as in the call of Client.Signal
	Signal  string // with its key: "approved/call-7"
	ID      ID     // of the message
	Headers Headers
}

// SetHeader sets a header of the message and keeps the others.
func (c *SignalCall) SetHeader(name, value string) { c.Headers = c.Headers.with(name, value) }

// An Execution is one execution of a run in a worker: see [Interceptor]. The maps are shared: do not change them.
type Execution struct {
	Run      RunID
	ID       ID // empty if the run has none
	Workflow string
	Version  int
	Queue    string
	Attempt  int // of the run, from 1
	Parent   RunID
	First    bool          // no worker has executed the run before
	Age      time.Duration // how long ago the run was started, a Delay included
	Waited   time.Duration // how long the run was due before this execution began; zero if that is not known
	Headers  Headers
	Metadata Metadata // those of the start
}

// interceptors are those of a client, each kind composed into one function; nil: there are none.
type interceptors struct {
	start   func(context.Context, []*StartCall, func(context.Context) error) error
	signal  func(context.Context, *SignalCall, func(context.Context) error) error
	execute func(context.Context, Execution, func(context.Context) error) error
	step    func(context.Context, StepInfo, func(context.Context) error) error
	ended   func(EndedRun)
	flushed func(Flush)
}

func newInterceptors(all []Interceptor, log *slog.Logger) (out interceptors) {
	for i := len(all) - 1; i >= 0; i-- { // the first is the outermost
		out.start = around(all[i].Start, out.start)
		out.signal = around(all[i].Signal, out.signal)
		out.execute = around(all[i].Execute, out.execute)
		out.step = around(all[i].Step, out.step)
		out.ended = both(all[i].Ended, out.ended, log)
		out.flushed = both(all[i].Flushed, out.flushed, log)
	}
	return out
}

// around returns outer around inner. Either may be nil.
func around[T any](outer, inner func(context.Context, T, func(context.Context) error) error) func(context.Context, T,
	func(context.Context) error) error {
	if outer == nil || inner == nil {
		if outer == nil {
			return inner
		}
		return outer
	}
	return func(ctx context.Context, v T, next func(context.Context) error) error {
		return outer(ctx, v, func(ctx context.Context) error { return inner(ctx, v, next) })
	}
}

// both returns a function that calls first and then. Either may be nil. A panic in first is logged, because no caller
// gets it as an error.
func both[T any](first, then func(T), log *slog.Logger) func(T) {
	if first == nil {
		return then
	}
	return func(v T) {
		func() {
			defer func() {
				if p := recover(); p != nil {
					log.Error("kagzi: an interceptor panicked", "error",
						text.OneLine(failure.Text(failure.OfPanic(p, debug.Stack()))))
				}
			}()
			first(v)
		}()
		if then != nil {
			then(v)
		}
	}
}

// intercept calls next inside of the interceptors of one kind, if there are any.
func intercept[T any](ctx context.Context, by func(context.Context, T, func(context.Context) error) error, v T,
	next func(context.Context) error,
) (err error) {
	if by == nil {
		return next(ctx)
	}
	defer func() {
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
	}()
	failed := failure.OfGoexit() // unless next returns
	var call replay.NextCall
	defer call.End() // also if the interceptors panic
	err = by(ctx, v, func(ctx context.Context) error {
		if err := call.Begin(); err != nil {
			return err
		}
		defer call.Done()
		failed = next(ctx)
		return failed
	})
	switch called := call.End(); {
	case err != nil:
		return err
	case !called:
		return replay.ErrNoNext
	}
	return failed
}

// engine returns the interceptors of executions and steps.
func (i *interceptors) engine() (out replay.Interceptors) {
	if i.execute != nil {
		out.Execute = func(ctx context.Context, r replay.InterceptedRun, next func(context.Context) error) error {
			e := Execution{
				Run: RunID(r.RunID.String()), ID: ID(r.ExternalID), Workflow: r.Type, Version: r.Version,
				Queue: r.Queue, Attempt: r.Attempts + 1,
				First: r.Fresh, Age: r.Age, Waited: r.Waited, Headers: r.Decoded,
				Metadata: Metadata(storedHeaders(r.Metadata)),
			}
			if r.ParentRunID != uuid.Nil {
				e.Parent = RunID(r.ParentRunID.String())
			}
			return i.execute(ctx, e, next)
		}
	}
	if i.step != nil {
		out.Attempt = func(ctx context.Context, s replay.StepIdentity, next func(context.Context) error) error {
			return i.step(ctx, stepInfo(s), next)
		}
		out.OfStep = func(ctx context.Context, s replay.StepIdentity) bool {
			scope := scopeOf(ctx)
			return scope != nil && scope.step.Run == s.Run && scope.step.Step == s.Step &&
				scope.step.Attempt == s.Attempt
		}
	}
	return out
}

// onEnd returns the function that is called for each run that the client ends, nil if there is none.
func (i *interceptors) onEnd() func(store.EndedRun) {
	if i.ended == nil {
		return nil
	}
	return func(r store.EndedRun) {
		i.ended(EndedRun{
			Run: RunID(r.RunID.String()), Workflow: r.Type, Version: r.Version, Queue: r.Queue,
			Status: Status(r.Status), Kind: kind.Kind(r.Kind), Age: r.Age,
		})
	}
}

// child returns the interceptor of a child's start, nil if there is none.
func (i *interceptors) child() func(context.Context, *store.NewRun, replay.ChildIdentity) error {
	if i.start == nil {
		return nil
	}
	return func(ctx context.Context, r *store.NewRun, as replay.ChildIdentity) error {
		call := startCallOf(r, as.Run)
		call.Parent, call.ParentStep = RunID(as.Parent.String()), as.ParentStep
		return intercept(ctx, i.start, []*StartCall{call}, func(context.Context) (err error) {
			r.Headers, err = call.headers()
			return err
		})
	}
}

// schedule returns the interceptor of the ticks of a schedule, nil if there is none.
func (i *interceptors) schedule() func(context.Context, *store.Template,
	func(context.Context, json.RawMessage) error) error {
	if i.start == nil {
		return nil
	}
	return func(ctx context.Context, t *store.Template, next func(context.Context, json.RawMessage) error) error {
		call := &StartCall{Workflow: t.Type, Queue: t.Queue, Schedule: t.Name, Headers: storedHeaders(t.Headers)}
		return intercept(ctx, i.start, []*StartCall{call}, func(ctx context.Context) error {
			headers, err := call.headers()
			if err != nil {
				return err
			}
			if headers == nil {
				headers = json.RawMessage("{}") // not the schedule's
			}
			return next(ctx, headers)
		})
	}
}

// copied calls next inside of the interceptors of starts, for a run that is started as a copy or by a schedule.
func (i *interceptors) copied(ctx context.Context, c core.StartCall,
	next func(context.Context, json.RawMessage) error,
) error {
	call := &StartCall{Schedule: c.Schedule, ID: ID(c.ID)}
	if c.Origin != uuid.Nil {
		call.Origin = RunID(c.Origin.String())
	}
	if c.Run != uuid.Nil {
		call.Run = RunID(c.Run.String())
	}
	return intercept(ctx, i.start, []*StartCall{call}, func(ctx context.Context) error {
		headers, err := call.headers()
		if err != nil {
			return err
		}
		return next(ctx, headers)
	})
}

// signalled calls next inside of the interceptors of signals.
func (i *interceptors) signalled(ctx context.Context, c core.SignalCall,
	next func(context.Context, json.RawMessage) error,
) error {
	if i.signal == nil {
		return next(ctx, c.Headers)
	}
	call := &SignalCall{Run: refOf(c.Run), Signal: c.Signal, ID: ID(c.ID), Headers: storedHeaders(c.Headers)}
	return intercept(ctx, i.signal, call, func(ctx context.Context) error {
		if err := call.Headers.validate(); err != nil {
			return err
		}
		return next(ctx, call.Headers.stored())
	})
}

// startCallOf returns the call that starts r, which gets that ID.
func startCallOf(r *store.NewRun, id uuid.UUID) *StartCall {
	return &StartCall{
		Workflow: r.Type, ID: ID(r.ExternalID), Queue: r.Queue, Headers: storedHeaders(r.Headers),
		Run: RunID(id.String()),
	}
}

// headers returns the call's headers as they are stored.
func (c *StartCall) headers() (json.RawMessage, error) {
	return c.Headers.stored(), c.Headers.validate()
}
