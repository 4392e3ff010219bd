package language_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A run whose code contradicts its child is quarantined.
func TestChildNondeterminism(t *testing.T) {
	t.Parallel()
	nap := func(ctx kagzi.Context) (int, error) { return 0, kagzi.Sleep(ctx, "nap", time.Hour) }
	for _, tt := range []struct {
		name          string
		before, after func(kagzi.Context) error
		want          string
	}{
		{
			"AnotherWorkflow",
			func(ctx kagzi.Context) error { _, err := kagzi.RunChild(ctx, "x", doubling, 1); return err },
			func(ctx kagzi.Context) error {
				_, err := kagzi.RunChild(ctx, "x", kagzi.Define[int, int]("other"), 1)
				return err
			},
			`child "x"`,
		},
		{
			"AStep",
			func(ctx kagzi.Context) error { _, err := kagzi.RunChild(ctx, "x", doubling, 1); return err },
			func(ctx kagzi.Context) error { return kagzi.Do(ctx, "x", func(context.Context) error { return nil }) },
			`step "x" was recorded as a child`,
		},
		{
			"AnotherResult",
			func(ctx kagzi.Context) error { _, err := kagzi.RunChild(ctx, "x", doubling, 1); return err },
			func(ctx kagzi.Context) error {
				_, err := kagzi.RunChild(ctx, "x", kagzi.Define[int, []string]("doubling"), 1)
				return err
			},
			`result of child "x" does not decode`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			var deployed atomic.Bool
			family(k, parenting, func(ctx kagzi.Context, _ int) (int, error) {
				do := tt.before
				if deployed.Load() {
					do = tt.after
				}
				if err := do(ctx); err != nil {
					return 0, err
				}
				return nap(ctx)
			}, handleDoubling)
			run := kit.Begin(k, parenting, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
			deployed.Store(true)
			k.Wake(run.ID())
			re := kit.FailureOf(k, run, kagzi.StatusFailed)
			if re.Kind != kind.Nondeterminism || !strings.Contains(re.Message, tt.want) {
				t.Errorf("failed with %v, want %q", re, tt.want)
			}
		})
	}
}

// Children end before, during and after the suspension of their parents, in this process and in another. No worker
// polls, so that a missed end would never wake the parent.
func TestChildEndsAroundTheSuspension(t *testing.T) {
	k := kit.New(t)
	const runs, children = 40, 5
	other := kit.NewClient(t, k.Pool)
	pausing := kagzi.Define[int, int]("pausing", kagzi.Queue("other"))
	for queue, c := range map[string]*kagzi.Client{"default": k.Client, "other": other} {
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: queue, PollInterval: time.Hour})
		kagzi.Handle(w, pausing, func(ctx kagzi.Context, n int) (int, error) {
			return n, kagzi.Sleep(ctx, "pause", time.Duration(n)*time.Millisecond)
		})
		kagzi.Handle(w, parenting, func(ctx kagzi.Context, n int) (int, error) {
			var all []*kagzi.Child[int]
			for i := range children {
				queue := []kagzi.StartOption{kagzi.Queue("default"), kagzi.Queue("other")}[i%2]
				c, err := kagzi.StartChild(ctx, fmt.Sprint("c", i), pausing, (i*67+n*13)%400, queue)
				if err != nil {
					return 0, err
				}
				all = append(all, c)
			}
			if n%2 == 0 {
				out, err := kagzi.Results(ctx, all)
				return len(out), err
			}
			for _, c := range all {
				if _, err := c.Result(ctx); err != nil {
					return 0, err
				}
			}
			return len(all), nil
		})
		kit.StartWorker(t, w)
	}
	var all []*kagzi.Run[int]
	for i := range runs {
		all = append(all, kit.Begin(k, parenting, i))
	}
	for _, r := range all {
		if got := kit.ResultOf(k, r); got != children {
			t.Errorf("run %s got %d", r.ID(), got)
		}
	}
}
