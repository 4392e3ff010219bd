package ui

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// beginTrip begins a run with two compensations that fails five hours after its start, and returns when the first of
// them has begun. It waits for a message.
func beginTrip(k *kit.Kit) (run *kagzi.Run[int], goOn kagzi.Signal[int]) {
	goOn = kagzi.DefineSignal[int]("go-on")
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "compensations"}, kit.CancelBooking,
		func(ctx kagzi.Context, _ string) (struct{}, error) {
			_, err := kagzi.WaitSignal(ctx, goOn)
			return struct{}{}, err
		})
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("Ritz"))
		if err := kagzi.Sleep(ctx, "a night", 5*time.Hour); err != nil {
			return 0, err
		}
		return 0, kit.Breaks(ctx)
	})
	run = kit.Begin(k, kit.Travel, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer a night")
	k.Exec(`UPDATE kagzi.workflow_runs SET created_at = created_at - interval '5 hours' WHERE run_id = $1`, run.ID())
	k.Exec(`UPDATE kagzi.step_runs SET started_at = started_at - interval '5 hours' WHERE run_id = $1`, run.ID())
	k.Forward(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation hotel")
	return run, goOn
}

// undoOf returns the chart of compensations of a page, and the widths of the bars in it.
func undoOf(t *testing.T, page string) (chart string, widths []float64) {
	t.Helper()
	_, chart, ok := strings.Cut(page, `<div class="undo"`)
	if !ok {
		t.Fatal("the page has no chart of compensations")
	}
	chart, _, _ = strings.Cut(chart, `<section id="steps"`)
	for _, m := range regexp.MustCompile(`<rect class="seg [a-z]+" [^>]* width="([0-9.]+)%"`).
		FindAllStringSubmatch(chart, -1) {
		w, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		widths = append(widths, w)
	}
	return chart, widths
}

// The bars of compensations have an axis that begins with them, although they begin hours after the steps.
func TestCompensationsHaveAnAxisOfTheirOwn(t *testing.T) {
	k := kit.New(t)
	run, goOn := beginTrip(k)
	path := "/runs/" + string(run.ID())
	// another site has no answer that is a moment old
	look := func(path string) string { return newSite(k, Config{}).mustGet(path) }
	page := look(path)
	chart, widths := undoOf(t, page)
	wants(t, chart, "Compensations", ", 5 h", "after the run's start", ">hotel<", ">flight<", ">its run<",
		"waits its turn", `class="axis"`)
	if strings.Index(chart, ">hotel<") > strings.Index(chart, ">flight<") {
		t.Error("the compensation that was registered first stands first")
	}
	if len(widths) != 1 || widths[0] < 95 {
		t.Errorf("the bars of a compensation that is under way since its start: %v %%", widths)
	}
	steps, _, _ := strings.Cut(page, `<div class="undo"`)
	wants(t, steps, "hotel#compensation: registered", "flight#compensation: registered")
	if strings.Contains(steps, "seg undo") {
		t.Error("the axis of the steps has bars of compensations")
	}
	wants(t, page, "registered then; its run began")
	lacks(t, page, "runs if the run fails")
	if n := strings.Count(page, "waits its turn"); n != 2 { // in the chart and in the table
		t.Errorf("the page says %d times that a compensation waits its turn", n)
	}

	for _, step := range []string{"hotel#compensation", "flight#compensation"} {
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation "+strings.TrimSuffix(step, "#compensation"))
		a := k.Steps(run.ID())[step]
		k.Signal(a[len(a)-1].Child, goOn.With(1))
	}
	kit.FailureOf(k, run, kagzi.StatusFailed)
	chart, widths = undoOf(t, look(path))
	lacks(t, chart, "waits its turn")
	if len(widths) != 2 || widths[0]+widths[1] < 20 {
		t.Errorf("the bars of two compensations: %v %%", widths)
	}
	chart, widths = undoOf(t, look(path+"?name=hotel&scale=true"))
	lacks(t, chart, ">flight<")
	if len(widths) != 1 {
		t.Errorf("the bars of the one that is asked for: %v %%", widths)
	}
	if r := newSite(k, Config{}).get(path + "?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z"); r.StatusCode !=
		http.StatusOK {
		t.Errorf("another time: %s", r.Status)
	}
}

// A run whose compensations have not begun has one axis.
func TestRegisteredCompensationsHaveNoAxis(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Travel, 1)
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		return 0, kit.SleepLong(ctx)
	})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	lacks(t, newSite(k, Config{}).mustGet("/runs/"+string(run.ID())), `class="undo"`, "waits its turn")
}
