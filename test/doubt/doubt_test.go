package doubt_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/waits"
)

var refund = kagzi.Define[struct{}, int]("refund")

// errReset is an error that says nothing of the effect.
var errReset = errors.New("connection reset")

// A provider counts the calls of its function, which does what the test says for each.
type provider struct {
	calls atomic.Int64
	does  func(call int64) (int, error)
}

func (p *provider) pay(context.Context) (int, error) { return p.does(p.calls.Add(1)) }

// workflow pays once.
func (p *provider) workflow(opts ...kagzi.StepOption) func(kagzi.Context, struct{}) (int, error) {
	return func(ctx kagzi.Context, _ struct{}) (int, error) {
		return kagzi.Step(ctx, "pay", p.pay, append(opts, kagzi.AtMostOnce())...)
	}
}

func (p *provider) called(t *testing.T, times int64) {
	t.Helper()
	if n := p.calls.Load(); n != times {
		t.Errorf("the function was called %d times, want %d", n, times)
	}
}

// always does the same in each call.
func always(v int, err error) func(int64) (int, error) {
	return func(int64) (int, error) { return v, err }
}

// failsFirst fails in the first call, and returns v from the second on.
func failsFirst(v int) func(int64) (int, error) {
	return func(call int64) (int, error) {
		if call == 1 {
			return 0, errReset
		}
		return v, nil
	}
}

// inDoubt waits until the run sleeps because its step is in doubt.
func inDoubt(k *kit.Kit, run *kagzi.Run[int]) {
	k.T.Helper()
	k.WaitStatus(run, kagzi.StatusSleeping, "doubt pay")
	info := k.InfoOf(run)
	if len(info.WaitingOn) != 1 || info.WaitingOn[0] != (waits.Wait{Kind: waits.Doubt, Name: "pay"}) {
		k.T.Errorf("it waits for %+v", info.WaitingOn)
	}
}

func resolve(k *kit.Kit, run kagzi.Ref, as admin.Resolution, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "pay", as, opts...); err != nil {
		k.T.Fatal(err)
	}
}

