// Package testhook lets package kagzitest, and Kagzi's own tests, reach into a worker or a coordinator: by a value of the
// ctx of its Run. Without one there are no hooks.
package testhook

import (
	"context"
	"reflect"
	"time"

	"github.com/google/uuid"
)

// Hooks are what a worker or a coordinator calls, from any goroutine. Each may be nil.
type Hooks struct {
	// Call stands for the function of the step id, which is call: what it returns is what the step gets. result is
	// the type that the step is to return, nil for none.
	Call func(ctx context.Context, id string, result reflect.Type, call func() (any, error)) (any, error)

	// Late is told of a Handle that comes when the worker runs, and has no effect.
	Late func(workflow string)

	// Begun is given the session of Worker.Run, before it claims anything.
	Begun func(Session)

	// Config is given the configuration of the worker's engine, an engine.Config. Worker.Run returns when it does, and runs
	// nothing: tests of the engine make sessions of it.
	Config func(cfg any)

	// Point is called at named points of a worker's way, with the run that gets there if it is one run. Tests count them,
	// wait there, or kill the process.
	Point func(point string, run uuid.UUID)

	// AwayPatience is for how long attempts of a transactional step are not counted that failed because of the database.
	// Zero means what it is without hooks.
	AwayPatience time.Duration

	// MostLarge is how many bytes of large histories are read at a time. Zero means what it is without hooks.
	MostLarge int64

	// NoGrace lets a coordinator give workers no time at a deadline.
	NoGrace bool

	// Passes is called by Coordinator.Run, which returns when it does and runs none of its loops: tests run single passes.
	Passes func(Passes)
}

// Passes are what a coordinator does again and again, once each.
type Passes interface {
	// FireSchedules starts the runs of schedules that are due, and returns how long the next pass may wait.
	FireSchedules(ctx context.Context) (time.Duration, error)

	// Compensate lets runs that wait for their next compensation start it, and returns how long the next pass may wait.
	Compensate(ctx context.Context) (time.Duration, error)
}

// A Branch is a workflow's Context, as tests see it.
type Branch interface {
	// Lease returns the lease under which the run executes.
	Lease() uuid.UUID

	// Closed reports whether the history has the end of the branch, or of one above it: nothing begins on it.
	Closed() bool

	// Goroutine returns which goroutine may use the Context; zero once that has ended.
	Goroutine() uintptr
}

// A Session is one Worker.Run.
type Session interface {
	// SetClock tells what the database's clock said to who asked at a time of this process's.
	SetClock(now, asked time.Time)

	// Wake makes the worker and its coordinator look at what is due.
	Wake()

	// Handles reports whether the worker has code for a version of a workflow.
	Handles(workflow string, version int) bool

	// Worker returns the worker's ID, as it is in the tables.
	Worker() uuid.UUID

	// Look returns what the session does with a run, whose row has so many wakeups and says whether it is to be cancelled:
	// what the row knows and the execution does not is on its way.
	Look(run uuid.UUID, wakeups int64, cancelling bool) Look
}

// A Look is what a session does with a run.
type Look struct {
	Here bool      // it executes the run
	Busy int       // branches that do not wait, or not for long; those in the functions of steps are among them
	Next time.Time // when a wait in memory or the run ends next; zero if that is no matter of time
}

type key struct{}

// With returns ctx with hooks for the Worker.Run that gets it.
func With(ctx context.Context, h *Hooks) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns ctx's hooks, nil if it has none.
func From(ctx context.Context) *Hooks {
	h, _ := ctx.Value(key{}).(*Hooks)
	return h
}
