package operations_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// TestResultsBeforeARefusedWrite executes a step, and then does something that the server refuses to write together
// with the step's result. The result is written nevertheless, and the failure names what is refused.
func TestResultsBeforeARefusedWrite(t *testing.T) {
	t.Parallel()
	told, child := topic.Define[string]("told"), kagzi.Define[int, int]("child", kagzi.Queue("elsewhere"))
	step := func(ctx kagzi.Context, name string, opts ...kagzi.StepOption) error {
		return kagzi.Do(ctx, name, func(context.Context) error { return nil }, opts...)
	}
	for name, call := range map[string]func(kagzi.Context) error{
		"Publish": func(ctx kagzi.Context) error { return topic.Publish(ctx, "refused", told.With("event")) },
		"SetMetadata": func(ctx kagzi.Context) error {
			return kagzi.SetMetadata(ctx, "refused", kagzi.Metadata{"k": "v"})
		},
		"StartChild": func(ctx kagzi.Context) error {
			_, err := kagzi.StartChild(ctx, "refused", child, 1)
			return err
		},
		"Repeatable": func(ctx kagzi.Context) error { return step(ctx, "refused", kagzi.Repeatable()) },
		"InFrontOfOthers": func(ctx kagzi.Context) error {
			for _, name := range []string{"refused", "r1", "r2"} {
				if err := step(ctx, name, kagzi.Repeatable()); err != nil {
					return err
				}
			}
			return step(ctx, "after")
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			refuse(t, k, "step_runs", "INSERT", `NEW.step_id = 'refused'`)
			wf := kagzi.Define[int, int]("wf")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				if err := step(ctx, "before"); err != nil {
					return 0, err
				}
				return 1, call(ctx)
			})
			run := kit.Begin(k, wf, 1)
			failed := kit.FailureOf(k, run, kagzi.StatusFailed)
			if failed.Kind != kind.Database || !strings.Contains(failed.Message, `"refused"`) {
				t.Errorf("the run failed with %v", failed)
			}
			if steps := k.Steps(run); len(steps) != 1 || len(steps["before"]) != 1 {
				t.Errorf("recorded are %+v, want the result before the refused write", steps)
			}
		})
	}
}
