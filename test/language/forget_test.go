package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// failsOnce is a step function that fails the first time.
func failsOnce(calls *atomic.Int64) func(context.Context) error {
	return func(context.Context) error {
		if calls.Add(1) == 1 {
			return errors.New("not today")
		}
		return nil
	}
}

// A run fails once. The next attempt, of its policy or after a Resume, executes the failed steps again, and no others.
func TestWhatANewAttemptForgets(t *testing.T) {
	t.Parallel()
	type calls struct{ work, other, notice atomic.Int64 }
	notify := func(ctx kagzi.Context, c *calls) error {
		return kagzi.Do(ctx, "notify", func(context.Context) error { c.notice.Add(1); return nil })
	}
	errOpaque := errors.New("it did not work")
	for _, tt := range []struct {
		name string
		fn   func(ctx kagzi.Context, c *calls) error
		want string // how often the work, the other and the notice were executed once the run is over
		ends string // with what; empty: well
	}{
		{name: "ReturnedByTheFunction", want: "2 0 0", fn: func(ctx kagzi.Context, c *calls) error {
			return kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry)
		}},
		{name: "ReportedFirst", want: "2 0 1", fn: func(ctx kagzi.Context, c *calls) error {
			if err := kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry); err != nil {
				return errors.Join(notify(ctx, c), fmt.Errorf("order: %w", err))
			}
			return nil
		}},
		{name: "NotWrapped", want: "2 0 0", fn: func(ctx kagzi.Context, c *calls) error {
			if kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry) != nil {
				return errOpaque
			}
			return nil
		}},
		{
			name: "ReportedAndNotWrapped", want: "1 0 1", ends: "it did not work",
			fn: func(ctx kagzi.Context, c *calls) error {
				if kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry) != nil {
					return errors.Join(notify(ctx, c), errOpaque)
				}
				return nil
			},
		},
		{name: "DealtWith", want: "1 2 1", fn: func(ctx kagzi.Context, c *calls) error {
			if err := kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry); err != nil {
				if err := notify(ctx, c); err != nil {
					return err
				}
			}
			return kagzi.Do(ctx, "other", failsOnce(&c.other), kit.NoRetry)
		}},
		{name: "InABranch", want: "2 0 1", fn: func(ctx kagzi.Context, c *calls) error {
			_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry)
			}).Result(ctx)
			if err != nil {
				return errors.Join(notify(ctx, c), err)
			}
			return nil
		}},
		{name: "InABranchThatNobodyAsked", want: "2 0 1", fn: func(ctx kagzi.Context, c *calls) error {
			kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry)
			})
			return notify(ctx, c)
		}},
		{name: "BothOfAGroup", want: "2 2 1", fn: func(ctx kagzi.Context, c *calls) error {
			err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error {
					return kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry)
				},
				"b": func(ctx kagzi.Context) error {
					return kagzi.Do(ctx, "other", failsOnce(&c.other), kit.NoRetry)
				},
			}, kagzi.CollectErrors())
			if err != nil {
				return errors.Join(notify(ctx, c), err)
			}
			return nil
		}},
		{name: "AGroupThatIsNotWrapped", want: "2 2 0", fn: func(ctx kagzi.Context, c *calls) error {
			_, err := kagzi.Map(ctx, "m", []int{0, 1}, func(ctx kagzi.Context, n int) (int, error) {
				return 0, kagzi.Do(ctx, "s", failsOnce([]*atomic.Int64{&c.work, &c.other}[n]), kit.NoRetry)
			}, kagzi.CollectErrors())
			if err != nil {
				return errOpaque
			}
			return nil
		}},
		{name: "HandledInAMember", want: "2 0 0", fn: func(ctx kagzi.Context, c *calls) error {
			found, err := kagzi.Map(ctx, "m", []int{0}, func(ctx kagzi.Context, n int) (bool, error) {
				return kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry) == nil, nil
			}, kagzi.Timeout(time.Hour))
			if err == nil && !found[0] {
				return errOpaque
			}
			return err
		}},
		{
			name: "HandledInAMemberThatFailsThen", want: "2 0 0", ends: "it is there",
			fn: func(ctx kagzi.Context, c *calls) error {
				_, err := kagzi.Map(ctx, "m", []int{0}, func(ctx kagzi.Context, n int) (int, error) {
					if kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry) == nil {
						return 0, errors.New("it is there")
					}
					return 0, nil
				})
				if err == nil {
					return errOpaque
				}
				return err
			},
		},
		{name: "BelowABranchThatWasDealtWith", want: "1 2 1", fn: func(ctx kagzi.Context, c *calls) error {
			_, err := kagzi.Go(ctx, "trip", func(ctx kagzi.Context) (int, error) {
				below := kagzi.Go(ctx, "below", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Do(ctx, "work", failsOnce(&c.work), kit.NoRetry)
				})
				_, err := below.Result(ctx)
				return 0, err
			}).Result(ctx)
			if err == nil {
				return errors.New("the trip is made again")
			}
			if err := notify(ctx, c); err != nil {
				return err
			}
			return kagzi.Do(ctx, "other", failsOnce(&c.other), kit.NoRetry)
		}},
	} {
		for _, how := range []string{"Policy", "Resume"} {
			t.Run(tt.name+how, func(t *testing.T) {
				k := kit.New(t)
				var c calls
				policy := kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}
				if how == "Resume" {
					policy = kit.NoRetry
				}
				wf := kagzi.Define[int, int]("wf", policy)
				kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
					return 1, tt.fn(ctx, &c)
				})
				run := kit.Begin(k, wf, 1)
				if how == "Resume" {
					kit.FailureOf(k, run, kagzi.StatusFailed)
					k.Resume(run.ID())
				}
				if tt.ends == "" {
					kit.ResultOf(k, run)
				} else if re := kit.FailureOf(k, run, kagzi.StatusFailed); !strings.Contains(re.Message, tt.ends) {
					t.Errorf("the run ended with %v", re)
				}
				if got := fmt.Sprint(c.work.Load(), c.other.Load(), c.notice.Load()); got != tt.want {
					t.Errorf("the steps were executed %s times, want %s", got, tt.want)
				}
			})
		}
	}
}

