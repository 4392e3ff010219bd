package replay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
)

// TestFailedBranchOfARacesLoser lets a branch that a loser started fail before the race is decided. The failure belongs
// to the loser and does not fail the run, neither at once nor in a replay, which ignores the loser.
func TestFailedBranchOfARacesLoser(t *testing.T) {
	t.Parallel()
	for name, suspends := range map[string]bool{"AtOnce": false, "InAReplay": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[bool, string]("wf", kit.NoRetry)
			roots, open := make(chan *replay.Branch, 10), make(chan struct{})
			kit.Serve(k, wf, func(ctx kagzi.Context, suspends bool) (string, error) {
				roots <- branchOf(ctx)
				winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
					"loser": func(ctx kagzi.Context) (int, error) {
						kagzi.Go(ctx, "child", func(kagzi.Context) (int, error) { return 0, errors.New("broken") })
						return 0, kagzi.Sleep(ctx, "long", time.Hour)
					},
					"winner": func(ctx kagzi.Context) (int, error) {
						return kagzi.Step(ctx, "s", func(context.Context) (int, error) { <-open; return 1, nil })
					},
				})
				if err == nil && suspends {
					err = kagzi.Sleep(ctx, "nap", time.Hour)
				}
				return winner, err
			})
			run := kit.Begin(k, wf, suspends)
			root := await.Receive(t, roots)
			await.True(t, "the loser's branch has failed", func() bool { return replay.HasFailedBranch(root, "child") })
			close(open)
			if suspends {
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				k.Forward(run.ID())
			}
			if winner := kit.ResultOf(k, run); winner != "winner" {
				t.Errorf("the winner is %q", winner)
			}
		})
	}
}
