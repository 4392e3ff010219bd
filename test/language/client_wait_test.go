package language_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A wait without types returns the run as it has ended, and errors only if there is no end to tell.
func TestClientWait(t *testing.T) {
	k := kit.New(t)
	g := kit.NewGate()
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	g.Handle(w)
	kit.StartWorker(t, w)
	run := kit.Begin(k, g.Workflow, 1, kagzi.ID("gate"))
	await.Receive(t, g.Begun)

	late := errors.New("late")
	ctx, cancel := context.WithCancelCause(k.Ctx)
	cancel(late)
	if _, err := k.Client.Wait(ctx, run); !errors.Is(err, late) && !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
	type end struct {
		info kagzi.RunInfo
		err  error
	}
	ended := make(chan end, 2)
	for _, ref := range []kagzi.Ref{run, kagzi.ID("gate")} {
		go func() {
			info, err := kit.NewClient(t, k.Pool).Wait(k.Ctx, ref)
			ended <- end{info, err}
		}()
	}
	close(g.Open)
	for range 2 {
		got := await.Receive(t, ended)
		if got.err != nil || got.info.ID != run.ID() || got.info.Status != kagzi.StatusCompleted {
			t.Errorf("got %+v, %v", got.info, got.err)
		}
	}
	for _, none := range []kagzi.Ref{kagzi.ID("none"), kagzi.RunID("none")} {
		if _, err := k.Client.Wait(k.Ctx, none); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%v: %v", none, err)
		}
	}
}
