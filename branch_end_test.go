package kagzi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// untilCancelled is a step function that counts its calls and ends with its context.
func untilCancelled(calls *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		calls.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
}

var headline = DefineSignal[string]("headline")

// TestFailedBranchIsReplayedFromHistory lets a branch fail while branches below it work, handles the failure, and wakes the
// run several times: no replay starts anything below the branch, and a later message reaches the workflow function.
func TestFailedBranchIsReplayedFromHistory(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", noRetry)
	var hotel atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		_, err := Go(ctx, "trip", func(ctx Context) (int, error) {
			Go(ctx, "hotel", func(ctx Context) (int, error) { return 0, Do(ctx, "book", untilCancelled(&hotel)) })
			Go(ctx, "listener", func(ctx Context) (string, error) { return WaitSignal(ctx, headline) })
			waitFor(t, "the hotel is being booked", func() bool { return hotel.Load() > 0 })
			return 0, Do(ctx, "flight", failing)
		}).Result(ctx)
		if err == nil {
			return "", errors.New("no failure")
		}
		if err := naps(ctx, 3); err != nil {
			return "", err
		}
		return WaitSignal(ctx, headline)
	})
	run := begin(k, wf, 1)
	k.throughNaps(run.ID(), 0, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap2")
	k.signal(run.ID(), headline.With("for the root"))
	k.throughNaps(run.ID(), 2, 2)
	if got := resultOf(k, run); got != "for the root" {
		t.Errorf("got %q", got)
	}
	if n := hotel.Load(); n != 1 {
		t.Errorf("the hotel was called %d times", n)
	}
	if rows := k.steps(run.ID())["trip"]; len(rows) != 1 || rows[0].Type != "BRANCH" || rows[0].Status != StatusFailed {
		t.Errorf("the branch's end is recorded as %+v", rows)
	}
}

// TestVariablesOfAFailedGroup sets a variable in a branch of a group that fails: a replay sets it to the same value.
func TestVariablesOfAFailedGroup(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]struct {
		rest func(Context) error
		opts []BranchOption
	}{
		"Failed":   {rest: func(ctx Context) error { return Do(ctx, "bad", failing) }},
		"TimedOut": {rest: func(ctx Context) error { return Sleep(ctx, "long", time.Hour) }, opts: []BranchOption{Timeout(5 * time.Second)}}, // enough on a busy machine
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			replayed(k, func(ctx Context) string {
				booked := make(chan struct{})
				var flight string
				err := Parallel(ctx, "trip", map[string]func(Context) error{
					"flight": func(ctx Context) (err error) {
						defer close(booked)
						flight, err = Step(ctx, "book", onceEnded(t, "book", "LH 1"))
						return err
					},
					"rest": func(ctx Context) error {
						<-booked
						return group.rest(ctx)
					},
				}, group.opts...)
				if err == nil {
					t.Error("no error")
				}
				if flight != "LH 1" {
					t.Errorf("the flight is %q", flight)
				}
				return flight
			})
		})
	}
}

// TestGoOnACancelledBranch starts a branch on one that is being cancelled: the run handles the failure, and completes.
func TestGoOnACancelledBranch(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", noRetry)
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		cancelled := make(chan struct{})
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"bad": func(ctx Context) error { return Do(ctx, "s", failing) },
			"late": func(ctx Context) error {
				<-ctx.Done()
				defer close(cancelled)
				Go(ctx, "nobody asks", func(ctx Context) (int, error) { return 1, nil })
				return nil
			},
		})
		<-cancelled
		if err == nil {
			return "", errors.New("no failure")
		}
		return "handled", nil
	})
	if got := resultOf(k, begin(k, wf, 1)); got != "handled" {
		t.Errorf("got %q", got)
	}
}

