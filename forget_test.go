package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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

// TestWhatANewAttemptForgets fails a run once, and looks which steps its next attempt executes again: that which the policy
// allows, and that after a Resume.
func TestWhatANewAttemptForgets(t *testing.T) {
	t.Parallel()
	type calls struct{ work, other, notice atomic.Int64 }
	notify := func(ctx Context, c *calls) error {
		return Do(ctx, "notify", func(context.Context) error { c.notice.Add(1); return nil })
	}
	errOpaque := errors.New("it did not work")
	for _, tt := range []struct {
		name string
		fn   func(ctx Context, c *calls) error
		want string // how often the work, the other and the notice were executed once the run is over
		ends string // with what; empty: well
	}{
		{name: "ReturnedByTheFunction", want: "2 0 0", fn: func(ctx Context, c *calls) error {
			return Do(ctx, "work", failsOnce(&c.work), noRetry)
		}},
		{name: "ReportedFirst", want: "2 0 1", fn: func(ctx Context, c *calls) error {
			if err := Do(ctx, "work", failsOnce(&c.work), noRetry); err != nil {
				return errors.Join(notify(ctx, c), fmt.Errorf("order: %w", err))
			}
			return nil
		}},
		{name: "NotWrapped", want: "2 0 0", fn: func(ctx Context, c *calls) error {
			if Do(ctx, "work", failsOnce(&c.work), noRetry) != nil {
				return errOpaque
			}
			return nil
		}},
		{name: "ReportedAndNotWrapped", want: "1 0 1", ends: "it did not work", fn: func(ctx Context, c *calls) error {
			if Do(ctx, "work", failsOnce(&c.work), noRetry) != nil {
				return errors.Join(notify(ctx, c), errOpaque)
			}
			return nil
		}},
		{name: "DealtWith", want: "1 2 1", fn: func(ctx Context, c *calls) error {
			if err := Do(ctx, "work", failsOnce(&c.work), noRetry); err != nil {
				if err := notify(ctx, c); err != nil {
					return err
				}
			}
			return Do(ctx, "other", failsOnce(&c.other), noRetry)
		}},
		{name: "InABranch", want: "2 0 1", fn: func(ctx Context, c *calls) error {
			_, err := Go(ctx, "b", func(ctx Context) (int, error) { return 0, Do(ctx, "work", failsOnce(&c.work), noRetry) }).Result(ctx)
			if err != nil {
				return errors.Join(notify(ctx, c), err)
			}
			return nil
		}},
		{name: "InABranchThatNobodyAsked", want: "2 0 1", fn: func(ctx Context, c *calls) error {
			Go(ctx, "b", func(ctx Context) (int, error) { return 0, Do(ctx, "work", failsOnce(&c.work), noRetry) })
			return notify(ctx, c)
		}},
		{name: "BothOfAGroup", want: "2 2 1", fn: func(ctx Context, c *calls) error {
			err := Parallel(ctx, "p", map[string]func(Context) error{
				"a": func(ctx Context) error {
					return Do(ctx, "work", failsOnce(&c.work), noRetry)
				},
				"b": func(ctx Context) error {
					return Do(ctx, "other", failsOnce(&c.other), noRetry)
				},
			}, CollectErrors())
			if err != nil {
				return errors.Join(notify(ctx, c), err)
			}
			return nil
		}},
		{name: "AGroupThatIsNotWrapped", want: "2 2 0", fn: func(ctx Context, c *calls) error {
			_, err := Map(ctx, "m", []int{0, 1}, func(ctx Context, n int) (int, error) {
				return 0, Do(ctx, "s", failsOnce([]*atomic.Int64{&c.work, &c.other}[n]), noRetry)
			}, CollectErrors())
			if err != nil {
				return errOpaque
			}
			return nil
		}},
		{name: "HandledInAMember", want: "2 0 0", fn: func(ctx Context, c *calls) error {
			found, err := Map(ctx, "m", []int{0}, func(ctx Context, n int) (bool, error) {
				return Do(ctx, "work", failsOnce(&c.work), noRetry) == nil, nil
			}, Timeout(time.Hour))
			if err == nil && !found[0] {
				return errOpaque
			}
			return err
		}},
		{name: "HandledInAMemberThatFailsThen", want: "2 0 0", ends: "it is there", fn: func(ctx Context, c *calls) error {
			_, err := Map(ctx, "m", []int{0}, func(ctx Context, n int) (int, error) {
				if Do(ctx, "work", failsOnce(&c.work), noRetry) == nil {
					return 0, errors.New("it is there")
				}
				return 0, nil
			})
			if err == nil {
				return errOpaque
			}
			return err
		}},
		{name: "BelowABranchThatWasDealtWith", want: "1 2 1", fn: func(ctx Context, c *calls) error {
			_, err := Go(ctx, "trip", func(ctx Context) (int, error) {
				below := Go(ctx, "below", func(ctx Context) (int, error) { return 0, Do(ctx, "work", failsOnce(&c.work), noRetry) })
				_, err := below.Result(ctx)
				return 0, err
			}).Result(ctx)
			if err == nil {
				return errors.New("the trip is made again")
			}
			if err := notify(ctx, c); err != nil {
				return err
			}
			return Do(ctx, "other", failsOnce(&c.other), noRetry)
		}},
	} {
		for _, how := range []string{"Policy", "Resume"} {
			t.Run(tt.name+how, func(t *testing.T) {
				k := newKit(t)
				var c calls
				policy := RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}
				if how == "Resume" {
					policy = noRetry
				}
				wf := Define[int, int]("wf", policy)
				serve(k, wf, func(ctx Context, _ int) (int, error) {
					return 1, tt.fn(ctx, &c)
				})
				run := begin(k, wf, 1)
				if how == "Resume" {
					failureOf(k, run, StatusFailed)
					k.resume(run.ID())
				}
				if tt.ends == "" {
					resultOf(k, run)
				} else if re := failureOf(k, run, StatusFailed); !strings.Contains(re.Message, tt.ends) {
					t.Errorf("the run ended with %v", re)
				}
				if got := fmt.Sprint(c.work.Load(), c.other.Load(), c.notice.Load()); got != tt.want {
					t.Errorf("the steps were executed %s times, want %s", got, tt.want)
				}
			})
		}
	}
}

