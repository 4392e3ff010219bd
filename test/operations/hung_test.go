package operations_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
)

// hungry is the configuration of a worker that notices at once code that hangs, and sends no heartbeat meanwhile that
// nothing has caused.
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
		return 1, kagzi.Do(ctx, "charge", func(context.Context) error { return ignoresItsContext(goOn) },
			kagzi.Timeout(30*time.Millisecond))
	})
	info := h.want(1)
	got := info.Hung[0]
	if got.Step != "charge" || got.Branch != "" || got.Cause != "step timed out after 30ms" || got.Since.IsZero() ||
		got.Since.Location() != time.UTC || got.Worker != info.Worker {
		t.Errorf("hung: %+v", got)
	}
	if info.Status != kagzi.StatusRunning || info.WaitingOn != nil || !info.CancelRequestedAt.IsZero() {
		t.Errorf("the run: %+v", info)
	}
	h.logged.WantLine(t, "level=WARN", "the function of a step goes on although its context has ended",
		"because=\"step timed out after 30ms\"",
		string(h.run.ID()), "workflow=wf", "step=charge", "attempt=1", "worker="+info.Worker, "stack=",
		"ignoresItsContext", "hung_test.go")
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
	if local := admin.New(h.worker).Workers.Local(); len(local) != 1 || local[0].Hung != 1 {
		t.Errorf("local workers: %+v", local)
	}
	report, err := admin.New(h.Client).Health(h.Ctx)
	check := report.Check("hung")
	if err != nil || check.Status != health.Degraded || report.Workers.Hung != 1 {
		t.Errorf("health: %+v, %v", report, err)
	}
	for _, part := range []string{
		"1 function hangs: ", `step "charge" of workflow "wf"`, string(h.run.ID()),
		info.Worker, "Its run holds 1 slot.", "pass ctx to all that it calls", "Restart the worker",
	} {
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
	if report, _ := admin.New(h.Client).Health(h.Ctx); report.Check("hung").Detail != "" || report.Workers.Hung != 0 {
		t.Errorf("health: %+v", report)
	}
}

// So is a transactional step.
func TestHungStepTx(t *testing.T) {
	h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
		return 1, kagzi.DoTx(ctx, "book", func(context.Context, pgx.Tx) error { return ignoresItsContext(goOn) },
			kagzi.Timeout(30*time.Millisecond))
	})
	if got := h.want(1).Hung[0]; got.Step != "book" {
		t.Errorf("hung: %+v", got)
	}
	h.logged.WantLine(t, "level=WARN", "step=book", "ignoresItsContext")
	h.ends()
}

