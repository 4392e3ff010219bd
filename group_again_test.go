package kagzi

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRaceThatNobodyWonAtFirst lets nobody win a Race in the run's first attempt. That it is won in the second is remembered,
// though it has a Timeout, so that its end was recorded before: a replay runs the winner alone.
func TestRaceThatNobodyWonAtFirst(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", twice)
	var first, second, slow atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		winner, _, err := Race(ctx, "r", map[string]func(Context) (int, error){
			"a": func(ctx Context) (int, error) {
				return 0, Do(ctx, "a", func(context.Context) error {
					if first.Add(1) == 1 {
						return errors.New("no")
					}
					return nil
				}, noRetry)
			},
			"b": func(ctx Context) (int, error) {
				return 0, Do(ctx, "b", func(ctx context.Context) error {
					if second.Add(1) == 1 {
						return errors.New("no")
					}
					slow.Add(1)
					<-ctx.Done()
					return ctx.Err()
				}, noRetry)
			},
		}, Timeout(time.Hour))
		if err != nil {
			return "", err
		}
		return winner, Sleep(ctx, "after", time.Hour)
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	rows := k.steps(run.ID())["r"]
	if last := rows[len(rows)-1]; !strings.Contains(string(last.Output), `"winner":"a"`) {
		t.Errorf("recorded is %s %s", last.Status, last.Output)
	}
	before := slow.Load()
	k.forward(run.ID())
	if got := resultOf(k, run); got != "a" {
		t.Errorf("%q won", got)
	}
	if n := slow.Load(); n != before {
		t.Errorf("the loser was begun %d times, and %d more in a replay", before, n-before)
	}
}

// TestTimeoutInTheNextAttempt fails a group in the run's first attempt that collects errors: its Timeout counts in the second,
// too.
func TestTimeoutInTheNextAttempt(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", twice)
	var tries atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"a": func(ctx Context) error {
				return Do(ctx, "a", func(ctx context.Context) error {
					if tries.Add(1) == 1 {
						return errors.New("no")
					}
					<-ctx.Done()
					return ctx.Err()
				}, noRetry)
			},
		}, CollectErrors(), Timeout(300*time.Millisecond))
		if errors.Is(err, KindTimeout) {
			return "timed out", nil
		}
		return "", err
	})
	if got := resultOf(k, begin(k, wf, 1)); got != "timed out" {
		t.Errorf("got %q", got)
	}
}