// A run chooses a vendor because a probe of another fails, charges the chosen one, and then fails. Its retry chooses
// the same.
func TestARetryTakesTheSameWay(t *testing.T) {
	k := kit.New(t)
	type order struct{ Vendor, Charged string }
	wf := kagzi.Define[int, order]("wf", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
	var probes, receipts atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (o order, err error) {
		o.Vendor = "A"
		if kagzi.Do(ctx, "probe", failsOnce(&probes), kit.NoRetry) != nil {
			o.Vendor = "B"
		}
		if o.Charged, err = kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
			return o.Vendor, nil
		}); err != nil {
			return o, err
		}
		err = kagzi.Do(ctx, "receipt", func(context.Context) error {
			if receipts.Add(1) == 1 {
				return errors.New("no paper")
			}
			return nil
		}, kit.NoRetry)
		return o, err
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != (order{"B", "B"}) {
		t.Errorf("got %+v", got)
	}
	if probes.Load() != 1 || receipts.Load() != 2 {
		t.Errorf("%d probes and %d receipts", probes.Load(), receipts.Load())
	}
}

// A run without a policy, or whose policy has no number of attempts, has one attempt.
func TestARunHasOneAttempt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts []kagzi.StartOption
		want int64
	}{"Default": {nil, 1}, "APolicy": {[]kagzi.StartOption{kagzi.RetryPolicy{Backoff: time.Millisecond}}, 3}} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf")
			var attempts atomic.Int64
			kit.Serve(k, wf, func(kagzi.Context, int) (int, error) { attempts.Add(1); return 0, errors.New("no") })
			kit.FailureOf(k, kit.Begin(k, wf, 1, tt.opts...), kagzi.StatusFailed)
			if n := attempts.Load(); n != tt.want {
				t.Errorf("%d attempts, want %d", n, tt.want)
			}
		})
	}
}

// A run that returns the timeout of a group makes no further attempt.
func TestAGroupsTimeIsOver(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.Soon)
	var attempts atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		attempts.Add(1)
		return 0, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", time.Hour) },
		}, kagzi.Timeout(300*time.Millisecond))
	})
	run := kit.Begin(k, wf, 1)
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Timeout {
		t.Errorf("failed with %v", re)
	}
	if info := k.InfoOf(run.ID()); info.Attempts != 1 {
		t.Errorf("%d attempts failed", info.Attempts)
	}
}

