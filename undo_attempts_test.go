package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// twice is a run that is tried a second time.
var twice = RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}

// primaryOrFallback does what fails in the run's first attempt, and then goes another way.
func primaryOrFallback(ctx Context, j *journal, tries *atomic.Int64) error {
	err := Do(ctx, "primary", func(context.Context) error {
		if tries.Add(1) == 1 {
			return errors.New("no")
		}
		return nil
	}, noRetry)
	if err != nil {
		undoLine(ctx, j, "fallback")
		_ = doLine(ctx, j, "fallback")
		return errors.New("the fallback is not enough")
	}
	return nil
}

// TestRegistrationBehindWhatALaterAttemptTookOver registers an undo on a way that only the first attempt of the run took.
// Before it lies what the second attempt found under way, and wrote anew.
func TestRegistrationBehindWhatALaterAttemptTookOver(t *testing.T) {
	t.Parallel()
	child := Define[struct{}, int]("child", Queue("kids"))
	for name, code := range map[string]func(Context, *journal, *atomic.Int64) error{
		"Child": func(ctx Context, j *journal, tries *atomic.Int64) error {
			if _, err := StartChild(ctx, "child", child, struct{}{}); err != nil {
				return err
			}
			return primaryOrFallback(ctx, j, tries)
		},
		"Map": func(ctx Context, j *journal, tries *atomic.Int64) error {
			f := Go(ctx, "b", func(ctx Context) ([]int, error) {
				return Map(ctx, "m", []int{1, 2}, func(ctx Context, n int) (int, error) {
					if n == 1 {
						err := primaryOrFallback(ctx, j, tries)
						if err != nil && ctx.Attempt() == 1 {
							return 0, sleepLong(ctx) // the run fails meanwhile
						}
						return 0, err
					}
					return 0, Sleep(ctx, "pause", time.Millisecond)
				})
			})
			err := Do(ctx, "main", func(context.Context) error {
				if ctx.Attempt() > 1 {
					return nil
				}
				if !comesTrue(patience, func() bool { return j.has("fallback") }) {
					return errors.New("no fallback")
				}
				return errors.New("no")
			}, noRetry)
			if err != nil {
				return err
			}
			_, err = f.Result(ctx)
			return err
		},
		"Group": func(ctx Context, j *journal, tries *atomic.Int64) error {
			return Parallel(ctx, "p", map[string]func(Context) error{"b": func(ctx Context) error {
				return primaryOrFallback(ctx, j, tries)
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", twice)
			j := &journal{}
			var tries atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				undoLine(ctx, j, "first")
				if err := code(ctx, j, &tries); err != nil {
					return 0, err
				}
				return 0, sleepLong(ctx)
			})
			run := begin(k, wf, 1)
			waitFor(t, "the second attempt sleeps, or the run is over", func() bool {
				info, err := run.Info(k.ctx)
				return err != nil || info.Status.Ended() || info.WaitingOn == "timer long"
			})
			if err := run.Cancel(k.ctx); err != nil {
				t.Fatal(err)
			}
			endsAs(k, run, StatusCancelled)
			wantJournal(t, j, "undo-first", "undo-fallback")
		})
	}
}

// TestCancelAmidAGroupThatFailedBefore cancels the run in its second attempt, in a group that failed in the first.
func TestCancelAmidAGroupThatFailedBefore(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", twice)
	j := &journal{}
	var tries atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		return 0, Parallel(ctx, "p", map[string]func(Context) error{
			"a": func(ctx Context) error {
				var booked string
				Compensate(ctx, "undo-a", func(context.Context) error {
					j.add("undo-a:" + booked)
					return nil
				})
				var err error
				booked, err = Step(ctx, "a", func(context.Context) (string, error) {
					if tries.Add(1) == 1 {
						return "", errors.New("no")
					}
					return "a7", nil
				}, noRetry)
				return err
			},
			"b": func(ctx Context) error {
				var booked string
				Compensate(ctx, "undo-b", func(context.Context) error {
					j.add("undo-b:" + booked)
					return nil
				})
				if ctx.Attempt() == 2 {
					var err error
					if booked, err = Step(ctx, "b", func(context.Context) (string, error) { return "b7", nil }); err != nil {
						return err
					}
				}
				return sleepLong(ctx)
			},
		})
	})
	run := begin(k, wf, 1)
	waitFor(t, "a is done", func() bool { return tries.Load() == 2 })
	k.waitStatus(run.ID(), StatusSleeping)
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	endsAs(k, run, StatusCancelled)
	wantJournal(t, j, "undo-a:a7", "undo-b:b7")
}