// TestARetryTakesTheSameWay has a run choose a vendor by a probe that fails, charge the other one, and fail then.
func TestARetryTakesTheSameWay(t *testing.T) {
	k := newKit(t)
	type order struct{ Vendor, Charged string }
	wf := Define[int, order]("wf", RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
	var probes, receipts atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (o order, err error) {
		o.Vendor = "A"
		if Do(ctx, "probe", failsOnce(&probes), noRetry) != nil {
			o.Vendor = "B"
		}
		if o.Charged, err = Step(ctx, "charge", func(context.Context) (string, error) { return o.Vendor, nil }); err != nil {
			return o, err
		}
		err = Do(ctx, "receipt", func(context.Context) error {
			if receipts.Add(1) == 1 {
				return errors.New("no paper")
			}
			return nil
		}, noRetry)
		return o, err
	})
	if got := resultOf(k, begin(k, wf, 1)); got != (order{"B", "B"}) {
		t.Errorf("got %+v", got)
	}
	if probes.Load() != 1 || receipts.Load() != 2 {
		t.Errorf("%d probes and %d receipts", probes.Load(), receipts.Load())
	}
}

// TestARunHasOneAttempt fails a run without a policy, and one whose policy says no number.
func TestARunHasOneAttempt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts []StartOption
		want int64
	}{"Default": {nil, 1}, "APolicy": {[]StartOption{RetryPolicy{Backoff: time.Millisecond}}, 3}} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf")
			var attempts atomic.Int64
			serve(k, wf, func(Context, int) (int, error) { attempts.Add(1); return 0, errors.New("no") })
			failureOf(k, begin(k, wf, 1, tt.opts...), StatusFailed)
			if n := attempts.Load(); n != tt.want {
				t.Errorf("%d attempts, want %d", n, tt.want)
			}
		})
	}
}

// TestAGroupsTimeIsOver returns the error of a group that was too late: no further attempt is made.
func TestAGroupsTimeIsOver(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", soon)
	var attempts atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		attempts.Add(1)
		return 0, Parallel(ctx, "p", map[string]func(Context) error{
			"a": func(ctx Context) error { return Sleep(ctx, "long", time.Hour) },
		}, Timeout(300*time.Millisecond))
	})
	run := begin(k, wf, 1)
	if re := failureOf(k, run, StatusFailed); re.Kind != KindTimeout {
		t.Errorf("failed with %v", re)
	}
	if info := k.infoOf(run.ID()); info.Attempts != 1 {
		t.Errorf("%d attempts failed", info.Attempts)
	}
}