// A workflow function that blocks between its steps hangs, and a branch that does so beside others which wait or are in
// a step.
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
		h.logged.WantLine(t, "level=WARN", "a workflow function blocks outside of steps", string(h.run.ID()), "stack=",
			"blocksTheWorkflow")
		report, err := admin.New(h.Client).Health(h.Ctx)
		if check := report.Check("hung"); err != nil ||
			!strings.Contains(check.Detail, `the function of workflow "wf"`) ||
			!strings.Contains(check.Detail, "A workflow function must block in steps") {
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

// A cancelled run whose worker waits for a step says so. The step hangs: it ignores its context.
func TestHungAfterCancel(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []kagzi.StartOption
		step []kagzi.StepOption
	}{
		{"Slot", []kagzi.StartOption{kagzi.Key("a")}, nil},
		{"Compensation", nil, []kagzi.StepOption{kagzi.UndoneBy(kagzi.Define[string, string]("refund"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			if err := admin.New(k.Client).Queues.Set(k.Ctx,
				admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
				t.Fatal(err)
			}
			h := &hung{Kit: k, goOn: make(chan struct{})}
			h.worker, h.logged = kit.LoggedClient(t, h.Pool)
			w := kit.NewWorker(t, h.worker, hungry())
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				_, err := kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
					return "", ignoresItsContext(h.goOn)
				}, tt.step...)
				return 1, err
			})
			kagzi.Handle(w, kagzi.Define[string, string]("refund"), func(kagzi.Context, string) (string, error) {
				return "", nil
			})
			kit.StartWorker(t, w)
			h.run = kit.Begin(k, wf, 1, tt.opts...)
			h.WaitStatus(h.run, kagzi.StatusRunning)
			await.True(t, "the step is under way", func() bool { return len(h.Steps(h.run)["charge"]) == 1 })
			if info := h.InfoOf(h.run); info.WaitingOn != nil || !info.CancelRequestedAt.IsZero() ||
				len(info.Hung) != 0 {
				t.Errorf("before the cancel: %+v", info)
			}
			h.Cancel(h.run)
			info := h.want(1)
			if info.Status != kagzi.StatusRunning || info.WaitingOn.String() != "cancel (step charge under way)" ||
				info.CancelRequestedAt.IsZero() {
				t.Errorf("after the cancel: %+v", info)
			}
			if got := info.Hung[0]; got.Step != "charge" || !strings.Contains(got.Cause, "cancelled") ||
				got.Since.Before(info.CancelRequestedAt.Add(-time.Second)) {
				t.Errorf("hung: %+v", got)
			}
			listed, err := h.Client.List(h.Ctx, kagzi.RunFilter{Workflow: "wf"})
			if err != nil || len(listed) != 1 || listed[0].WaitingOn.String() != "cancel" ||
				!listed[0].CancelRequestedAt.Equal(info.CancelRequestedAt) {
				t.Errorf("listed: %+v, %v", listed, err)
			}
			h.ends()
			if info := h.WaitStatus(h.run, kagzi.StatusCancelled); info.WaitingOn != nil {
				t.Errorf("at the end: %+v", info)
			}
		})
	}
}

// The code of a run that is over still hangs: the run says so. A run that another worker executes has no hung code,
// whatever goes on in the worker that had it. Health knows of both.
func TestHungCodeOfNobody(t *testing.T) {
	t.Run("Ended", func(t *testing.T) {
		begun := make(chan struct{}, 1)
		h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
			return 1, kagzi.Do(ctx, "charge", func(context.Context) error {
				begun <- struct{}{}
				return ignoresItsContext(goOn)
			})
		})
		await.Receive(t, begun)
		h.Cancel(h.run)
		h.leaves("run was cancelled")
		worker := kit.Only(t, h.Client, admin.WorkerFilter{}).ID
		if info := h.InfoOf(h.run); info.Status != kagzi.StatusCancelled || len(info.Hung) != 1 ||
			info.Hung[0].Step != "charge" || info.Hung[0].Worker != worker {
			t.Errorf("the run: %+v", info)
		}
		h.ends()
	})
	t.Run("LostLease", func(t *testing.T) {
		begun := make(chan struct{}, 2)
		h := hang(t, func(ctx kagzi.Context, goOn <-chan struct{}) (int, error) {
			return 1, kagzi.Do(ctx, "charge", func(context.Context) error {
				begun <- struct{}{}
				return ignoresItsContext(goOn)
			}, kagzi.Timeout(30*time.Millisecond))
		})
		h.want(1)
		h.TakeAway(h.run.ID())
		if info := h.InfoOf(h.run); len(info.Hung) != 0 {
			t.Errorf("under another lease: %+v", info)
		}
		kit.RefreshAll(t, h.Pool)
		h.leaves("step timed out after 30ms")
		working, goOn := make(chan struct{}), make(chan struct{})
		kit.Rescue(h.Kit, kagzi.Define[int, int]("wf", kit.NoRetry), func(ctx kagzi.Context, _ int) (int, error) {
			return 2, kagzi.Do(ctx, "charge", func(context.Context) error {
				close(working)
				await.Opened(t, goOn)
				return nil
			})
		})
		await.Receive(t, working)
		if info := h.InfoOf(h.run); info.Status != kagzi.StatusRunning || len(info.Hung) != 0 {
			t.Errorf("in another worker: %+v", info)
		}
		close(goOn)
		if got := kit.ResultOf(h.Kit, h.run); got != 2 {
			t.Errorf("result %d", got)
		}
		h.ends()
	})
}

