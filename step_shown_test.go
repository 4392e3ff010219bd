package kagzi

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestShownAttemptIsTheOneThatTakesLong shows an attempt in the table that takes a second, while the step goes on to the next:
// what is shown is the attempt that the timer was for.
func TestShownAttemptIsTheOneThatTakesLong(t *testing.T) {
	k := newKit(t)
	var shown atomic.Bool
	wf := Define[int, int]("wf", noRetry)
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		s := &stepCall{b: ctx.(*runContext).b, id: "slow", attempt: 1, first: 1}
		defer s.showLater()()
		for !shown.Load() {
			s.attempt = 2
			runtime.Gosched()
		}
		return 0, nil
	})
	run := begin(k, wf, 1)
	waitFor(t, "the attempt is shown", func() bool {
		return k.count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND status = 'RUNNING'`, string(run.ID())) > 0
	})
	if n := k.count(`SELECT attempt_number FROM kagzi.step_runs WHERE run_id = $1`, string(run.ID())); n != 1 {
		t.Errorf("attempt %d is shown, want 1", n)
	}
	shown.Store(true)
	resultOf(k, run)
}
