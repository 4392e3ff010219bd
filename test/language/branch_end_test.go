package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// untilCancelled is a step function that counts its calls and ends with its context.
func untilCancelled(calls *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		calls.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
}

var headline = kagzi.DefineSignal[string]("headline")

// TestFailedBranchIsReplayedFromHistory lets a branch fail while branches below it work, handles the failure, and wakes
// the run several times: no replay starts anything below the branch, and a later message reaches the workflow function.
func TestFailedBranchIsReplayedFromHistory(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	var hotel atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		_, err := kagzi.Go(ctx, "trip", func(ctx kagzi.Context) (int, error) {
			kagzi.Go(ctx, "hotel", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "book", untilCancelled(&hotel))
			})
			kagzi.Go(ctx, "listener", func(ctx kagzi.Context) (string, error) {
				return kagzi.WaitSignal(ctx, headline)
			})
			await.True(t, "the hotel is being booked", func() bool { return hotel.Load() > 0 })
			return 0, kagzi.Do(ctx, "flight", failing)
		}).Result(ctx)
		if err == nil {
			return "", errors.New("no failure")
		}
		if err := kit.Naps(ctx, 3); err != nil {
			return "", err
		}
		return kagzi.WaitSignal(ctx, headline)
	})
	run := kit.Begin(k, wf, 1)
	k.ThroughNaps(run.ID(), 0, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap2")
	k.Signal(run.ID(), headline.With("for the root"))
	k.ThroughNaps(run.ID(), 2, 2)
	if got := kit.ResultOf(k, run); got != "for the root" {
		t.Errorf("got %q", got)
	}
	if n := hotel.Load(); n != 1 {
		t.Errorf("the hotel was called %d times", n)
	}
	if rows := k.Steps(run.ID())["trip"]; len(rows) != 1 || rows[0].Type != "BRANCH" ||
		rows[0].Status != kagzi.StatusFailed {
		t.Errorf("the branch's end is recorded as %+v", rows)
	}
}