// leaves waits until Health knows of a function that hangs and holds no slot.
func (h *hung) leaves(because string) {
	h.T.Helper()
	var check health.Check
	await.True(h.T, "a function hangs without a slot", func() bool {
		report, err := admin.New(h.Client).Health(h.Ctx)
		if err != nil {
			h.T.Fatal(err)
		}
		check = report.Check("hung")
		return check.Status == health.Degraded && report.Workers.Hung == 0
	})
	for _, part := range []string{"1 function hangs", string(h.run.ID()), "Its run holds no slot."} {
		if !strings.Contains(check.Detail, part) {
			h.T.Errorf("%q lacks %q", check.Detail, part)
		}
	}
	h.logged.WantLine(h.T, "level=WARN", "goes on although its context has ended", because, "stack=")
}

// Code that goes on after the drain is logged before Run returns.
func TestHungAfterDrain(t *testing.T) {
	k := kit.New(t)
	c, logged := kit.LoggedClient(t, k.Pool)
	cfg := kit.RareHeartbeats // HungAfter is longer than the drain
	cfg.DrainTimeout = time.Millisecond
	w := kit.NewWorker(t, c, cfg)
	goOn, begun := make(chan struct{}), make(chan struct{}, 1)
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return 1, kagzi.Do(ctx, "charge", func(context.Context) error {
			begun <- struct{}{}
			return ignoresItsContext(goOn)
		})
	})
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	await.Receive(t, begun)
	if err := stop(); err != nil {
		t.Error(err)
	}
	defer close(goOn)
	if n := (&hung{logged: logged}).lines("level=WARN", "goes on although its context has ended", "step=charge", "shut",
		"ignoresItsContext"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged)
	}
	if info := k.InfoOf(run); info.Status != kagzi.StatusPending || len(info.Hung) != 0 {
		t.Errorf("the run: %+v", info)
	}
}

// What hung before the drain, and still does after it, is named again at the end. Durations are texts in JSON, too.
func TestHungCodeIsNamedAtTheEnd(t *testing.T) {
	k := kit.New(t)
	logged := &testlog.Buffer{}
	c := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Logger: slog.New(slog.NewJSONHandler(logged, nil))})
	cfg := hungry()
	cfg.DrainTimeout = time.Millisecond
	w := kit.NewWorker(t, c, cfg)
	goOn := make(chan struct{})
	defer close(goOn)
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return 1, kagzi.Do(ctx, "charge", func(context.Context) error { return ignoresItsContext(goOn) },
			kagzi.Timeout(30*time.Millisecond))
	})
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	logged.WantLine(t, "goes on although its context has ended", `"stack":`, string(run.ID()))
	if err := stop(); err != nil {
		t.Error(err)
	}
	h := &hung{logged: logged}
	if n := h.lines("code that hangs goes on as the worker stops", `"level":"WARN"`, `"step":"charge"`,
		string(run.ID())); n != 1 {
		t.Errorf("named %d times at the end:\n%s", n, logged)
	}
	if n := h.lines(`"for":"`); n != 2 || h.lines(`"for_at_most":"1ms"`) != 1 {
		t.Errorf("%d lines have a duration as text:\n%s", n, logged)
	}
}

