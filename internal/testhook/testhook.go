// Package testhook gives package kagzitest, and Kagzi's own tests, hooks into a worker or a coordinator. They are a
// value of the context that its Run is given.
package testhook

import (
	"context"
	"reflect"
	"time"

	"github.com/google/uuid"
)

// Hooks are functions that a worker or a coordinator calls, from any goroutine, and settings for tests. A function may
// be nil.
type Hooks struct {
	// Call is called instead of call, the function of the step id, and its results become those of the step. result is
	// the type that the step must return, nil for none.
	Call func(ctx context.Context, id string, result reflect.Type, call func() (any, error)) (any, error)

	// Late is called for a Handle that has no effect because the worker is running.
	Late func(workflow string)

	// NoHandler lets Worker.Run begin without a handler: the test has them in other workers.
	NoHandler bool

	// Begun is called with the session of Worker.Run, before it claims anything.
	Begun func(Session)

	// Config is called with the configuration of the worker's session, a worker.Config. Worker.Run then returns without
	// running anything. Tests of the engine make sessions of the configuration.
	Config func(cfg any)

	// Point is called when a worker reaches a named point of its code, with the run if it concerns one run. Tests count
	// these calls, wait in them, or kill the process.
	Point func(point string, run uuid.UUID)

	// UncountedTime is how long attempts of a transactional step that the database failed do not count. Zero means the
	// default.
	UncountedTime time.Duration

	// MostLarge is the most bytes of large histories that are read at a time. Zero means the default.
	MostLarge int64

	// SuspectPatience is how long the first crash-loop suspects wait for those before them. Zero means the default.
	SuspectPatience time.Duration

	// NoGrace makes a coordinator end a run at its deadline, without time for a worker to do so.
	NoGrace bool

	// Passes is called by Coordinator.Run, which then returns without running its loops. Tests make single passes with
	// it.
	Passes func(Passes)
}

// Passes are the passes of a coordinator's loops. Each method makes one pass and returns the pause until the next.
type Passes interface {
	// FireSchedules starts the runs of schedules that are due.
	FireSchedules(ctx context.Context) (time.Duration, error)

	// Compensate continues runs that wait only for their next compensation to start.
	Compensate(ctx context.Context) (time.Duration, error)
}

// A Branch is a workflow's Context, as tests see it.
type Branch interface {
	// Lease returns the lease under which the run executes.
	Lease() uuid.UUID

	// Closed reports whether the history has the end of the branch, or of a branch above it, so that nothing new begins
	// on it.
	Closed() bool

	// Goroutine returns the ID of the only goroutine that may use the Context, or zero once that has ended.
	Goroutine() uintptr
}

// A Session is one Worker.Run.
type Session interface {
	// SetClock sets the session's estimate of the database's clock: it showed now at the time asked of this process's
	// clock.
	SetClock(now, asked time.Time)

	// Wake makes the worker and its coordinator check now for due work.
	Wake()

	// Handles reports whether the worker has code for a version of a workflow.
	Handles(workflow string, version int) bool

	// Worker returns the worker's ID, as it is in the tables.
	Worker() uuid.UUID

	// Leases returns those of the executions that are under way here.
	Leases() []uuid.UUID

	// Activity returns the state of the session's execution of a run. wakeups and cancelling come from the run's row:
	// if the execution has not received all of the wakeups or the cancellation yet, it counts as busy.
	Activity(run uuid.UUID, wakeups int64, cancelling bool) Activity
}

// An Activity is the state of a session's execution of a run.
type Activity struct {
	Here bool      // the session executes the run
	Busy int       // branches that do not wait, or only briefly, including those in functions of steps
	Next time.Time // when the first wait in memory, or the run, ends by time alone; zero: never
}

type key struct{}

// With returns ctx with hooks for the Worker.Run that gets it.
func With(ctx context.Context, h *Hooks) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the hooks of ctx, nil if it has none.
func From(ctx context.Context) *Hooks {
	h, _ := ctx.Value(key{}).(*Hooks)
	return h
}
