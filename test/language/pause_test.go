package language_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A paused run stops at its next step, and keeps its records.
func TestPauseRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause, unpause func(*kit.Kit, kagzi.RunID) error
		waitingOn      string
	}{
		"OneRun": {
			func(k *kit.Kit, id kagzi.RunID) error {
				return admin.New(k.Client).Runs.Pause(k.Ctx, id, kagzi.Actor("ada"))
			},
			func(k *kit.Kit, id kagzi.RunID) error { return admin.New(k.Client).Runs.Unpause(k.Ctx, id) },
			"pause",
		},
		"Everything": {
			func(k *kit.Kit, _ kagzi.RunID) error {
				return admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{All: true}, admin.Park())
			},
			func(k *kit.Kit, _ kagzi.RunID) error {
				return admin.New(k.Client).Pauses.End(k.Ctx, admin.Target{All: true})
			},
			"pause of all runs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf")
			begun := make(chan struct{}, 1)
			var stop atomic.Bool
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				for n := 1; ; n++ {
					over, err := kagzi.Step(ctx, "step", func(context.Context) (bool, error) {
						calls.Add(1)
						select {
						case begun <- struct{}{}:
						default:
						}
						return stop.Load(), nil
					})
					if over || err != nil {
						return n, err
					}
				}
			})
			run := kit.Begin(k, wf, 1)
			await.Receive(t, begun)
			if err := c.pause(k, run.ID()); err != nil {
				t.Fatal(err)
			}
			kit.RefreshAll(t, k.Pool)
			k.WaitStatus(run.ID(), kagzi.StatusPending, c.waitingOn)
			recorded := calls.Load()
			stop.Store(true)
			if err := c.unpause(k, run.ID()); err != nil {
				t.Fatal(err)
			}
			if got := kit.ResultOf(k, run); int64(got) != calls.Load() || calls.Load() != recorded+1 {
				t.Errorf("%d steps, after %d calls before the pause and %d in all", got, recorded, calls.Load())
			}
		})
	}
}

func TestPauseIsRefused(t *testing.T) {
	k := kit.New(t)
	for _, target := range []admin.Target{
		{},
		{All: true, Queue: "q"},
		{Key: "k"},
		{Queue: "q", Workflow: "w", Key: "k"},
		{Group: "g", Queue: "q"},
		{Queue: "\x00"},
	} {
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, target); err == nil {
			t.Errorf("%+v was paused", target)
		}
	}
	if err := admin.New(k.Client).Pauses.End(k.Ctx, admin.Target{Queue: "q"}); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("the end of a pause that there is not: %v", err)
	}
}
