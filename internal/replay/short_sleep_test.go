package replay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
)

// TestCorrectedClockShortensNoSleep moves the estimate of the database's clock forward all the time, as quicker replies
// do after a slow one, while short sleeps begin. It takes the estimate back in between: one that is minutes ahead would
// let a sleep end then.
func TestCorrectedClockShortensNoSleep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	naps := 0
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		b, over, done := branchOf(ctx), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			const step, most = time.Millisecond, 300 * time.Millisecond
			for ahead := time.Duration(0); ; ahead += step {
				if ahead == most {
					replay.CorrectClock(b, -ahead)
					ahead = 0
				}
				select {
				case <-over:
					replay.CorrectClock(b, -ahead)
					return
				default:
					replay.CorrectClock(b, step)
				}
			}
		}()
		defer func() { close(over); <-done }()
		const nap = 200 * time.Millisecond // short enough to wait in memory
		for i := range 3 {
			begun, again := time.Now(), i < naps // a replay does not sleep
			naps = max(naps, i+1)
			if err := kagzi.Sleep(ctx, fmt.Sprint("nap", i), nap); err != nil {
				return 0, err
			}
			if took := time.Since(begun); took < nap && !again {
				t.Errorf("a sleep of %v took %v", nap, took)
			}
		}
		return 0, nil
	})
	kit.ResultOf(k, kit.Begin(k, wf, 1))
}