func TestAnErrorLeavesDoubt(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, p *provider) (*kit.Kit, *kagzi.Run[int]) {
		k := kit.New(t)
		kit.Serve(k, refund, p.workflow())
		run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
		inDoubt(k, run)
		return k, run
	}
	t.Run("Happened", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		resolve(k, run, admin.Happened(7), kagzi.Actor("ada"), kagzi.Reason("the bank says so"))
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		p.called(t, 1)
		k.WantEvents(run, admin.LogEntry{
			Event: "RESOLVED", Actor: "ada", Reason: "the bank says so", Step: "pay",
			Changes: []admin.LogChange{{Field: "outcome", From: "in doubt", To: "happened"}},
		})
		if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NULL`); n != 0 {
			t.Errorf("%d unread messages", n)
		}
	})
	t.Run("DidNotHappen", func(t *testing.T) {
		p := &provider{does: failsFirst(8)}
		k, run := begin(t, p)
		resolve(k, run, admin.DidNotHappen())
		if got := kit.ResultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
		p.called(t, 2)
		steps := k.Steps(run)["pay"]
		if len(steps) != 2 || steps[0].Status != kagzi.StatusFailed || steps[0].Error != "connection reset" ||
			steps[1].Status != kagzi.StatusCompleted {
			t.Errorf("steps %+v", steps)
		}
	})
	t.Run("DidNotHappenAgain", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		for call := int64(1); call <= 3; call++ {
			await.True(t, "the function was called", func() bool { return p.calls.Load() == call })
			await.True(t, "it is in doubt again", func() bool {
				return admin.New(k.Client).Runs.Resolve(k.Ctx, run, "pay", admin.DidNotHappen()) == nil
			})
		}
		await.True(t, "the function was called", func() bool { return p.calls.Load() == 4 })
	})
	t.Run("GiveUp", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		resolve(k, run, admin.GiveUp(errors.New("written off")))
		failed := kit.FailureOf(k, run, kagzi.StatusFailed)
		if failed.Kind != kind.InDoubt {
			t.Errorf("failed with %v", failed)
		}
		kit.MustContain(t, failed, "written off")
		p.called(t, 1)
	})
	t.Run("GiveUpWithAKind", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		resolve(k, run, admin.GiveUp(kind.Kind("written_off")))
		if failed := kit.FailureOf(k, run, kagzi.StatusFailed); failed.Kind != "written_off" {
			t.Errorf("failed with %v", failed)
		}
	})
	t.Run("OneWins", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "pay", admin.Happened(i))
				switch {
				case err == nil:
					won.Store(int64(i))
				case !errors.Is(err, admin.ErrNoDoubt):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := kit.ResultOf(k, run); int64(got) != won.Load() {
			t.Errorf("got %d, and %d won", got, won.Load())
		}
	})
	t.Run("InTx", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		tx := k.CallersTx()
		resolve(k, run, admin.Happened(1), kagzi.InTx(tx))
		kit.RollbackTx(t, tx)
		tx = k.CallersTx()
		resolve(k, run, admin.Happened(2), kagzi.InTx(tx))
		kit.CommitTx(t, tx)
		if got := kit.ResultOf(k, run); got != 2 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("Undecodable", func(t *testing.T) {
		p := &provider{does: always(0, errReset)}
		k, run := begin(t, p)
		resolve(k, run, admin.Happened(json.RawMessage(`"seven"`)))
		for _, wrong := range []any{json.RawMessage(`"seven"`), nil} {
			await.True(t, "the result is set aside", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.signals WHERE set_aside_at IS NOT NULL`) == 1
			})
			resolve(k, run, admin.Happened(wrong)) // replaces it
		}
		await.True(t, "the result is set aside", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.signals WHERE set_aside LIKE 'null is no int'`) == 1
		})
		resolve(k, run, admin.Happened(json.RawMessage(`7`)))
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
	})
}

// A worker that loses the run during the call leaves doubt, whatever its function returns later.
func TestALostWorkerLeavesDoubt(t *testing.T) {
	k := kit.New(t)
	begun, open := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	p := &provider{does: func(int64) (int, error) {
		close(begun)
		<-open
		return 1, nil
	}}
	kit.Serve(k, refund, p.workflow())
	run := kit.Begin(k, refund, struct{}{})
	<-begun
	k.TakeAway(run.ID())
	kit.Rescue(k, refund, p.workflow())
	inDoubt(k, run)
	release()
	steps := k.Steps(run)["pay"]
	if len(steps) != 1 || steps[0].Kind != kind.InDoubt {
		t.Errorf("steps %+v", steps)
	}
	resolve(k, run, admin.Happened(7))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	p.called(t, 1)
}

// What the function says for certain leaves no doubt.
func TestNoDoubt(t *testing.T) {
	t.Parallel()
	t.Run("Succeeds", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(7, nil)}
		kit.Serve(k, refund, p.workflow())
		run := kit.Begin(k, refund, struct{}{})
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		if err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "pay", admin.DidNotHappen()); !errors.Is(err,
			admin.ErrNoDoubt) {
			t.Errorf("resolved a step that has completed: %v", err)
		}
	})
	t.Run("Permanent", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, kagzi.Permanent(kind.Kind("declined")))}
		kit.Serve(k, refund, p.workflow())
		if failed := kit.FailureOf(k, kit.Begin(k, refund, struct{}{}), kagzi.StatusFailed); failed.Kind != "declined" {
			t.Errorf("failed with %v", failed)
		}
		p.called(t, 1)
	})
	// The function says that nothing has happened, and that another call may help.
	t.Run("RetryAfter", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: func(call int64) (int, error) {
			if call == 1 {
				return 0, kagzi.RetryAfter(errReset, time.Millisecond)
			}
			return 7, nil
		}}
		kit.Serve(k, refund, p.workflow(kagzi.RetryPolicy{Backoff: time.Millisecond}))
		if got := kit.ResultOf(k, kit.Begin(k, refund, struct{}{})); got != 7 {
			t.Errorf("got %d", got)
		}
		p.called(t, 2)
	})
	// A drain before the call withdraws the intent.
	t.Run("DrainedBefore", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(7, nil)}
		run := drainedBeforeTheCall(k, p)
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		p.called(t, 1)
		if steps := k.Steps(run)["pay"]; len(steps) != 2 || steps[0].Kind != kind.Cancelled {
			t.Errorf("steps %+v", steps)
		}
	})
}

// Kagzi knows that errors of these kinds are final, and not that nothing has happened.
func TestAKindLeavesDoubt(t *testing.T) {
	for name, err := range map[string]error{
		"NotFound": os.ErrNotExist, "BadRequest": kind.BadRequest, "InDoubt": kagzi.Permanent(kind.InDoubt),
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			p := &provider{does: always(0, err)}
			kit.Serve(k, refund, p.workflow())
			run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
			inDoubt(k, run)
			resolve(k, run, admin.Happened(7))
			kit.ResultOf(k, run)
			p.called(t, 1)
		})
	}
}

func TestPanicLeavesDoubt(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: func(int64) (int, error) { panic("nil") }}
	kit.Serve(k, refund, p.workflow())
	run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
	inDoubt(k, run)
	resolve(k, run, admin.Happened(7))
	kit.ResultOf(k, run)
	p.called(t, 1)
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	// knows returns an option whose function gives these answers, one after the other.
	knows := func(asked *atomic.Int64, answers ...func() (int, bool, error)) kagzi.StepOption {
		return kagzi.Reconcile(func(ctx context.Context) (int, bool, error) {
			if kagzi.CurrentStep(ctx).Key == "" {
				t.Error("it has no key")
			}
			return answers[min(int(asked.Add(1)), len(answers))-1]()
		})
	}
	happened := func() (int, bool, error) { return 9, true, nil }
	not := func() (int, bool, error) { return 0, false, nil }
	silent := func() (int, bool, error) { return 0, false, errReset }
	soon := kagzi.RetryPolicy{MaxAttempts: 2, Backoff: 1000, Factor: 1}
	for name, test := range map[string]struct {
		calls   int64
		does    func(int64) (int, error)
		answers []func() (int, bool, error)
		want    int
	}{
		"Happened":     {1, always(0, errReset), []func() (int, bool, error){happened}, 9},
		"DidNotHappen": {2, failsFirst(8), []func() (int, bool, error){not}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			p := &provider{does: test.does}
			var asked atomic.Int64
			kit.Serve(k, refund, p.workflow(knows(&asked, test.answers...), soon))
			if got := kit.ResultOf(k, kit.Begin(k, refund, struct{}{})); got != test.want {
				t.Errorf("got %d", got)
			}
			p.called(t, test.calls)
		})
	}
	t.Run("Never", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		var asked atomic.Int64
		kit.Serve(k, refund, p.workflow(knows(&asked, not), soon))
		failed := kit.FailureOf(k, kit.Begin(k, refund, struct{}{}, kit.NoRetry), kagzi.StatusFailed)
		kit.MustContain(t, failed, "connection reset")
		p.called(t, 2)
	})
	t.Run("DoesNotKnow", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		var asked atomic.Int64
		kit.Serve(k, refund, p.workflow(knows(&asked, silent)))
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		k.Wake(run.ID())
		await.True(t, "it is asked again", func() bool { return asked.Load() > 1 })
		inDoubt(k, run)
		resolve(k, run, admin.Happened(7))
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		p.called(t, 1)
	})
	t.Run("Panics", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		var asked atomic.Int64
		kit.Serve(k, refund, p.workflow(knows(&asked, func() (int, bool, error) { panic("nil") })))
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		resolve(k, run, admin.Happened(7))
		kit.ResultOf(k, run)
	})
}
