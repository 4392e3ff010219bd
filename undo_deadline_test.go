package kagzi

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestUndoOutlastsTheDeadline looks, from an undo of a run that is over its Timeout, at the lease under which it runs: it
// does not end soon after the deadline, as leases do.
func TestUndoOutlastsTheDeadline(t *testing.T) {
	t.Parallel()
	for name, asleep := range map[string]bool{"InAStep": false, "Asleep": true} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry, Timeout(3*time.Second))
			lease := make(chan error, 1)
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "undo", func(sctx context.Context) error {
					var left time.Duration
					err := k.pool.QueryRow(sctx, `SELECT available_at - clock_timestamp() FROM kagzi.workflow_runs WHERE run_id = $1 AND deadline_at IS NULL AND status = 'RUNNING'`, string(ctx.RunID())).Scan(&left)
					if err == nil && left < time.Minute {
						err = fmt.Errorf("the lease ends in %v", left)
					}
					lease <- err
					return nil
				})
				if asleep {
					return 0, sleepLong(ctx)
				}
				return 0, Do(ctx, "s", func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
			})
			run := begin(k, wf, 1)
			if re := failureOf(k, run, StatusFailed); re.Kind != KindDeadline {
				t.Errorf("kind %q", re.Kind)
			}
			if err := <-lease; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeadlineUndoesBeforeTheStepEnds lets a step ignore its context: at the deadline it is waited for before it is
// undone.
func TestDeadlineUndoesBeforeTheStepEnds(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	undone := make(chan struct{})
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo-slow", func(context.Context) error {
			j.add("undo-slow")
			close(undone)
			return nil
		})
		return 0, Do(ctx, "slow", func(ctx context.Context) error {
			<-ctx.Done()
			select {
			case <-undone: // too early
			case <-time.After(exitGrace + 700*time.Millisecond):
			}
			j.add("slow")
			return nil
		})
	})
	run := begin(k, wf, 1, Timeout(2*time.Second))
	endsAs(k, run, StatusFailed)
	waitFor(t, "the step ends", func() bool { return j.has("slow") })
	if got := j.String(); got != "slow undo-slow" {
		t.Errorf("happened: %s; steps: %+v", got, k.steps(run.ID())["slow"])
	}
}
