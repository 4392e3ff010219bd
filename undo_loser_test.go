package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestLoserThatRegisters lets a branch lose its race while it registers an undo, so that this is not recorded: it does not
// come to the step that the undo would take back, and the undo does not run.
func TestLoserThatRegisters(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		undoLine(ctx, j, "root")
		registered := make(chan struct{})
		_, _, err := Race(ctx, "r", map[string]func(Context) (int, error){
			"winner": func(ctx Context) (int, error) {
				return 1, Do(ctx, "win", func(context.Context) error {
					<-registered
					return nil
				})
			},
			"loser": func(ctx Context) (int, error) {
				defer close(registered)
				b := ctx.(*branch)
				b.mute.Store(true) // as the winner's branch does it, before it
				go func() {
					comesTrue(100*time.Millisecond, func() bool { return j.has("book") })
					b.cancel(errBranchCancelled)
				}()
				undoLine(ctx, j, "book")
				return 0, doLine(ctx, j, "book")
			},
		})
		if err != nil {
			return 0, err
		}
		return 0, errors.New("out of stock")
	})
	endsAs(k, begin(k, wf, 1), StatusFailed)
	if got := j.String(); got != "undo-root" {
		t.Errorf("happened: %s", got)
	}
}
