package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
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
		k := newKit(t)
		var slow, failed atomic.Int64
		got := replayed(k, func(ctx Context) saw {
			w, r, err := Race(ctx, "r", map[string]func(Context) (int, error){
				"fast": func(ctx Context) (int, error) {
					if err := Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
						return 0, err
					}
					return Step(ctx, "s", onceEnded(t, "fast", 1))
				},
				"asleep": func(ctx Context) (int, error) { return 2, Sleep(ctx, "long", time.Hour) },
				"bad": func(ctx Context) (int, error) {
					return 3, Do(ctx, "s", func(ctx context.Context) error { failed.Add(1); return failing(ctx) })
				},
				"deaf": func(ctx Context) (int, error) {
					return Step(ctx, "s", func(ctx context.Context) (int, error) { slow.Add(1); <-ctx.Done(); return 4, nil })
				},
				"nested": func(ctx Context) (int, error) {
					return Go(ctx, "inner", func(ctx Context) (int, error) { return 5, Sleep(ctx, "long", time.Hour) }).Result(ctx)
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
		if n := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'r/deaf/s'`); n != 0 {
			t.Error("a loser recorded a step after the race was decided")
		}
	})
	t.Run("ALosersOwnBranchesDoNotFailTheRun", func(t *testing.T) {
		k := newKit(t)
		got := complete(k, func(ctx Context) (int, error) {
			_, n, err := Race(ctx, "r", map[string]func(Context) (int, error){
				"fast": func(ctx Context) (int, error) { return 1, Sleep(ctx, "nap", 50*time.Millisecond) },
				"slow": func(ctx Context) (int, error) {
					return Go(ctx, "inner", func(ctx Context) (int, error) { return 2, Sleep(ctx, "long", time.Hour) }).Result(ctx)
				},
			})
			return n, err
		})
		if got != 1 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("OfNone", func(t *testing.T) {
		k := newKit(t)
		refused(k, func(ctx Context) (int, error) {
			_, _, err := Race(ctx, "r", map[string]func(Context) (int, error){})
			if KindOf(err) != KindBadRequest {
				t.Errorf("got %v of kind %q", err, KindOf(err))
			}
			mustContain(t, err, `Race "r" has no branches`)
			return 0, errors.Join(Parallel(ctx, "p", nil), Sleep(ctx, "s", time.Millisecond))
		})
	})
	t.Run("AllFail", func(t *testing.T) {
		k := newKit(t)
		got := replayed(k, func(ctx Context) saw {
			b := func(ctx Context) (int, error) { return 9, Do(ctx, "s", failing) }
			w, r, err := Race(ctx, "r", map[string]func(Context) (int, error){"a": b, "b": b})
			if bes, _ := errors.AsType[BranchErrors](err); len(bes) != 2 || bes[0].Name != "a" || bes[1].Name != "b" {
				t.Errorf("got %v", err)
			}
			return saw{w, r, fmt.Sprint(err), ctx.Now()}
		})
		if got.Winner != "" || got.Result != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		k := newKit(t)
		got := replayed(k, func(ctx Context) saw {
			w, r, err := Race(ctx, "r", map[string]func(Context) (int, error){
				"a": func(ctx Context) (int, error) { return 1, Sleep(ctx, "long", time.Hour) },
				"b": func(ctx Context) (int, error) { return 1, Sleep(ctx, "longer", 2*time.Hour) },
			}, Timeout(300*time.Millisecond)) // over the limit of waits in memory
			if !errors.Is(err, KindTimeout) {
				t.Errorf("got %v", err)
			}
			return saw{w, r, fmt.Sprint(err), ctx.Now()}
		})
		if got.Winner != "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("AWinnerThatIsNoLongerThere", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		code := func(names ...string) func(Context, struct{}) (int, error) {
			return func(ctx Context, _ struct{}) (int, error) {
				branches := map[string]func(Context) (int, error){}
				for _, n := range names {
					branches[n] = func(Context) (int, error) { return 1, nil }
				}
				if _, _, err := Race(ctx, "r", branches); err != nil {
					return 0, err
				}
				return 0, Sleep(ctx, "long", time.Hour)
			}
		}
		stop := serve(k, wf, code("a"))
		run := begin(k, wf, struct{}{})
		k.waitStatus(run.ID(), StatusSleeping)
		stop()
		serve(k, wf, code("b"))
		k.wake(run.ID())
		re := failureOf(k, run, StatusFailed)
		if re.Kind != KindNondeterminism {
			t.Errorf("kind %q", re.Kind)
		}
		mustContain(t, re, `"a"`, `"r"`)
	})
}

// TestLoserThatRegisters lets a branch lose its race while it registers a compensation, so that this is not recorded: it does
// not come to the step that this is about, and the compensation does not run.
func TestLoserThatRegisters(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	lost := make(chan struct{})
	var muted sync.Once
	w := newTestWorker(t, k.c, WorkerConfig{})
	failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "losers muted" { // and not cancelled yet
			muted.Do(func() {
				close(lost)
				comesTrue(100*time.Millisecond, func() bool { return j.has("book") })
			})
		}
	})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "root", cancelBooking.With("root"))
		_, _, err := Race(ctx, "r", map[string]func(Context) (int, error){
			"winner": func(ctx Context) (int, error) {
				return 1, Do(ctx, "win", func(context.Context) error { return nil })
			},
			"loser": func(ctx Context) (int, error) {
				<-lost
				Compensate(ctx, "book", cancelBooking.With("book"))
				return 0, doLine(ctx, j, "book")
			},
		})
		if err != nil {
			return 0, err
		}
		return 0, errors.New("out of stock")
	})
	startWorker(t, w)
	serveCancellations(k, j, nil)
	endsAs(k, begin(k, wf, 1), StatusFailed)
	j.want(t, "cancel:root")
}

// TestWinnerIsCancelledInItsReplay has a run fail while a branch is on its way past a race that it has recorded, with code
// that has a new step in the winner: that the winner is cancelled there is no contradiction, and the run fails as it says.
func TestWinnerIsCancelledInItsReplay(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var deployed atomic.Bool
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Go(ctx, "aside", func(ctx Context) (int, error) {
			if _, _, err := Race(ctx, "race", map[string]func(Context) (int, error){
				"only": func(ctx Context) (int, error) {
					if deployed.Load() {
						<-ctx.Done()
						if err := Do(ctx, "new", func(context.Context) error { return nil }); err != nil {
							return 0, errors.New("nothing new") // however it says so
						}
					}
					return 1, Do(ctx, "old", func(context.Context) error { return nil })
				},
			}); err != nil {
				return 0, err
			}
			return 0, Sleep(ctx, "night", 24*time.Hour)
		})
		if err := naps(ctx, 1); err != nil {
			return 0, err
		}
		return 0, errors.New("broken")
	})
	run := begin(k, wf, 1)
	waitFor(t, "the race is over", func() bool { return len(k.steps(run.ID())["aside/night"]) > 0 })
	k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.forward(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
}
