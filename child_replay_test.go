package kagzi

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A child and code that cannot both be right set the run aside.
func TestChildNondeterminism(t *testing.T) {
	t.Parallel()
	nap := func(ctx Context) (int, error) { return 0, Sleep(ctx, "nap", time.Hour) }
	for _, tt := range []struct {
		name          string
		before, after func(Context) error
		want          string
	}{
		{
			"AnotherWorkflow",
			func(ctx Context) error { _, err := RunChild(ctx, "x", doubling, 1); return err },
			func(ctx Context) error { _, err := RunChild(ctx, "x", Define[int, int]("other"), 1); return err },
			`child "x"`,
		},
		{
			"AStep",
			func(ctx Context) error { _, err := RunChild(ctx, "x", doubling, 1); return err },
			func(ctx Context) error { return Do(ctx, "x", func(context.Context) error { return nil }) },
			`step "x" was recorded as a child`,
		},
		{
			"AnotherResult",
			func(ctx Context) error { _, err := RunChild(ctx, "x", doubling, 1); return err },
			func(ctx Context) error {
				_, err := RunChild(ctx, "x", Define[int, []string]("doubling"), 1)
				return err
			},
			`result of child "x" does not decode`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			var deployed atomic.Bool
			family(k, parenting, func(ctx Context, _ int) (int, error) {
				do := tt.before
				if deployed.Load() {
					do = tt.after
				}
				if err := do(ctx); err != nil {
					return 0, err
				}
				return nap(ctx)
			}, handleDoubling)
			run := begin(k, parenting, 1)
			k.waitStatus(run.ID(), StatusSleeping, "timer nap")
			deployed.Store(true)
			k.wake(run.ID())
			re := failureOf(k, run, StatusFailed)
			if re.Kind != KindNondeterminism || !strings.Contains(re.Message, tt.want) {
				t.Errorf("failed with %v, want %q", re, tt.want)
			}
		})
	}
}

// TestChildEndsAroundTheSuspension lets children end before, while and after their parents are suspended, in this process
// and in another: nobody polls, so an end that is missed is waited for in vain.
func TestChildEndsAroundTheSuspension(t *testing.T) {
	k := newKit(t)
	const runs, children = 40, 5
	other := newTestClient(t, k.pool)
	pausing := Define[int, int]("pausing", Queue("other"))
	for queue, c := range map[string]*Client{"default": k.c, "other": other} {
		w := newTestWorker(t, c, WorkerConfig{Queue: queue, PollInterval: time.Hour})
		Handle(w, pausing, func(ctx Context, n int) (int, error) {
			return n, Sleep(ctx, "pause", time.Duration(n)*time.Millisecond)
		})
		Handle(w, parenting, func(ctx Context, n int) (int, error) {
			var all []*Child[int]
			for i := range children {
				queue := []StartOption{Queue("default"), Queue("other")}[i%2]
				c, err := StartChild(ctx, fmt.Sprint("c", i), pausing, (i*67+n*13)%400, queue)
				if err != nil {
					return 0, err
				}
				all = append(all, c)
			}
			if n%2 == 0 {
				out, err := Results(ctx, all)
				return len(out), err
			}
			for _, c := range all {
				if _, err := c.Result(ctx); err != nil {
					return 0, err
				}
			}
			return len(all), nil
		})
		startWorker(t, w)
	}
	var all []*Run[int]
	for i := range runs {
		all = append(all, begin(k, parenting, i))
	}
	for _, r := range all {
		if got := resultOf(k, r); got != children {
			t.Errorf("run %s got %d", r.ID(), got)
		}
	}
}
