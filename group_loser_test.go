//go:build unix

package kagzi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFailedBranchOfARacesLoser lets a branch that a loser started fail before the race is decided. It is the loser's,
// and does not fail the run: neither at once nor in a replay, which does not see the loser at all.
func TestFailedBranchOfARacesLoser(t *testing.T) {
	t.Parallel()
	for name, suspends := range map[string]bool{"AtOnce": false, "InAReplay": true} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[bool, string]("wf", noRetry)
			roots, open := make(chan *execution, 10), make(chan struct{})
			serve(k, wf, func(ctx Context, suspends bool) (string, error) {
				roots <- ctx.(*runContext).b.e
				winner, _, err := Race(ctx, "race", map[string]func(Context) (int, error){
					"loser": func(ctx Context) (int, error) {
						Go(ctx, "child", func(Context) (int, error) { return 0, errors.New("broken") })
						return 0, Sleep(ctx, "long", time.Hour)
					},
					"winner": func(ctx Context) (int, error) {
						return Step(ctx, "s", func(context.Context) (int, error) { <-open; return 1, nil })
					},
				})
				if err == nil && suspends {
					err = Sleep(ctx, "nap", time.Hour)
				}
				return winner, err
			})
			run := begin(k, wf, suspends)
			e := receive(t, roots)
			waitFor(t, "the loser's branch has failed", func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return slices.ContainsFunc(e.branches, func(r *branchResult) bool {
					return strings.HasSuffix(r.name, "child") && r.done.fired > 0 && r.err != nil
				})
			})
			close(open)
			if suspends {
				k.waitStatus(run.ID(), StatusSleeping)
				k.forward(run.ID())
			}
			if winner := resultOf(k, run); winner != "winner" {
				t.Errorf("the winner is %q", winner)
			}
		})
	}
}
