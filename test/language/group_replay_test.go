//go:build unix

package language_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestGroupDoneInTimeIsNotTimedOutInAReplay ends a group before its timeout, and has the run go on elsewhere after
// the time is over: what the workflow did because the group was in time must still follow from it.
func TestGroupDoneInTimeIsNotTimedOutInAReplay(t *testing.T) {
	t.Parallel()
	outcome := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, kind.Timeout):
			return "timed out"
		default:
			return "failed"
		}
	}
	for _, tt := range []struct {
		name  string
		want  string
		group func(kagzi.Context) error
	}{
		{"Parallel", "done", func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "group", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error {
					return kagzi.Do(ctx, "s", func(context.Context) error { return nil })
				},
			}, kagzi.Timeout(time.Hour))
		}},
		{"ParallelThatFails", "failed", func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "group", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
			}, kagzi.Timeout(time.Hour))
		}},
		{"ParallelThatCollectsErrors", "failed", func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "group", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
			}, kagzi.Timeout(time.Hour), kagzi.CollectErrors())
		}},
		{"Map", "done", func(ctx kagzi.Context) error {
			_, err := kagzi.Map(ctx, "group", []int{1, 2}, func(ctx kagzi.Context, n int) (int, error) {
				return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return n, nil })
			}, kagzi.Timeout(time.Hour))
			return err
		}},
		{"Race", "done", func(ctx kagzi.Context) error {
			_, _, err := kagzi.Race(ctx, "group", map[string]func(kagzi.Context) (int, error){
				"a": func(ctx kagzi.Context) (int, error) {
					return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
				},
			}, kagzi.Timeout(time.Hour))
			return err
		}},
		{"RaceThatNobodyWins", "failed", func(ctx kagzi.Context) error {
			_, _, err := kagzi.Race(ctx, "group", map[string]func(kagzi.Context) (int, error){
				"a": func(ctx kagzi.Context) (int, error) { return 0, kagzi.Do(ctx, "s", failing) },
			}, kagzi.Timeout(time.Hour))
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, string]("wf", kit.NoRetry)
			said, open := make(chan string, 10), make(chan struct{})
			handler := func(ctx kagzi.Context, _ int) (string, error) {
				out := outcome(tt.group(ctx))
				err := kagzi.Do(ctx, "act on it", func(ctx context.Context) error {
					said <- out
					select {
					case <-open:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				return out, err
			}
			first := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{DrainTimeout: time.Millisecond})
			kagzi.Handle(first, wf, handler)
			stop := kit.StartLocal(t, first)
			run := kit.Begin(k, wf, 1)
			if out := await.Receive(t, said); out != tt.want {
				t.Fatalf("the group is %s, want %s", out, tt.want)
			}
			// The worker has lost its lease and everything unwritten; the group's Timeout has passed.
			k.Exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now() + interval '1 hour'`)
			stop()
			k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
			k.Exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE wake_at > now()`)
			close(open)
			kit.Serve(k, wf, handler)
			if out := kit.ResultOf(k, run); out != tt.want {
				t.Errorf("in the replay the group is %s, and the workflow had acted on its being %s", out, tt.want)
			}
		})
	}
}
