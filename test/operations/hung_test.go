package operations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// hungry is the configuration of a worker that notices at once code that hangs, and sends no heartbeat meanwhile that nothing has caused.
func hungry() kagzi.WorkerConfig {
	cfg := kit.RareHeartbeats
	cfg.HungAfter = 20 * time.Millisecond
	return cfg
}

// A hung is a run whose code hangs until goOn is closed, a client of another process, and what the worker has logged.
type hung struct {
	*kit.Kit
	run    *kagzi.Run[int]
	worker *kagzi.Client
	logged *testlog.Buffer
	goOn   chan struct{}
	stop   func() error
}

// hang serves fn, which hangs until the channel is closed, and starts a run of it.
func hang(t *testing.T, fn func(ctx kagzi.Context, goOn <-chan struct{}) (int, error)) *hung {
	t.Helper()
	h := &hung{Kit: kit.New(t), goOn: make(chan struct{})}
	h.worker, h.logged = kit.LoggedClient(t, h.Pool)
	w := kit.NewWorker(t, h.worker, hungry())
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) { return fn(ctx, h.goOn) })
	h.stop = kit.StartWorker(t, w)
	h.run = kit.Begin(h.Kit, wf, 1)
	return h
}

// want waits until a client of another process sees the code that hangs, and returns it.
func (h *hung) want(n int) (info kagzi.RunInfo) {
	h.T.Helper()
	await.True(h.T, fmt.Sprintf("%d functions hang", n), func() bool {
		info = h.InfoOf(h.run)
		return len(info.Hung) == n
	})
	return info
}

// lines returns how many lines of the worker's log have all parts.
func (h *hung) lines(parts ...string) (n int) {
	for line := range strings.Lines(h.logged.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			n++
		}
	}
	return n
}

// ends lets the code go on, and checks that nothing is left of it, and that it was logged once.
func (h *hung) ends() {
	h.T.Helper()
	close(h.goOn)
	_, _ = h.run.Result(h.Ctx)
	h.logged.WantLine(h.T, "code that hung has returned", string(h.run.ID()))
	await.True(h.T, "the worker reports no hung code", func() bool {
		return h.Count(`SELECT count(*) FROM kagzi.workers WHERE hung IS NOT NULL`) == 0
	})
	if info := h.InfoOf(h.run); len(info.Hung) != 0 {
		h.T.Errorf("the run has ended, and its hung code is %+v", info.Hung)
	}
	if n, back := h.lines("stack="), h.lines("code that hung has returned"); n != back {
		h.T.Errorf("%d lines say that code hangs, and %d that it has returned:\n%s", n, back, h.logged)
	}
}

func ignoresItsContext(goOn <-chan struct{}) error {
	<-goOn
	return nil
}

func blocksTheWorkflow(goOn <-chan struct{}) { <-goOn }

