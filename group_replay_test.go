//go:build unix

package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestGroupDoneInTimeIsNotTimedOutInAReplay ends a group before its timeout, and has the run go on elsewhere after
// the time is over: what the workflow did because the group was in time must still follow from it.
func TestGroupDoneInTimeIsNotTimedOutInAReplay(t *testing.T) {
	t.Parallel()
	outcome := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, KindTimeout):
			return "timed out"
		default:
			return "failed"
		}
	}
	for _, tt := range []struct {
		name  string
		want  string
		group func(Context) error
	}{
		{"Parallel", "done", func(ctx Context) error {
			return Parallel(ctx, "group", map[string]func(Context) error{
				"a": func(ctx Context) error { return Do(ctx, "s", func(context.Context) error { return nil }) },
			}, Timeout(time.Hour))
		}},
		{"ParallelThatFails", "failed", func(ctx Context) error {
			return Parallel(ctx, "group", map[string]func(Context) error{
				"a": func(ctx Context) error { return Do(ctx, "s", failing) },
			}, Timeout(time.Hour))
		}},
		{"ParallelThatCollectsErrors", "failed", func(ctx Context) error {
			return Parallel(ctx, "group", map[string]func(Context) error{
				"a": func(ctx Context) error { return Do(ctx, "s", failing) },
			}, Timeout(time.Hour), CollectErrors())
		}},
		{"Map", "done", func(ctx Context) error {
			_, err := Map(ctx, "group", []int{1, 2}, func(ctx Context, n int) (int, error) {
				return Step(ctx, "s", func(context.Context) (int, error) { return n, nil })
			}, Timeout(time.Hour))
			return err
		}},
		{"Race", "done", func(ctx Context) error {
			_, _, err := Race(ctx, "group", map[string]func(Context) (int, error){
				"a": func(ctx Context) (int, error) {
					return Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
				},
			}, Timeout(time.Hour))
			return err
		}},
		{"RaceThatNobodyWins", "failed", func(ctx Context) error {
			_, _, err := Race(ctx, "group", map[string]func(Context) (int, error){
				"a": func(ctx Context) (int, error) { return 0, Do(ctx, "s", failing) },
			}, Timeout(time.Hour))
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, string]("wf", noRetry)
			said, open := make(chan string, 10), make(chan struct{})
			handler := func(ctx Context, _ int) (string, error) {
				out := outcome(tt.group(ctx))
				err := Do(ctx, "act on it", func(ctx context.Context) error {
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
			first := newTestWorker(t, k.c, WorkerConfig{DrainTimeout: time.Millisecond})
			Handle(first, wf, handler)
			stop := startLocal(t, first)
			run := begin(k, wf, 1)
			if out := receive(t, said); out != tt.want {
				t.Fatalf("the group is %s, want %s", out, tt.want)
			}
			// The worker's lease is gone, with all that it has not written; the group's time is over.
			k.exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now() + interval '1 hour'`)
			stop()
			k.exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
			k.exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE wake_at > now()`)
			close(open)
			serve(k, wf, handler)
			if out := resultOf(k, run); out != tt.want {
				t.Errorf("in the replay the group is %s, and the workflow had acted on its being %s", out, tt.want)
			}
		})
	}
}
