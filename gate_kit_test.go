package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A gate is a workflow of one step, which tells when it begins and then waits for its context or for open.
type gate struct {
	wf    Workflow[int, string]
	begun chan int
	open  chan struct{}
	cause chan error // of each step whose context ended
	deaf  bool       // ignore the context
}

func newGate() *gate {
	return &gate{
		wf: Define[int, string]("gate"), begun: make(chan int, 100), open: make(chan struct{}), cause: make(chan error, 100),
	}
}

func (g *gate) handle(w *Worker) {
	Handle(w, g.wf, func(ctx Context, n int) (string, error) {
		return Step(ctx, "wait", func(ctx context.Context) (string, error) {
			g.begun <- n
			done := ctx.Done()
			if g.deaf {
				done = nil
			}
			select {
			case <-g.open:
				return "opened", nil
			case <-done:
				g.cause <- context.Cause(ctx)
				return "", ctx.Err()
			}
		})
	})
}

// gated is a running worker with a gate, in which n runs are under way.
func gated(t *testing.T, c *Client, cfg WorkerConfig, n int) (g *gate, runs []*Run[string], stop func()) {
	t.Helper()
	g = newGate()
	w := newTestWorker(t, c, cfg)
	g.handle(w)
	runs = startRuns(t, c, g.wf, n)
	stop = startLocal(t, w)
	for range n {
		receive(t, g.begun)
	}
	return g, runs, stop
}

// losesLeases waits until n steps have seen their contexts end because their leases are lost.
func (g *gate) losesLeases(t *testing.T, n int) {
	t.Helper()
	for range n {
		if cause := receive(t, g.cause); !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("the cause is %v, want ErrLeaseLost", cause)
		}
	}
}

// through returns c's handles to runs of the gate that another client started.
func (g *gate) through(t testing.TB, c *Client, runs []*Run[string]) []*Run[string] {
	t.Helper()
	out := make([]*Run[string], len(runs))
	for i, r := range runs {
		out[i] = find(t, c, g.wf, r)
	}
	return out
}

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came for %v", patience)
		panic("unreachable")
	}
}

// stopping calls stop and returns a channel that is closed once it has returned.
func stopping(stop func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	return done
}
