package operations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// Steps that wait for the results of other runs, and hold all slots of their worker, are logged once, and named to all
// with what to do. One that waits for a run which is not due is none of them.
func TestStepsThatHoldTheSlotsOfTheRunsTheyWaitFor(t *testing.T) {
	k := kit.New(t)
	client, logged := kit.LoggedClient(t, k.Pool)
	cfg := hungry()
	cfg.MaxConcurrent = 2
	w := kit.NewWorker(t, client, cfg)
	order, label := kagzi.Define[time.Duration, int]("order", kit.NoRetry), kagzi.Define[int, int]("label", kit.NoRetry)
	kagzi.Handle(w, label, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kagzi.Handle(w, order, func(ctx kagzi.Context, delay time.Duration) (int, error) {
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (int, error) {
			run, err := kagzi.Start(ctx, client, label, 7, kagzi.ID(fmt.Sprint("label ", delay)), kagzi.Delay(delay))
			if err != nil {
				return 0, err
			}
			return run.Result(ctx)
		})
	})
	kit.StartWorker(t, w)
	later := kit.Begin(k, order, time.Hour)
	k.WaitStatus(later, kagzi.StatusRunning) // else the other one's label might get its slot
	nested := kit.Begin(k, order, 0)
	var info kagzi.RunInfo
	await.True(t, "the step that waits in vain is reported", func() bool {
		info = k.InfoOf(nested)
		return len(info.Hung) == 1
	})
	awaited := k.InfoOf(kagzi.ID("label 0s"))
	if h := info.Hung[0]; h.Step != "ship" || h.Awaits != awaited.ID || h.Since.IsZero() || h.Worker != info.Worker ||
		!strings.Contains(h.Cause, string(awaited.ID)) {
		t.Errorf("hung: %+v", h)
	}
	if hung := k.InfoOf(later).Hung; hung != nil {
		t.Errorf("the step whose run is not due hangs: %+v", hung)
	}
	report, err := admin.New(k.Client).Health(k.Ctx)
	check := report.Check("nested")
	if err != nil || check.Status != health.Degraded || report.Workers.Hung != 0 ||
		report.Check("hung").Status != health.Healthy {
		t.Errorf("health: %v, %+v", err, report)
	}
	for _, part := range []string{
		"step \"ship\" of workflow \"order\"", string(nested.ID()), string(awaited.ID),
		"as a child", "MaxConcurrent",
	} {
		if !strings.Contains(check.Detail, part) {
			t.Errorf("%s\nlacks %s", check.Detail, part)
		}
	}
	logged.WantLine(t, "level=WARN", "a step waits for the result of another run", "workflow=order", "step=ship",
		string(nested.ID()), "awaits="+string(awaited.ID), "kagzi.RunChild")
	k.Cancel(later) // its slot is that of the run that the other one waits for
	if got := kit.ResultOf(k, nested); got != 7 {
		t.Errorf("the result is %d", got)
	}
	await.True(t, "the worker reports nothing any more", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workers WHERE hung IS NOT NULL`) == 0
	})
	if n := strings.Count(logged.String(), "a step waits for the result of another run"); n != 1 {
		t.Errorf("%d lines say so:\n%s", n, logged)
	}
	k.Cancel(kagzi.ID("label 1h0m0s"))
}

// While one slot is held by a run whose steps do not wait so, none is reported: the other runs may still begin.
func TestStepsThatWaitBesideOtherRuns(t *testing.T) {
	k := kit.New(t)
	cfg := hungry()
	cfg.MaxConcurrent = 2
	w := kit.NewWorker(t, k.Client, cfg)
	other, order, label := kagzi.Define[int, int]("other", kit.NoRetry), kagzi.Define[int, int]("order", kit.NoRetry),
		kagzi.Define[int, int]("label", kit.NoRetry)
	begun, blocks, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	kagzi.Handle(w, label, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kagzi.Handle(w, order, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (int, error) {
			run, err := kagzi.Start(ctx, k.Client, label, n, kagzi.ID("label"))
			if err != nil {
				return 0, err
			}
			return run.Result(ctx)
		})
	})
	kagzi.Handle(w, other, func(ctx kagzi.Context, n int) (int, error) {
		err := kagzi.Do(ctx, "work", func(context.Context) error {
			close(begun)
			await.Opened(t, blocks)
			return nil
		})
		blocksTheWorkflow(goOn)
		return n, err
	})
	kit.StartWorker(t, w)
	busy := kit.Begin(k, other, 1)
	await.Opened(t, begun)
	nested := kit.Begin(k, order, 7)
	await.True(t, "the step waits", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE external_id = 'label'`) == 1
	})
	close(blocks)
	await.True(t, "two passes have found the other run", func() bool { return len(k.InfoOf(busy).Hung) == 1 })
	report, err := admin.New(k.Client).Health(k.Ctx)
	if hung := k.InfoOf(nested).Hung; err != nil || hung != nil || report.Check("nested").Status != health.Healthy {
		t.Errorf("the step that waits hangs: %+v, %+v, %v", hung, report, err)
	}
	close(goOn)
	if got := kit.ResultOf(k, nested); got != 7 {
		t.Errorf("the result is %d", got)
	}
}
