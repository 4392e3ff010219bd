package replay_test

import (
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
)

// TestShownAttemptIsTheOneThatTakesLong has the timer that shows a long attempt in the table fire while the step goes
// on to the next attempt: the table shows the timer's attempt.
func TestShownAttemptIsTheOneThatTakesLong(t *testing.T) {
	k := kit.New(t)
	var shown atomic.Bool
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		replay.ShowFirstAttempt(branchOf(ctx), "slow", shown.Load)
		return 0, nil
	})
	run := kit.Begin(k, wf, 1)
	await.True(t, "the attempt is shown", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND status = 'RUNNING'`,
			string(run.ID())) > 0
	})
	if n := k.Count(`SELECT attempt_number FROM kagzi.step_runs WHERE run_id = $1`, string(run.ID())); n != 1 {
		t.Errorf("attempt %d is shown, want 1", n)
	}
	shown.Store(true)
	kit.ResultOf(k, run)
}
