package kagzi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	cancelled := func(k *kit, run *Run[int]) {
		k.t.Helper()
		re := failureOf(k, run, StatusCancelled)
		if !errors.Is(re, KindCancelled) {
			k.t.Errorf("kind %q", re.Kind)
		}
		if err := run.Cancel(k.ctx); err != nil {
			k.t.Errorf("the second Cancel: %v", err)
		}
		if info, _ := run.Info(k.ctx); !info.AvailableAt.IsZero() || info.EndedAt.IsZero() {
			k.t.Errorf("the run's row: %+v", info)
		}
	}
	t.Run("Pending", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, Define[int, int]("wf"), 1, ID("x"))
		k.cancel(ID("x"))
		cancelled(k, run)
		if again := begin(k, Define[int, int]("wf"), 2, ID("x")); again.Existed() {
			t.Error("the ID of a cancelled run is still taken")
		}
	})
	t.Run("Sleeping", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		serve(k, wf, func(ctx Context, _ int) (int, error) { return 0, Sleep(ctx, "long", time.Hour) })
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping)
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		cancelled(k, run)
	})
	t.Run("Running", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		inStep, cause, doneIn := make(chan struct{}), make(chan error, 1), make(chan time.Time, 1)
		var after atomic.Int64
		stop := serve(k, wf, func(ctx Context, _ int) (int, error) {
			_, err := Step(ctx, "long", func(sctx context.Context) (int, error) {
				close(inStep)
				<-sctx.Done()
				doneIn <- time.Now()
				cause <- context.Cause(sctx)
				return 1, nil // a success, but after the end
			})
			after.Add(1)
			return 0, err
		})
		run := begin(k, wf, 1)
		<-inStep
		begun := time.Now()
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		if d := (<-doneIn).Sub(begun); d > 2*time.Second {
			t.Errorf("the step's context ended after %v", d)
		}
		if err := <-cause; !errors.Is(err, KindCancelled) {
			t.Errorf("cause %v", err)
		}
		cancelled(k, run)
		stop()
		if steps := k.steps(run.ID()); len(steps) != 0 {
			t.Errorf("recorded after the end: %+v", steps)
		}
		if after.Load() != 0 {
			t.Error("workflow code went on")
		}
	})
	t.Run("Finished", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", noRetry)
		serve(k, wf, func(_ Context, n int) (int, error) {
			if n == 0 {
				return 0, errors.New("no")
			}
			return n, nil
		})
		for n := range 2 {
			run := begin(k, wf, n)
			_, _ = run.Result(k.ctx)
			if err := run.Cancel(k.ctx); !errors.Is(err, ErrRunFinished) {
				t.Errorf("Cancel of a finished run: %v", err)
			}
		}
	})
	t.Run("InTx", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, Define[int, int]("wf"), 1, ID("x"))
		for _, commit := range []bool{false, true} {
			tx := k.callersTx()
			k.cancel(ID("x"), InTx(tx))
			if info, _ := run.Info(k.ctx); info.Status != StatusPending {
				t.Errorf("before the end of the transaction the run is %s", info.Status)
			}
			if commit {
				commitTx(t, tx)
			} else {
				rollbackTx(t, tx)
			}
		}
		cancelled(k, run)
	})
	t.Run("ThenResume", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		var calls atomic.Int64
		serve(k, wf, func(ctx Context, n int) (int, error) {
			if _, err := Step(ctx, "once", once(&calls, 1)); err != nil {
				return 0, err
			}
			return ctx.Attempt(), Sleep(ctx, "long", time.Hour)
		})
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping)
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		k.resume(run.ID())
		k.waitStatus(run.ID(), StatusSleeping)
		k.forward(run.ID())
		if got := resultOf(k, run); got != 2 || calls.Load() != 1 {
			t.Errorf("attempt %d, %d calls of the step; want 2 and 1", got, calls.Load())
		}
	})
}

// TestErrorSaysWhyARunWasCancelled shows that this is so for a run that was undone and for one that had nothing to undo.
func TestErrorSaysWhyARunWasCancelled(t *testing.T) {
	for _, undone := range []bool{false, true} {
		t.Run(map[bool]string{false: "Plain", true: "Undone"}[undone], func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf")
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				if undone {
					Compensate(ctx, "it", cancelBooking.With("it"))
				}
				return 0, sleepLong(ctx)
			})
			serveCancellations(k, &journal{}, nil)
			run := begin(k, wf, 1)
			k.waitStatus(run.ID(), StatusSleeping)
			if err := run.Cancel(k.ctx, Reason("the customer asked")); err != nil {
				t.Fatal(err)
			}
			_, err := run.Result(k.ctx)
			if err == nil || !strings.HasSuffix(err.Error(), "cancelled: the customer asked") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A verb that meets somebody's open transaction says so, and changes nothing.
func TestVerbsOfALockedRunSayWhatIsInTheWay(t *testing.T) {
	k := newKit(t)
	run := begin(k, Define[int, int]("wf"), 1)
	tx := k.callersTx()
	if _, err := tx.Exec(k.ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, string(run.ID())); err != nil {
		t.Fatal(err)
	}
	for name, verb := range map[string]func(context.Context) error{
		"Cancel":    func(ctx context.Context) error { return k.c.Cancel(ctx, run) },
		"Terminate": func(ctx context.Context) error { return k.c.Terminate(ctx, run) },
		"Signal":    func(ctx context.Context) error { return k.c.Signal(ctx, run, approved.With("yes")) },
	} {
		ctx, cancel := context.WithTimeout(k.ctx, 2*time.Second)
		err := verb(ctx)
		cancel()
		if mustContain(t, err, "another transaction holds", "nothing was changed"); HTTPStatus(err) != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d for %v", name, HTTPStatus(err), err)
		}
	}
	if info := k.infoOf(run); info.Status != StatusPending {
		t.Errorf("the run is %s", info.Status)
	}
}
