package kit

import (
	"context"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
)

// A Gate is a workflow of one step, which sends its input to Begun and waits until Open is closed or its context ends.
type Gate struct {
	Workflow       kagzi.Workflow[int, string]
	Begun          chan int
	Open           chan struct{}
	Cause          chan error // of each step whose context ended
	IgnoresContext bool       // the step ignores its context
}

// NewGate returns a gate that is closed.
func NewGate() *Gate {
	return &Gate{
		Workflow: kagzi.Define[int, string]("gate"), Begun: make(chan int, 100), Open: make(chan struct{}),
		Cause: make(chan error, 100),
	}
}

// Handle gives w the code of the gate.
func (g *Gate) Handle(w *kagzi.Worker) {
	kagzi.Handle(w, g.Workflow, func(ctx kagzi.Context, n int) (string, error) {
		return kagzi.Step(ctx, "wait", func(ctx context.Context) (string, error) {
			g.Begun <- n
			done := ctx.Done()
			if g.IgnoresContext {
				done = nil
			}
			select {
			case <-g.Open:
				return "opened", nil
			case <-done:
				g.Cause <- context.Cause(ctx)
				return "", ctx.Err()
			}
		})
	})
}

// Gated starts a worker with a gate, and n runs, and returns once all of them wait in the gate.
func Gated(t *testing.T, c *kagzi.Client, cfg kagzi.WorkerConfig,
	n int,
) (g *Gate, runs []*kagzi.Run[string], stop func()) {
	t.Helper()
	g = NewGate()
	w := NewWorker(t, c, cfg)
	g.Handle(w)
	runs = StartRuns(t, c, g.Workflow, n)
	stop = StartLocal(t, w)
	for range n {
		await.Receive(t, g.Begun)
	}
	return g, runs, stop
}

// LosesLeases waits until the contexts of n steps have ended, and fails the test unless the cause was ErrLeaseLost.
func (g *Gate) LosesLeases(t *testing.T, n int) {
	t.Helper()
	for range n {
		if cause := await.Receive(t, g.Cause); !errors.Is(cause, kagzi.ErrLeaseLost) {
			t.Errorf("the cause is %v, want ErrLeaseLost", cause)
		}
	}
}

// Through returns handles of c to runs of the gate that another client started.
func (g *Gate) Through(t testing.TB, c *kagzi.Client, runs []*kagzi.Run[string]) []*kagzi.Run[string] {
	t.Helper()
	out := make([]*kagzi.Run[string], len(runs))
	for i, r := range runs {
		out[i] = Find(t, c, g.Workflow, r)
	}
	return out
}

// Stopping calls stop in a goroutine, and returns a channel that is closed once stop has returned.
func Stopping(stop func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	return done
}