// Code that waits in an operation, or in a step whose context goes on, does not hang, however long it takes.
func TestWaitingIsNotHung(t *testing.T) {
	k := kit.New(t)
	c, logged := kit.LoggedClient(t, k.Pool)
	cfg := hungry()
	cfg.HungAfter = time.Second // a goroutine of a busy machine may have to wait for its turn
	w := kit.NewWorker(t, c, cfg)
	wf := kagzi.Define[string, int]("wf", kit.NoRetry)
	begun, locked, goOn := make(chan struct{}, 4), make(chan struct{}), make(chan struct{})
	work := func(context.Context) error {
		begun <- struct{}{}
		await.Opened(t, goOn)
		return nil
	}
	var late atomic.Value
	kit.Failpoint(t, w, func(point string, run uuid.UUID) {
		if point == "after step" && late.Load() == kagzi.RunID(run.String()) {
			begun <- struct{}{}
			await.Opened(t, goOn)
		}
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, what string) (int, error) {
		switch what {
		case "step":
			return 1, kagzi.Do(ctx, "work", work)
		case "record":
			return 1, kagzi.Do(ctx, "work", func(context.Context) error {
				begun <- struct{}{}
				await.Opened(t, locked)
				return nil
			}, kagzi.Timeout(time.Minute))
		case "late":
			return 1, kagzi.Do(ctx, "work", func(ctx context.Context) error {
				late.Store(kagzi.CurrentStep(ctx).Run)
				<-ctx.Done()
				return ctx.Err()
			}, kagzi.Timeout(30*time.Millisecond), kagzi.RetryPolicy{MaxAttempts: 1})
		case "branches":
			return 1, kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "work", work) },
				"b": func(kagzi.Context) error { return nil },
			})
		}
		blocksTheWorkflow(goOn)
		return 1, nil
	})
	kit.StartWorker(t, w)
	runs := []*kagzi.Run[int]{kit.Begin(k, wf, "step"), kit.Begin(k, wf, "branches"), kit.Begin(k, wf, "record")}
	tooLate := kit.Begin(k, wf, "late") // its function has returned, and is about to be recorded
	for range len(runs) + 1 {
		await.Receive(t, begun)
	}
	tx := k.CallersTx()
	if _, err := tx.Exec(k.Ctx, kit.LockRun, string(runs[2].ID())); err != nil {
		t.Fatal(err)
	}
	close(locked) // the step has returned, and its record waits
	witness := kit.Begin(k, wf, "hang")
	logged.WantLine(t, "a workflow function blocks outside of steps", string(witness.ID()))
	if n := strings.Count(logged.String(), "stack="); n != 1 {
		t.Errorf("%d functions hang; want that of the witness alone:\n%s", n, logged)
	}
	close(goOn)
	logged.WantLine(t, "code that hung has returned", string(witness.ID()))
	second := kit.Begin(k, wf, "hang") // goes through
	kit.ResultOf(k, second)
	kit.RollbackTx(t, tx)
	for _, run := range runs {
		kit.ResultOf(k, run)
	}
	if err := kit.FailureOf(k, tooLate, kagzi.StatusFailed); err.Kind != kind.Timeout {
		t.Error(err)
	}
	if n := strings.Count(logged.String(), "stack="); n != 1 {
		t.Errorf("%d functions hung; want that of the witness alone:\n%s", n, logged)
	}
}

// If code that hangs holds the slots, Health does not advise to start more workers alone.
func TestHungSlotsAreNamedForTheBacklog(t *testing.T) {
	k := kit.New(t)
	cfg := hungry()
	cfg.MaxConcurrent = 1
	goOn := make(chan struct{})
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.ServeWith(k, cfg, wf, func(ctx kagzi.Context, n int) (int, error) {
		if n == 1 {
			blocksTheWorkflow(goOn)
		}
		return n, nil
	})
	first := kit.Begin(k, wf, 1)
	await.True(t, "the first hangs", func() bool { return len(k.InfoOf(first).Hung) == 1 })
	second := kit.Begin(k, wf, 2)
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour' WHERE run_id = $1`,
		string(second.ID()))
	report, err := admin.New(k.Client).Health(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"Due although there are workers", "Code that hangs holds 1 of the 1 slots",
		"More workers help only until",
	} {
		if detail := report.Check("queues").Detail; !strings.Contains(detail, part) {
			t.Errorf("%q lacks %q", detail, part)
		}
	}
	close(goOn)
	kit.ResultOf(k, second)
}
