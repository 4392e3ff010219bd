package language_test

import (
	"context"
	"errors"
	"net/http"
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

func TestCancel(t *testing.T) {
	t.Parallel()
	cancelled := func(k *kit.Kit, run *kagzi.Run[int]) {
		k.T.Helper()
		re := kit.FailureOf(k, run, kagzi.StatusCancelled)
		if !errors.Is(re, kind.Cancelled) {
			k.T.Errorf("kind %q", re.Kind)
		}
		if err := run.Cancel(k.Ctx); err != nil {
			k.T.Errorf("the second Cancel: %v", err)
		}
		if info, _ := run.Info(k.Ctx); !info.AvailableAt.IsZero() || info.EndedAt.IsZero() {
			k.T.Errorf("the run's row: %+v", info)
		}
	}
	t.Run("Pending", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, kagzi.Define[int, int]("wf"), 1, kagzi.ID("x"))
		k.Cancel(kagzi.ID("x"))
		cancelled(k, run)
		if again := kit.Begin(k, kagzi.Define[int, int]("wf"), 2, kagzi.ID("x")); again.Existed() {
			t.Error("the ID of a cancelled run is still taken")
		}
	})
	t.Run("Sleeping", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) { return 0, kagzi.Sleep(ctx, "long", time.Hour) })
		run := kit.Begin(k, wf, 1)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		if err := run.Cancel(k.Ctx); err != nil {
			t.Fatal(err)
		}
		cancelled(k, run)
	})
	t.Run("Running", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf")
		inStep, cause := make(chan struct{}), make(chan error, 1)
		var after atomic.Int64
		_, stop := kit.ServeWith(k, kit.RareHeartbeats, wf, func(ctx kagzi.Context, _ int) (int, error) {
			_, err := kagzi.Step(ctx, "long", func(sctx context.Context) (int, error) {
				close(inStep)
				<-sctx.Done() // at once, and not after a heartbeat, which would be too late
				cause <- context.Cause(sctx)
				return 1, nil // a success, but after the end
			})
			after.Add(1)
			return 0, err
		})
		run := kit.Begin(k, wf, 1)
		await.Receive(t, inStep)
		if err := run.Cancel(k.Ctx); err != nil {
			t.Fatal(err)
		}
		if err := await.Receive(t, cause); !errors.Is(err, kind.Cancelled) {
			t.Errorf("cause %v", err)
		}
		cancelled(k, run)
		stop()
		if steps := k.Steps(run.ID()); len(steps) != 0 {
			t.Errorf("recorded after the end: %+v", steps)
		}
		if after.Load() != 0 {
			t.Error("workflow code went on")
		}
	})
	t.Run("Finished", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(_ kagzi.Context, n int) (int, error) {
			if n == 0 {
				return 0, errors.New("no")
			}
			return n, nil
		})
		for n := range 2 {
			run := kit.Begin(k, wf, n)
			_, _ = run.Result(k.Ctx)
			if err := run.Cancel(k.Ctx); !errors.Is(err, kagzi.ErrRunFinished) {
				t.Errorf("Cancel of a finished run: %v", err)
			}
		}
	})
	t.Run("InTx", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, kagzi.Define[int, int]("wf"), 1, kagzi.ID("x"))
		for _, commit := range []bool{false, true} {
			tx := k.CallersTx()
			k.Cancel(kagzi.ID("x"), kagzi.InTx(tx))
			if info, _ := run.Info(k.Ctx); info.Status != kagzi.StatusPending {
				t.Errorf("before the end of the transaction the run is %s", info.Status)
			}
			if commit {
				kit.CommitTx(t, tx)
			} else {
				kit.RollbackTx(t, tx)
			}
		}
		cancelled(k, run)
	})
	t.Run("ThenResume", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf")
		var calls atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
			if _, err := kagzi.Step(ctx, "once", kit.Once(&calls, 1)); err != nil {
				return 0, err
			}
			return ctx.Attempt(), kagzi.Sleep(ctx, "long", time.Hour)
		})
		run := kit.Begin(k, wf, 1)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		if err := run.Cancel(k.Ctx); err != nil {
			t.Fatal(err)
		}
		k.Resume(run.ID())
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		k.Forward(run.ID())
		if got := kit.ResultOf(k, run); got != 2 || calls.Load() != 1 {
			t.Errorf("attempt %d, %d calls of the step; want 2 and 1", got, calls.Load())
		}
	})
}

// TestErrorSaysWhyARunWasCancelled shows the cancellation for a run that was compensated and for one without
// compensations.
func TestErrorSaysWhyARunWasCancelled(t *testing.T) {
	for _, compensated := range []bool{false, true} {
		t.Run(map[bool]string{false: "Plain", true: "Compensated"}[compensated], func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				if compensated {
					kagzi.Compensate(ctx, "it", kit.CancelBooking.With("it"))
				}
				return 0, kit.SleepLong(ctx)
			})
			kit.ServeCancellations(k, &kit.Journal{}, nil)
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			if err := run.Cancel(k.Ctx, kagzi.Reason("the customer asked")); err != nil {
				t.Fatal(err)
			}
			_, err := run.Result(k.Ctx)
			if err == nil || !strings.HasSuffix(err.Error(), "cancelled: the customer asked") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A verb that meets another open transaction says so, and changes nothing.
func TestVerbsOfALockedRunSayWhatIsInTheWay(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[int, int]("wf"), 1)
	tx := k.CallersTx()
	if _, err := tx.Exec(k.Ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`,
		string(run.ID())); err != nil {
		t.Fatal(err)
	}
	for name, verb := range map[string]func(context.Context) error{
		"Cancel":    func(ctx context.Context) error { return k.Client.Cancel(ctx, run) },
		"Terminate": func(ctx context.Context) error { return admin.New(k.Client).Runs.Terminate(ctx, run) },
		"Signal":    func(ctx context.Context) error { return k.Client.Signal(ctx, run, kit.Approved.With("yes")) },
	} {
		ctx, cancel := context.WithTimeout(k.Ctx, 5*time.Second)
		err := verb(ctx)
		cancel()
		if kit.MustContain(t, err, "another transaction has locked", "nothing was changed"); kagzi.HTTPStatus(err) !=
			http.StatusServiceUnavailable {
			t.Errorf("%s: status %d for %v", name, kagzi.HTTPStatus(err), err)
		}
	}
	if info := k.InfoOf(run); info.Status != kagzi.StatusPending {
		t.Errorf("the run is %s", info.Status)
	}
}
