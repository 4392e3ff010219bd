package language_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run whose branches wait says what they wait for: first waits that end by their time, at most three things, each
// once.
func TestWaitingOnOfBranches(t *testing.T) {
	sleep := func(name string, d time.Duration) func(kagzi.Context) error {
		return func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, name, d) }
	}
	signal := func(key string, timeout ...kagzi.Timeout) func(kagzi.Context) error {
		return func(ctx kagzi.Context) error {
			_, err := kagzi.WaitSignal(ctx, kit.Approved.For(key), timeout...)
			return err
		}
	}
	type branches = map[string]func(kagzi.Context) error
	fails := func(context.Context) error { return fmt.Errorf("not yet") }
	long := strings.Repeat("x", 250)
	for name, tt := range map[string]struct {
		branches branches
		opts     []kagzi.BranchOption
		want     string
	}{
		"One": {branches: branches{"a": signal("1")}, want: "signal approved/1"},
		"TimesFirst": {branches: branches{
			"a": signal("1"), "b": sleep("late", 2*time.Hour),
			"c": sleep("early", time.Hour),
		}, want: "timer g/c/early; timer g/b/late; signal approved/1"},
		"TimedSignal": {
			branches: branches{
				"a": signal("1"), "b": signal("2", kagzi.Timeout(time.Hour)),
				"c": sleep("late", 2*time.Hour),
			},
			want: "signal approved/2; timer g/c/late; signal approved/1",
		},
		"EachOnce": {
			branches: branches{"a": signal("1"), "b": signal("1"), "c": signal("0")},
			want:     "signal approved/0; signal approved/1",
		},
		"More": {branches: branches{
			"a": signal("1"), "b": signal("2"), "c": signal("3"), "d": signal("4"),
			"e": signal("5"),
		}, want: "signal approved/1; signal approved/2; signal approved/3; 2 more"},
		"Long": {
			branches: branches{"a": signal(long[9:]), "b": signal(long[9:] + "y"), "c": signal("z")},
			want:     "signal approved/" + long[9:] + "; 2 more",
		},
		"GroupsTimeout": {
			branches: branches{"a": signal("1"), "b": sleep("late", 2*time.Hour)},
			opts:     []kagzi.BranchOption{kagzi.Timeout(time.Hour)},
			want:     "timeout g; timer g/b/late; signal approved/1",
		},
		"Nested": {
			branches: branches{"a": signal("1"), "b": func(ctx kagzi.Context) error {
				return kagzi.Parallel(ctx, "inner", branches{"x": signal("2"), "y": sleep("nap", time.Hour)})
			}},
			want: "timer g/b/inner/y/nap; signal approved/1; signal approved/2",
		},
		"Retry": {
			branches: branches{"a": signal("1"), "b": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "pay", fails, kagzi.RetryPolicy{MaxAttempts: 9, Backoff: time.Hour})
			}},
			want: "retry g/b/pay; signal approved/1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.Parallel(ctx, "g", tt.branches, tt.opts...)
			})
			run := kit.Begin(k, wf, 1)
			if info := k.WaitStatus(run.ID(), kagzi.StatusSleeping); info.WaitingOn.String() != tt.want {
				t.Errorf("waits on %q, want %q", info.WaitingOn, tt.want)
			}
			k.Wake(run.ID())
			await.True(t, "the run has been executed again", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'
					AND available_at > now()`) == 1
			})
			if got := k.InfoOf(run).WaitingOn.String(); got != tt.want { // all waits come from the history
				t.Errorf("after another execution it waits on %q, want %q", got, tt.want)
			}
		})
	}
}

// So does a run whose branches were begun by Go, and one that waits for children, too.
func TestWaitingOnOfGo(t *testing.T) {
	k := kit.New(t)
	wf, child := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("child", kagzi.Queue("nobody"))
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (string, error) {
			return kagzi.WaitSignal(ctx, kit.Approved)
		})
		var children []*kagzi.Child[int]
		for _, name := range []string{"a", "b", "c"} {
			c, err := kagzi.StartChild(ctx, name, child, 1)
			if err != nil {
				return 0, err
			}
			children = append(children, c)
		}
		if _, err := kagzi.Results(ctx, children); err != nil {
			return 0, err
		}
		_, err := other.Result(ctx)
		return 0, err
	})
	run := kit.Begin(k, wf, 1)
	if got := k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved").
		WaitingOn.String(); got != "child a and 2 more; signal approved" {
		t.Errorf("waits on %q", got)
	}
}