// TestTwoBranchesFail lets two branches of a group's member fail. The member returns the error of the first: the second
// changes nothing, whichever ends first.
func TestTwoBranchesFail(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"ab", "ba"} {
		t.Run(order, func(t *testing.T) {
			k := newKit(t)
			got := replayed(k, func(ctx Context) string {
				done := map[byte]chan struct{}{'a': make(chan struct{}), 'b': make(chan struct{})}
				err := Parallel(ctx, "p", map[string]func(Context) error{"m": func(ctx Context) error {
					branch := func(name byte) func(Context) (int, error) {
						return func(ctx Context) (int, error) {
							defer close(done[name])
							if name == order[1] {
								<-done[order[0]]
							}
							return 0, errors.New(string(name))
						}
					}
					a := Go(ctx, "a", branch('a'))
					Go(ctx, "b", branch('b'))
					<-done['b']
					_, err := a.Result(ctx)
					return err
				}})
				return fmt.Sprint(err)
			})
			if got != `kagzi: branch "m": a` {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestRaceWonAfterAFailure lets the winner of a race handle a failed step, and the run fail later: the next attempt sees
// the same winner and result.
func TestRaceWonAfterAFailure(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", twice)
	var probes atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		_, got, err := Race(ctx, "r", map[string]func(Context) (string, error){
			"a": func(ctx Context) (string, error) {
				err := Do(ctx, "probe", func(context.Context) error {
					if probes.Add(1) == 1 {
						return Permanent(errors.New("closed"))
					}
					return nil
				})
				if err == nil {
					return "", errors.New("the probe was made again")
				}
				return "fallback", nil
			},
			"b": func(ctx Context) (string, error) { return "", Sleep(ctx, "long", time.Hour) },
		})
		if err == nil && ctx.Attempt() == 1 {
			err = errors.New("not yet")
		}
		return got, err
	})
	if got := resultOf(k, begin(k, wf, 1)); got != "fallback" || probes.Load() != 1 {
		t.Errorf("got %q after %d probes", got, probes.Load())
	}
}

// TestBranchesThatOutliveTheirGroup starts branches below the winner of a race and below a member of a Map: they go on when
// the group is over, also in a replay.
func TestBranchesThatOutliveTheirGroup(t *testing.T) {
	k := newKit(t)
	wf := Define[int, []string]("wf", noRetry)
	var left atomic.Int64
	serve(k, wf, func(ctx Context, _ int) ([]string, error) {
		leaves := func(ctx Context) (int, error) {
			Go(ctx, "left", func(ctx Context) (int, error) {
				if err := naps(ctx, 1); err != nil {
					return 0, err
				}
				return 0, Do(ctx, "s", func(context.Context) error { left.Add(1); return nil })
			})
			return 1, nil
		}
		_, _, err := Race(ctx, "race", map[string]func(Context) (int, error){
			"a": leaves, "b": func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", time.Hour) },
		})
		if err != nil {
			return nil, err
		}
		_, err = Map(ctx, "map", []int{1}, func(ctx Context, _ int) (int, error) { return leaves(ctx) }, Timeout(time.Hour))
		return nil, err
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer race/a/left/nap0")
	k.forward(run.ID())
	resultOf(k, run)
	if left.Load() != 2 {
		t.Errorf("%d of 2 branches went on", left.Load())
	}
}

// TestClosedBranchThatWaitsForAnother replays a branch that was cancelled while it waited for a branch that goes on.
func TestClosedBranchThatWaitsForAnother(t *testing.T) {
	k := newKit(t)
	got := replayed(k, func(ctx Context) []string {
		other := Go(ctx, "other", func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", 2*time.Hour) })
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"bad":  func(ctx Context) error { return Do(ctx, "s", failing) },
			"wait": func(ctx Context) error { _, err := other.Result(ctx); return err },
		})
		return []string{fmt.Sprint(err)}
	})
	if want := []string{`kagzi: branch "bad": step "p/bad/s": broken (unknown, 1 attempt)`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestClosedBranchBehindAGroup replays a branch that went on after a race. A loser of the race had waited for a branch that
// is still under way: the replay repeats what the branch did after the race.
func TestClosedBranchBehindAGroup(t *testing.T) {
	k := newKit(t)
	got := replayed(k, func(ctx Context) string {
		var booked string
		done := make(chan struct{})
		other := Go(ctx, "other", func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", 2*time.Hour) })
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"bad": func(ctx Context) error {
				<-done
				return Do(ctx, "s", failing)
			},
			"trip": func(ctx Context) (err error) {
				defer close(done)
				if _, _, err = Race(ctx, "r", map[string]func(Context) (int, error){
					"wait": func(ctx Context) (int, error) { return other.Result(ctx) },
					"win":  func(ctx Context) (int, error) { return 0, Sleep(ctx, "nap", 300*time.Millisecond) },
				}); err != nil {
					return err
				}
				booked, err = Step(ctx, "book", onceEnded(t, "book", "LH 1"))
				return err
			},
		})
		if err == nil {
			t.Error("no error")
		}
		return booked
	})
	if got != "LH 1" {
		t.Errorf("got %q", got)
	}
}

// TestBranchIsCancelledInItsReplay wakes a run after the timeout of one of its groups: the group times out while its branch
// replays. The branch replays its whole history all the same, so that this execution sees what later ones see.
func TestBranchIsCancelledInItsReplay(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf")
	const steps = 200
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		var booked, below string
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"a": func(ctx Context) (err error) {
				for i := range steps {
					if err := Do(ctx, fmt.Sprint("step", i), func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				f := Go(ctx, "sub", func(ctx Context) (string, error) {
					return Step(ctx, "below", func(context.Context) (string, error) { return "below", nil })
				})
				if booked, err = Step(ctx, "book", func(context.Context) (string, error) { return "booked", nil }); err != nil {
					return err
				}
				if below, err = f.Result(ctx); err != nil {
					return err
				}
				return Sleep(ctx, "long", 10*time.Hour)
			},
		}, Timeout(time.Hour))
		if !errors.Is(err, KindTimeout) {
			return "", fmt.Errorf("no timeout: %w", err)
		}
		return booked + " " + below, nil
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	k.exec(`UPDATE kagzi.step_runs SET wake_at = now() WHERE step_id = 'p'`)
	k.wake(run.ID())
	if got := resultOf(k, run); got != "booked below" {
		t.Errorf("got %q", got)
	}
}