// TestForget names failures that a function did not return, so that it goes on after them: a step's, and that of a group.
func TestForget(t *testing.T) {
	k := newKit(t)
	wf := Define[int, string]("wf", noRetry)
	var probes, packs atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (string, error) {
		probe := Do(ctx, "probe", failsOnce(&probes), noRetry)
		_, ship := Map(ctx, "ship", []int{0}, func(ctx Context, _ int) (int, error) {
			return 0, Do(ctx, "pack", failsOnce(&packs), noRetry)
		})
		slow := Parallel(ctx, "slow", map[string]func(Context) error{"a": func(ctx Context) error {
			if ctx.Attempt() > 1 {
				return nil
			}
			return Sleep(ctx, "nap", time.Hour)
		}}, Timeout(300*time.Millisecond))
		if err := Do(ctx, "note", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		for what, err := range map[string]error{"probe": probe, "ship": ship, "slow": slow} {
			if err != nil {
				return "", fmt.Errorf("no %s", what)
			}
		}
		return "done", nil
	})
	run := begin(k, wf, 1)
	failureOf(k, run, StatusFailed)
	for _, wrong := range []string{"note", "shop", "ship/0/pa", "slow/a"} {
		err := k.c.Resume(k.ctx, run.ID(), Forget("probe", wrong))
		if !errors.Is(err, ErrNotFound) || KindOf(err) != KindNotFound {
			t.Errorf("forget %s: %v", wrong, err)
		}
		mustContain(t, err, wrong, "Client.Steps")
	}
	mustContain(t, k.c.Resume(k.ctx, run.ID(), Forget("#patched:x")), "Kagzi's own")
	if err := k.c.Resume(k.ctx, run.ID(), nil); err == nil {
		t.Error("a nil option is accepted")
	}
	failed := RunFilter{Status: []Status{StatusFailed}}
	if b, err := k.c.ResumeAll(k.ctx, failed, Forget("note")); err != nil || len(b.Changed) > 0 || !errors.Is(b.Skipped[run.ID()], ErrNotFound) {
		t.Errorf("%+v, %v", b, err)
	}
	b, err := k.c.ResumeAll(k.ctx, failed, Forget("probe", "ship/0/pack"), Forget("slow"), Reason("the vendor is back"))
	if err != nil || len(b.Changed) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := resultOf(k, run); got != "done" || probes.Load() != 2 || packs.Load() != 2 {
		t.Errorf("got %q after %d probes and %d packs", got, probes.Load(), packs.Load())
	}
}

// TestForgetABranch names a branch, or the group around it, whose failure the function has handled: with it go the failures
// that it failed with, and not one that it had handled itself.
func TestForgetABranch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ship/air", "ship", "ship/air/fly/0/load"} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, string]("wf", noRetry)
			var probes, loads, trains atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (string, error) {
				err := Parallel(ctx, "ship", map[string]func(Context) error{
					"air": func(ctx Context) error {
						if err := Do(ctx, "probe", failsOnce(&probes), noRetry); err == nil {
							return errors.New("the probe was tried again")
						}
						_, err := Map(ctx, "fly", []int{0}, func(ctx Context, _ int) (int, error) {
							return 0, Do(ctx, "load", failsOnce(&loads), noRetry)
						})
						return err
					},
					"land": func(ctx Context) error {
						return Do(ctx, "train", func(context.Context) error { trains.Add(1); return nil })
					},
				})
				if e := doLine(ctx, &journal{}, "plan B"); e != nil {
					return "", e
				}
				if err != nil {
					return "", errors.New("not shipped")
				}
				return "shipped", nil
			})
			run := begin(k, wf, 1)
			failureOf(k, run, StatusFailed)
			k.resume(run.ID(), Forget(name))
			if got := resultOf(k, run); got != "shipped" || probes.Load() != 1 || loads.Load() != 2 || trains.Load() > 2 {
				t.Errorf("got %q after %d probes, %d loads and %d trains", got, probes.Load(), loads.Load(), trains.Load())
			}
		})
	}
}

// A detailed error is of a type that can be compared, unless it holds what cannot.
type detailed struct {
	details any
	cause   error
}

func (d detailed) Error() string { return d.cause.Error() }
func (d detailed) Unwrap() error { return d.cause }

