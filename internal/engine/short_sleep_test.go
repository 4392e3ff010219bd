package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestCorrectedClockShortensNoSleep moves the estimate of the database's clock forward all the time, as quicker replies do after a
// slow one, while short sleeps begin.
func TestCorrectedClockShortensNoSleep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		b, over, done := branchOf(ctx), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-over:
					return
				default:
					engine.CorrectClock(b, time.Millisecond)
				}
			}
		}()
		defer func() { close(over); <-done }()
		const nap = 200 * time.Millisecond // short enough to wait in memory
		for i := range 3 {
			begun := time.Now()
			if err := kagzi.Sleep(ctx, fmt.Sprint("nap", i), nap); err != nil {
				return 0, err
			}
			if took := time.Since(begun); took < nap {
				t.Errorf("a sleep of %v took %v", nap, took)
			}
		}
		return 0, nil
	})
	kit.ResultOf(k, kit.Begin(k, wf, 1))
}