// A step that ignores its context past its Timeout is logged once with its stack, and shown to all.
func TestHungStep(t *testing.T) {
	h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
		return 1, kagzi.Do(ctx, "charge", func(context.Context) error { return ignoresItsContext(goOn) }, kagzi.Timeout(30*time.Millisecond))
	})
	info := h.want(1)
	got := info.Hung[0]
	if got.Step != "charge" || got.Branch != "" || got.Cause != "step timed out after 30ms" || got.Since.IsZero() || got.Since.Location() != time.UTC {
		t.Errorf("hung: %+v", got)
	}
	if info.Status != kagzi.StatusRunning || info.WaitingOn != "" || !info.CancelRequestedAt.IsZero() {
		t.Errorf("the run: %+v", info)
	}
	h.logged.WantLine(t, "level=WARN", "the function of a step goes on although its context has ended", "because=\"step timed out after 30ms\"",
		string(h.run.ID()), "workflow=wf", "step=charge", "attempt=1", "worker="+info.Worker, "stack=", "ignoresItsContext", "hung_test.go")
	var step kagzi.StepAttempt
	await.True(t, "the step is shown", func() bool {
		all := h.Steps(h.run)["charge"]
		if len(all) == 1 {
			step = all[0]
		}
		return len(all) == 1
	})
	if step.Status != kagzi.StatusRunning || !step.HungSince.Equal(got.Since) {
		t.Errorf("the step: %+v; want it RUNNING and hung since %v", step, got.Since)
	}
	if local := h.worker.LocalWorkers(); len(local) != 1 || local[0].Hung != 1 {
		t.Errorf("local workers: %+v", local)
	}
	report, err := h.Client.Health(h.Ctx)
	check := report.Check("hung")
	if err != nil || check.Status != health.Degraded || report.Workers.Hung != 1 {
		t.Errorf("health: %+v, %v", report, err)
	}
	for _, part := range []string{"1 function hangs: ", `step "charge" of workflow "wf"`, string(h.run.ID()), info.Worker, "hold 1 slot.", "pass ctx to all that it calls", "Restart the worker"} {
		if !strings.Contains(check.Detail, part) {
			t.Errorf("%q lacks %q", check.Detail, part)
		}
	}
	if strings.Contains(check.Detail, "A workflow function must") {
		t.Errorf("%q has advice that does not fit", check.Detail)
	}
	h.ends()
	if n := h.lines("stack="); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, h.logged)
	}
	if step := h.Steps(h.run)["charge"][0]; !step.HungSince.IsZero() {
		t.Errorf("the step has ended: %+v", step)
	}
	if report, _ := h.Client.Health(h.Ctx); report.Check("hung").Detail != "" || report.Workers.Hung != 0 {
		t.Errorf("health: %+v", report)
	}
}

// So is a transactional step.
func TestHungStepTx(t *testing.T) {
	h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
		return 1, kagzi.DoTx(ctx, "book", func(context.Context, pgx.Tx) error { return ignoresItsContext(goOn) }, kagzi.Timeout(30*time.Millisecond))
	})
	if got := h.want(1).Hung[0]; got.Step != "book" {
		t.Errorf("hung: %+v", got)
	}
	h.logged.WantLine(t, "level=WARN", "step=book", "ignoresItsContext")
	h.ends()
}

// A workflow function that blocks between its steps hangs, and a branch that does so beside others which wait or are in a step.
func TestHungWorkflow(t *testing.T) {
	t.Parallel()
	t.Run("Function", func(t *testing.T) {
		h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
			if err := kagzi.Do(ctx, "first", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
			blocksTheWorkflow(goOn)
			return 1, kagzi.Do(ctx, "last", func(context.Context) error { return nil })
		})
		if got := h.want(1).Hung[0]; got.Step != "" || got.Branch != "" || got.Cause != "" || got.Since.IsZero() {
			t.Errorf("hung: %+v", got)
		}
		h.logged.WantLine(t, "level=WARN", "a workflow function blocks outside of steps", string(h.run.ID()), "stack=", "blocksTheWorkflow")
		report, err := h.Client.Health(h.Ctx)
		if check := report.Check("hung"); err != nil || !strings.Contains(check.Detail, `the function of workflow "wf"`) || !strings.Contains(check.Detail, "A workflow function must block in steps") {
			t.Errorf("health: %+v, %v", check, err)
		}
		h.ends()
	})
	t.Run("Branch", func(t *testing.T) {
		inStep := make(chan struct{}, 1)
		h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
			return 1, kagzi.Parallel(ctx, "legs", map[string]func(kagzi.Context) error{
				"blocked": func(kagzi.Context) error {
					blocksTheWorkflow(goOn)
					return nil
				},
				"asleep": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "nap", time.Hour) },
				"busy": func(ctx kagzi.Context) error {
					return kagzi.Do(ctx, "work", func(ctx context.Context) error {
						inStep <- struct{}{}
						<-ctx.Done()
						return ctx.Err()
					})
				},
			})
		})
		await.Receive(t, inStep)
		if got := h.want(1).Hung[0]; got.Step != "" || got.Branch != "legs/blocked" {
			t.Errorf("hung: %+v", got)
		}
		h.logged.WantLine(t, "level=WARN", "branch=legs/blocked", "stack=", "blocksTheWorkflow")
		h.Cancel(h.run)
		h.ends()
	})
}