// TestForget names failures that a function handled before it continued: a step's and a group's.
func TestForget(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	var probes, packs atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
		probe := kagzi.Do(ctx, "probe", failsOnce(&probes), kit.NoRetry)
		_, ship := kagzi.Map(ctx, "ship", []int{0}, func(ctx kagzi.Context, _ int) (int, error) {
			return 0, kagzi.Do(ctx, "pack", failsOnce(&packs), kit.NoRetry)
		})
		slow := kagzi.Parallel(ctx, "slow", map[string]func(kagzi.Context) error{"a": func(ctx kagzi.Context) error {
			if ctx.Attempt() > 1 {
				return nil
			}
			return kagzi.Sleep(ctx, "nap", time.Hour)
		}}, kagzi.Timeout(300*time.Millisecond))
		if err := kagzi.Do(ctx, "note", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		for what, err := range map[string]error{"probe": probe, "ship": ship, "slow": slow} {
			if err != nil {
				return "", fmt.Errorf("no %s", what)
			}
		}
		return "done", nil
	})
	run := kit.Begin(k, wf, 1)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	for _, wrong := range []string{"note", "shop", "ship/0/pa", "slow/a"} {
		err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID(), admin.Forget("probe", wrong))
		if !errors.Is(err, kagzi.ErrNotFound) || kagzi.KindOf(err) != kind.NotFound {
			t.Errorf("forget %s: %v", wrong, err)
		}
		kit.MustContain(t, err, wrong, "Client.Steps")
	}
	kit.MustContain(t, admin.New(k.Client).Runs.Resume(k.Ctx, run.ID(), admin.Forget("#patched:x")), "Kagzi's own")
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID(), nil); err == nil {
		t.Error("a nil option is accepted")
	}
	failed := kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusFailed}}
	if b, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, failed, admin.Forget("note")); err != nil ||
		len(b.Changed) > 0 ||
		!errors.Is(b.Skipped[run.ID()], kagzi.ErrNotFound) {
		t.Errorf("%+v, %v", b, err)
	}
	b, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, failed, admin.Forget("probe", "ship/0/pack"),
		admin.Forget("slow"),
		kagzi.Reason("the vendor is back"))
	if err != nil || len(b.Changed) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := kit.ResultOf(k, run); got != "done" || probes.Load() != 2 || packs.Load() != 2 {
		t.Errorf("got %q after %d probes and %d packs", got, probes.Load(), packs.Load())
	}
}

// TestForgetABranch names a branch, or the group around it, whose failure the function has handled: with it go the
// failures that it failed with, and not one that it had handled itself.
func TestForgetABranch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ship/air", "ship", "ship/air/fly/0/load"} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, string]("wf", kit.NoRetry)
			var probes, loads, trains atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
				err := kagzi.Parallel(ctx, "ship", map[string]func(kagzi.Context) error{
					"air": func(ctx kagzi.Context) error {
						if err := kagzi.Do(ctx, "probe", failsOnce(&probes), kit.NoRetry); err == nil {
							return errors.New("the probe was tried again")
						}
						_, err := kagzi.Map(ctx, "fly", []int{0}, func(ctx kagzi.Context, _ int) (int, error) {
							return 0, kagzi.Do(ctx, "load", failsOnce(&loads), kit.NoRetry)
						})
						return err
					},
					"land": func(ctx kagzi.Context) error {
						return kagzi.Do(ctx, "train", func(context.Context) error { trains.Add(1); return nil })
					},
				})
				if e := kit.DoLine(ctx, &kit.Journal{}, "plan B"); e != nil {
					return "", e
				}
				if err != nil {
					return "", errors.New("not shipped")
				}
				return "shipped", nil
			})
			run := kit.Begin(k, wf, 1)
			kit.FailureOf(k, run, kagzi.StatusFailed)
			k.Resume(run.ID(), admin.Forget(name))
			if got := kit.ResultOf(k, run); got != "shipped" || probes.Load() != 1 || loads.Load() != 2 ||
				trains.Load() > 2 {
				t.Errorf("got %q after %d probes, %d loads and %d trains", got, probes.Load(), loads.Load(),
					trains.Load())
			}
		})
	}
}

// A detailed error is of a type that can be compared, unless its details cannot.
type detailed struct {
	details any
	cause   error
}

func (d detailed) Error() string { return d.cause.Error() }
func (d detailed) Unwrap() error { return d.cause }

