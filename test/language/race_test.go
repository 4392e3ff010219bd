package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestRace(t *testing.T) {
	t.Parallel()
	type saw struct {
		Winner string
		Result int
		Err    string
		Now    time.Time
	}
	t.Run("TheWinnerIsRememberedAndLosersBeginNothingInAReplay", func(t *testing.T) {
		k := kit.New(t)
		var slow, failed atomic.Int64
		got := replayed(k, func(ctx kagzi.Context) saw {
			w, r, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
				"fast": func(ctx kagzi.Context) (int, error) {
					if err := kagzi.Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
						return 0, err
					}
					return kagzi.Step(ctx, "s", onceEnded(t, "fast", 1))
				},
				"asleep": func(ctx kagzi.Context) (int, error) { return 2, kagzi.Sleep(ctx, "long", time.Hour) },
				"bad": func(ctx kagzi.Context) (int, error) {
					return 3, kagzi.Do(ctx, "s", func(ctx context.Context) error { failed.Add(1); return failing(ctx) })
				},
				"deaf": func(ctx kagzi.Context) (int, error) {
					return kagzi.Step(ctx, "s", func(ctx context.Context) (int, error) {
						slow.Add(1)
						<-ctx.Done()
						return 4, nil
					})
				},
				"nested": func(ctx kagzi.Context) (int, error) {
					return kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
						return 5, kagzi.Sleep(ctx, "long", time.Hour)
					}).Result(ctx)
				},
			})
			return saw{w, r, fmt.Sprint(err), ctx.Now()}
		})
		if got.Winner != "fast" || got.Result != 1 || got.Err != "<nil>" {
			t.Errorf("got %+v", got)
		}
		if slow.Load() != 1 || failed.Load() != 1 {
			t.Errorf("losers were executed %d and %d times", slow.Load(), failed.Load())
		}
		// On a busy machine it is long enough under way to be shown: then it has a row before the race is decided.
		if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'r/deaf/s'
			AND status <> 'RUNNING'`); n != 0 {
			t.Error("a loser recorded a step after the race was decided")
		}
	})
	t.Run("ALosersOwnBranchesDoNotFailTheRun", func(t *testing.T) {
		k := kit.New(t)
		got := kit.Complete(k, func(ctx kagzi.Context) (int, error) {
			_, n, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
				"fast": func(ctx kagzi.Context) (int, error) { return 1, kagzi.Sleep(ctx, "nap", 50*time.Millisecond) },
				"slow": func(ctx kagzi.Context) (int, error) {
					return kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
						return 2, kagzi.Sleep(ctx, "long", time.Hour)
					}).Result(ctx)
				},
			})
			return n, err
		})
		if got != 1 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("OfNone", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){})
			if kagzi.KindOf(err) != kind.BadRequest {
				t.Errorf("got %v of kind %q", err, kagzi.KindOf(err))
			}
			kit.MustContain(t, err, `Race "r" has no branches`)
			return 0, errors.Join(kagzi.Parallel(ctx, "p", nil), kagzi.Sleep(ctx, "s", time.Millisecond))
		})
	})
	t.Run("AllFail", func(t *testing.T) {
		k := kit.New(t)
		got := replayed(k, func(ctx kagzi.Context) saw {
			b := func(ctx kagzi.Context) (int, error) { return 9, kagzi.Do(ctx, "s", failing) }
			w, r, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){"a": b, "b": b})
			if bes, _ := errors.AsType[kagzi.BranchErrors](err); len(bes) != 2 || bes[0].Name != "a" ||
				bes[1].Name != "b" {
				t.Errorf("got %v", err)
			}
			return saw{w, r, fmt.Sprint(err), ctx.Now()}
		})
		if got.Winner != "" || got.Result != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		k := kit.New(t)
		got := replayed(k, func(ctx kagzi.Context) saw {
			w, r, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
				"a": func(ctx kagzi.Context) (int, error) { return 1, kagzi.Sleep(ctx, "long", time.Hour) },
				"b": func(ctx kagzi.Context) (int, error) { return 1, kagzi.Sleep(ctx, "longer", 2*time.Hour) },
			}, kagzi.Timeout(300*time.Millisecond)) // over the limit of waits in memory
			if !errors.Is(err, kind.Timeout) {
				t.Errorf("got %v", err)
			}
			return saw{w, r, fmt.Sprint(err), ctx.Now()}
		})
		if got.Winner != "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("AWinnerThatIsNoLongerThere", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		code := func(names ...string) func(kagzi.Context, struct{}) (int, error) {
			return func(ctx kagzi.Context, _ struct{}) (int, error) {
				branches := map[string]func(kagzi.Context) (int, error){}
				for _, n := range names {
					branches[n] = func(kagzi.Context) (int, error) { return 1, nil }
				}
				if _, _, err := kagzi.Race(ctx, "r", branches); err != nil {
					return 0, err
				}
				return 0, kagzi.Sleep(ctx, "long", time.Hour)
			}
		}
		stop := kit.Serve(k, wf, code("a"))
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		stop()
		kit.Serve(k, wf, code("b"))
		k.Wake(run.ID())
		re := kit.FailureOf(k, run, kagzi.StatusFailed)
		if re.Kind != kind.Nondeterminism {
			t.Errorf("kind %q", re.Kind)
		}
		kit.MustContain(t, re, `"a"`, `"r"`)
	})
}

// TestLoserThatRegisters lets a branch lose its race while it registers a compensation, so that the registration is not
// recorded: the branch does not reach the step to be compensated, and the compensation does not run.
func TestLoserThatRegisters(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	j := &kit.Journal{}
	lost := make(chan struct{})
	var stopped sync.Once
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "losers stopped" { // and not cancelled yet
			stopped.Do(func() {
				close(lost)
				await.BecomesTrue(100*time.Millisecond, func() bool { return j.Has("book") })
			})
		}
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "root", kit.CancelBooking.With("root"))
		_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
			"winner": func(ctx kagzi.Context) (int, error) {
				return 1, kagzi.Do(ctx, "win", func(context.Context) error { return nil })
			},
			"loser": func(ctx kagzi.Context) (int, error) {
				await.Opened(t, lost)
				kagzi.Compensate(ctx, "book", kit.CancelBooking.With("book"))
				return 0, kit.DoLine(ctx, j, "book")
			},
		})
		if err != nil {
			return 0, err
		}
		return 0, errors.New("out of stock")
	})
	kit.StartWorker(t, w)
	kit.ServeCancellations(k, j, nil)
	kit.EndsAs(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
	j.Want(t, "cancel:root")
}

// TestWinnerIsCancelledInItsReplay has a run fail while a branch is on its way past a race that it has recorded, with
// code that has a new step in the winner: that the winner is cancelled there is no contradiction, and the run fails as
// it says.
func TestWinnerIsCancelledInItsReplay(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var deployed atomic.Bool
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Go(ctx, "aside", func(ctx kagzi.Context) (int, error) {
			if _, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"only": func(ctx kagzi.Context) (int, error) {
					if deployed.Load() {
						<-ctx.Done()
						if err := kagzi.Do(ctx, "new", func(context.Context) error { return nil }); err != nil {
							return 0, errors.New("nothing new") // however it says so
						}
					}
					return 1, kagzi.Do(ctx, "old", func(context.Context) error { return nil })
				},
			}); err != nil {
				return 0, err
			}
			return 0, kagzi.Sleep(ctx, "night", 24*time.Hour)
		})
		if err := kit.Naps(ctx, 1); err != nil {
			return 0, err
		}
		return 0, errors.New("broken")
	})
	run := kit.Begin(k, wf, 1)
	await.True(t, "the race is over", func() bool { return len(k.Steps(run.ID())["aside/night"]) > 0 })
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.Forward(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Unknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
}