// TestForgetsBehindAnErrorThatCannotBeCompared has a branch return such an error, and the function report and return it.
func TestForgetsBehindAnErrorThatCannotBeCompared(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", twice)
	var pays atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		_, err := Go(ctx, "b", func(ctx Context) (int, error) {
			if err := Do(ctx, "pay", failsOnce(&pays), noRetry); err != nil {
				return 0, detailed{[]string{"declined"}, err}
			}
			return 1, nil
		}).Result(ctx)
		if e := doLine(ctx, &journal{}, "report"); e != nil {
			return 0, e
		}
		return 1, err
	})
	if got := resultOf(k, begin(k, wf, 1)); got != 1 || pays.Load() != 2 {
		t.Errorf("got %d after %d calls", got, pays.Load())
	}
}

// TestForgetsOneOfTwoEqualErrors has two branches return one error: the function goes on after the first, and fails with the
// second, which alone is forgotten.
func TestForgetsOneOfTwoEqualErrors(t *testing.T) {
	k := newKit(t)
	soldOut := errors.New("sold out")
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		ask := func(name string) error {
			_, err := Go(ctx, name, func(ctx Context) (int, error) { return 0, doLine(ctx, &journal{}, "ask") }).Result(ctx)
			if err == nil {
				_, err = Go(ctx, name+"-answer", func(Context) (int, error) { return 0, soldOut }).Result(ctx)
			}
			return err
		}
		if err := ask("a"); err != nil {
			if e := doLine(ctx, &journal{}, "plan b"); e != nil {
				return 0, e
			}
		}
		return 0, ask("b")
	})
	run := begin(k, travel, 1)
	failureOf(k, run, StatusFailed)
	for name, want := range map[string]int{"a-answer": 0, "b-answer": 1} {
		if n := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = $1 AND step_kind = 'BRANCH' AND forgotten_by IS NOT NULL`, name); n != want {
			t.Errorf("%d failures of %s are forgotten, want %d", n, name, want)
		}
	}
}

// TestForgetABranchThatFailedTwice names a branch that has failed twice: what it failed with the second time is forgotten, and
// not what it had dealt with by then.
func TestForgetABranchThatFailedTwice(t *testing.T) {
	k := newKit(t)
	var n, x atomic.Int64
	n.Store(1)
	fail := func(ctx Context, name string, when func() bool) error {
		return Do(ctx, name, func(context.Context) error {
			if name == "x" {
				x.Add(1)
			}
			if when() {
				return Permanent(errors.New(name + " failed"))
			}
			return nil
		})
	}
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		return Go(ctx, "b", func(ctx Context) (int, error) {
			if err := fail(ctx, "x", func() bool { return n.Load() < 3 }); err != nil {
				if e := fail(ctx, "fallback", func() bool { return n.Load() < 2 }); e != nil {
					return 0, errors.Join(err, e)
				}
			}
			return 1, fail(ctx, "y", func() bool { return n.Load() < 3 })
		}).Result(ctx)
	})
	run := begin(k, travel, 1)
	endsAs(k, run, StatusFailed)
	n.Store(2)
	k.resume(run.ID())
	waitFor(t, "failed", func() bool { return k.infoOf(run.ID()).Status == StatusFailed })
	n.Store(3)
	was := x.Load()
	k.resume(run.ID(), Forget("b"))
	waitFor(t, "completed", func() bool { return k.infoOf(run.ID()).Status == StatusCompleted })
	if x.Load() != was {
		t.Error("x was tried again, which the branch had dealt with, and did not fail with")
	}
}

// TestForgetABranchThatFailedByItself names a branch that returned an error of its own, and the group around one.
func TestForgetABranchThatFailedByItself(t *testing.T) {
	k := newKit(t)
	var full atomic.Bool
	full.Store(true)
	stock := func(Context) error {
		if full.Load() {
			return errors.New("no room")
		}
		return nil
	}
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		_, b := Go(ctx, "b", func(ctx Context) (int, error) { return 0, stock(ctx) }).Result(ctx)
		group := Parallel(ctx, "group", map[string]func(Context) error{"a": stock})
		if err := doLine(ctx, &journal{}, "report"); err != nil {
			return 0, err
		}
		if b != nil || group != nil {
			return 0, errors.New("no room at all")
		}
		return 1, nil
	})
	run := begin(k, travel, 1)
	failureOf(k, run, StatusFailed)
	full.Store(false)
	k.resume(run.ID(), Forget("b", "group"))
	resultOf(k, run)
}