// TestForgetsBehindAnErrorThatCannotBeCompared has a branch return such an error, and the function report and return
// it.
func TestForgetsBehindAnErrorThatCannotBeCompared(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.Twice)
	var pays atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			if err := kagzi.Do(ctx, "pay", failsOnce(&pays), kit.NoRetry); err != nil {
				return 0, detailed{[]string{"declined"}, err}
			}
			return 1, nil
		}).Result(ctx)
		if e := kit.DoLine(ctx, &kit.Journal{}, "report"); e != nil {
			return 0, e
		}
		return 1, err
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != 1 || pays.Load() != 2 {
		t.Errorf("got %d after %d calls", got, pays.Load())
	}
}

// TestForgetsOneOfTwoEqualErrors has two branches return one error: the function goes on after the first, and fails
// with the second, which alone is forgotten.
func TestForgetsOneOfTwoEqualErrors(t *testing.T) {
	k := kit.New(t)
	soldOut := errors.New("sold out")
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		ask := func(name string) error {
			_, err := kagzi.Go(ctx, name, func(ctx kagzi.Context) (int, error) {
				return 0, kit.DoLine(ctx, &kit.Journal{}, "ask")
			}).Result(ctx)
			if err == nil {
				_, err = kagzi.Go(ctx, name+"-answer", func(kagzi.Context) (int, error) {
					return 0, soldOut
				}).Result(ctx)
			}
			return err
		}
		if err := ask("a"); err != nil {
			if e := kit.DoLine(ctx, &kit.Journal{}, "plan b"); e != nil {
				return 0, e
			}
		}
		return 0, ask("b")
	})
	run := kit.Begin(k, kit.Travel, 1)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	for name, want := range map[string]int{"a-answer": 0, "b-answer": 1} {
		if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = $1 AND step_kind = 'BRANCH'
			AND forgotten_by IS NOT NULL`, name); n != want {
			t.Errorf("%d failures of %s are forgotten, want %d", n, name, want)
		}
	}
}

// TestForgetABranchThatFailedTwice names a branch that has failed twice: what it failed with the second time is
// forgotten, and not what it had dealt with by then.
func TestForgetABranchThatFailedTwice(t *testing.T) {
	k := kit.New(t)
	var n, x atomic.Int64
	n.Store(1)
	fail := func(ctx kagzi.Context, name string, when func() bool) error {
		return kagzi.Do(ctx, name, func(context.Context) error {
			if name == "x" {
				x.Add(1)
			}
			if when() {
				return kagzi.Permanent(errors.New(name + " failed"))
			}
			return nil
		})
	}
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			if err := fail(ctx, "x", func() bool { return n.Load() < 3 }); err != nil {
				if e := fail(ctx, "fallback", func() bool { return n.Load() < 2 }); e != nil {
					return 0, errors.Join(err, e)
				}
			}
			return 1, fail(ctx, "y", func() bool { return n.Load() < 3 })
		}).Result(ctx)
	})
	run := kit.Begin(k, kit.Travel, 1)
	kit.EndsAs(k, run, kagzi.StatusFailed)
	n.Store(2)
	k.Resume(run.ID())
	await.True(t, "failed", func() bool { return k.InfoOf(run.ID()).Status == kagzi.StatusFailed })
	n.Store(3)
	was := x.Load()
	k.Resume(run.ID(), admin.Forget("b"))
	await.True(t, "completed", func() bool { return k.InfoOf(run.ID()).Status == kagzi.StatusCompleted })
	if x.Load() != was {
		t.Error("x was tried again, which the branch had dealt with, and did not fail with")
	}
}

// TestForgetABranchThatFailedByItself names a branch that returned an error of its own, and the group around one.
func TestForgetABranchThatFailedByItself(t *testing.T) {
	k := kit.New(t)
	var full atomic.Bool
	full.Store(true)
	stock := func(kagzi.Context) error {
		if full.Load() {
			return errors.New("no room")
		}
		return nil
	}
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		_, b := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) { return 0, stock(ctx) }).Result(ctx)
		group := kagzi.Parallel(ctx, "group", map[string]func(kagzi.Context) error{"a": stock})
		if err := kit.DoLine(ctx, &kit.Journal{}, "report"); err != nil {
			return 0, err
		}
		if b != nil || group != nil {
			return 0, errors.New("no room at all")
		}
		return 1, nil
	})
	run := kit.Begin(k, kit.Travel, 1)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	full.Store(false)
	k.Resume(run.ID(), admin.Forget("b", "group"))
	kit.ResultOf(k, run)
}