// TestVariablesOfAFailedGroup sets a variable in a branch of a group that fails: a replay sets it to the same value.
func TestVariablesOfAFailedGroup(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]struct {
		rest func(kagzi.Context) error
		opts []kagzi.BranchOption
	}{
		"Failed": {rest: func(ctx kagzi.Context) error { return kagzi.Do(ctx, "bad", failing) }},
		"TimedOut": {
			rest: func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", time.Hour) },
			opts: []kagzi.BranchOption{enough},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			replayed(k, func(ctx kagzi.Context) string {
				booked := make(chan struct{})
				var flight string
				err := kagzi.Parallel(ctx, "trip", map[string]func(kagzi.Context) error{
					"flight": func(ctx kagzi.Context) (err error) {
						defer close(booked)
						flight, err = kagzi.Step(ctx, "book", onceEnded(t, "book", "LH 1"))
						return err
					},
					"rest": func(ctx kagzi.Context) error {
						await.Opened(t, booked)
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

// A branch is started on a branch that is being cancelled. The run handles the failure and completes.
func TestGoOnACancelledBranch(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		cancelled := make(chan struct{})
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"bad": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
			"late": func(ctx kagzi.Context) error {
				<-ctx.Done()
				defer close(cancelled)
				kagzi.Go(ctx, "nobody asks", func(ctx kagzi.Context) (int, error) { return 1, nil })
				return nil
			},
		})
		await.Opened(t, cancelled)
		if err == nil {
			return "", errors.New("no failure")
		}
		return "handled", nil
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != "handled" {
		t.Errorf("got %q", got)
	}
}

// TestTwoBranchesFail lets two branches of a group's member fail. The member returns the error of the first: the second
// changes nothing, whichever ends first.
func TestTwoBranchesFail(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"ab", "ba"} {
		t.Run(order, func(t *testing.T) {
			k := kit.New(t)
			got := replayed(k, func(ctx kagzi.Context) string {
				done := map[byte]chan struct{}{'a': make(chan struct{}), 'b': make(chan struct{})}
				err := kagzi.Parallel(ctx, "p",
					map[string]func(kagzi.Context) error{"m": func(ctx kagzi.Context) error {
						branch := func(name byte) func(kagzi.Context) (int, error) {
							return func(ctx kagzi.Context) (int, error) {
								defer close(done[name])
								if name == order[1] {
									await.Opened(t, done[order[0]])
								}
								return 0, errors.New(string(name))
							}
						}
						a := kagzi.Go(ctx, "a", branch('a'))
						kagzi.Go(ctx, "b", branch('b'))
						await.Opened(t, done['b'])
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

// TestRaceWonAfterAFailure lets the winner of a race handle a failed step, and the run fail later: the next attempt
// sees the same winner and result.
func TestRaceWonAfterAFailure(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.Twice)
	var probes atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		_, got, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (string, error){
			"a": func(ctx kagzi.Context) (string, error) {
				err := kagzi.Do(ctx, "probe", func(context.Context) error {
					if probes.Add(1) == 1 {
						return kagzi.Permanent(errors.New("closed"))
					}
					return nil
				})
				if err == nil {
					return "", errors.New("the probe was made again")
				}
				return "fallback", nil
			},
			"b": func(ctx kagzi.Context) (string, error) { return "", kagzi.Sleep(ctx, "long", time.Hour) },
		})
		if err == nil && ctx.Attempt() == 1 {
			err = errors.New("not yet")
		}
		return got, err
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != "fallback" || probes.Load() != 1 {
		t.Errorf("got %q after %d probes", got, probes.Load())
	}
}

// Branches below the winner of a race, and below a member of a Map, continue after the end of the group, also in a
// replay.
func TestBranchesThatOutliveTheirGroup(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, []string]("wf", kit.NoRetry)
	var left atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) ([]string, error) {
		leaves := func(ctx kagzi.Context) (int, error) {
			kagzi.Go(ctx, "left", func(ctx kagzi.Context) (int, error) {
				if err := kit.Naps(ctx, 1); err != nil {
					return 0, err
				}
				return 0, kagzi.Do(ctx, "s", func(context.Context) error { left.Add(1); return nil })
			})
			return 1, nil
		}
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"a": leaves, "b": func(ctx kagzi.Context) (int, error) { return 0, kagzi.Sleep(ctx, "long", time.Hour) },
		})
		if err != nil {
			return nil, err
		}
		_, err = kagzi.Map(ctx, "map", []int{1}, func(ctx kagzi.Context, _ int) (int, error) { return leaves(ctx) },
			kagzi.Timeout(time.Hour))
		return nil, err
	})
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer race/a/left/nap0")
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	if left.Load() != 2 {
		t.Errorf("%d of 2 branches went on", left.Load())
	}
}

// A branch was cancelled while it waited for a branch that continues. It is replayed.
func TestClosedBranchThatWaitsForAnother(t *testing.T) {
	k := kit.New(t)
	got := replayed(k, func(ctx kagzi.Context) []string {
		other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
			return 0, kagzi.Sleep(ctx, "long", 2*time.Hour)
		})
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"bad":  func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
			"wait": func(ctx kagzi.Context) error { _, err := other.Result(ctx); return err },
		})
		return []string{fmt.Sprint(err)}
	})
	if want := []string{`kagzi: branch "bad": step "p/bad/s": broken (unknown, 1 attempt)`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestClosedBranchBehindAGroup replays a branch that went on after a race. A loser of the race had waited for a branch
// that is still under way: the replay repeats what the branch did after the race.
func TestClosedBranchBehindAGroup(t *testing.T) {
	k := kit.New(t)
	got := replayed(k, func(ctx kagzi.Context) string {
		var booked string
		done := make(chan struct{})
		other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
			return 0, kagzi.Sleep(ctx, "long", 2*time.Hour)
		})
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"bad": func(ctx kagzi.Context) error {
				await.Opened(t, done)
				return kagzi.Do(ctx, "s", failing)
			},
			"trip": func(ctx kagzi.Context) (err error) {
				defer close(done)
				if _, _, err = kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
					"wait": func(ctx kagzi.Context) (int, error) { return other.Result(ctx) },
					"win": func(ctx kagzi.Context) (int, error) {
						return 0, kagzi.Sleep(ctx, "nap", 300*time.Millisecond)
					},
				}); err != nil {
					return err
				}
				booked, err = kagzi.Step(ctx, "book", onceEnded(t, "book", "LH 1"))
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

// TestBranchIsCancelledInItsReplay wakes a run after the timeout of one of its groups: the group times out while its
// branch replays. The branch replays its whole history all the same, so that this execution sees what later ones see.
func TestBranchIsCancelledInItsReplay(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf")
	const steps = 200
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		var booked, below string
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) (err error) {
				for i := range steps {
					if err := kagzi.Do(ctx, fmt.Sprint("step", i), func(context.Context) error {
						return nil
					}); err != nil {
						return err
					}
				}
				f := kagzi.Go(ctx, "sub", func(ctx kagzi.Context) (string, error) {
					return kagzi.Step(ctx, "below", func(context.Context) (string, error) { return "below", nil })
				})
				if booked, err = kagzi.Step(ctx, "book", func(context.Context) (string, error) {
					return "booked", nil
				}); err != nil {
					return err
				}
				if below, err = f.Result(ctx); err != nil {
					return err
				}
				return kagzi.Sleep(ctx, "long", 10*time.Hour)
			},
		}, kagzi.Timeout(time.Hour))
		if !errors.Is(err, kind.Timeout) {
			return "", fmt.Errorf("no timeout: %w", err)
		}
		return booked + " " + below, nil
	})
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Exec(`UPDATE kagzi.step_runs SET wake_at = now() WHERE step_id = 'p'`)
	k.Wake(run.ID())
	if got := kit.ResultOf(k, run); got != "booked below" {
		t.Errorf("got %q", got)
	}
}
