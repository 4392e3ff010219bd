package language_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestRaceThatNobodyWonAtFirst lets no branch win a Race in the run's first attempt. The winner of the second attempt
// is recorded, although the Race has a Timeout, so that its end was recorded before: a replay runs only the winner.
func TestRaceThatNobodyWonAtFirst(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.Twice)
	var first, second, slow atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		winner, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
			"a": func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "a", func(context.Context) error {
					if first.Add(1) == 1 {
						return errors.New("no")
					}
					return nil
				}, kit.NoRetry)
			},
			"b": func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "b", func(ctx context.Context) error {
					if second.Add(1) == 1 {
						return errors.New("no")
					}
					slow.Add(1)
					<-ctx.Done()
					return ctx.Err()
				}, kit.NoRetry)
			},
		}, kagzi.Timeout(time.Hour))
		if err != nil {
			return "", err
		}
		return winner, kagzi.Sleep(ctx, "after", time.Hour)
	})
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	rows := k.Steps(run.ID())["r"]
	if last := rows[len(rows)-1]; !strings.Contains(string(last.Output), `"winner":"a"`) {
		t.Errorf("recorded is %s %s", last.Status, last.Output)
	}
	before := slow.Load()
	k.Forward(run.ID())
	if got := kit.ResultOf(k, run); got != "a" {
		t.Errorf("%q won", got)
	}
	if n := slow.Load(); n != before {
		t.Errorf("the loser was begun %d times, and %d more in a replay", before, n-before)
	}
}

// TestTimeoutInTheNextAttempt fails a group in the run's first attempt that collects errors: its Timeout counts in the
// second, too.
func TestTimeoutInTheNextAttempt(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.Twice)
	var tries atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "a", func(ctx context.Context) error {
					if tries.Add(1) == 1 {
						return errors.New("no")
					}
					<-ctx.Done()
					return ctx.Err()
				}, kit.NoRetry)
			},
		}, kagzi.CollectErrors(), kagzi.Timeout(3*time.Second))
		if errors.Is(err, kind.Timeout) {
			return "timed out", nil
		}
		return "", err
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != "timed out" {
		t.Errorf("got %q", got)
	}
}
