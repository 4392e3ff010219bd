package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// dialog opens the dialog of the first link whose path ends like that. The link may be behind a fold.
func (tb *tab) dialog(suffix string) {
	tb.t.Helper()
	link := `#main a[data-dialog][href$="` + suffix + `"]`
	tb.until(`document.querySelector(` + quote(link) + `)`)
	if !eval[bool](tb, `document.querySelector(`+quote(link)+`).checkVisibility()`) {
		tb.click(`details:has(> ul a[href$="` + suffix + `"]) > summary`)
	}
	// A live update may put another button where this one was: the likeliest change of a run stands first.
	eval[bool](tb, `(document.querySelector(`+quote(link)+`).click(), true)`)
	tb.until(`document.querySelector("#dialog").open`)
}

// enter fills the fields of the dialog, given as pairs. Those that are folded are unfolded.
func (tb *tab) enter(fields ...string) {
	tb.t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		selector := `#dialog [name="` + fields[i] + `"]`
		tb.until(`document.querySelector(` + quote(selector) + `)`)
		if !eval[bool](tb, `document.querySelector(`+quote(selector)+`).checkVisibility()`) {
			tb.click("#dialog details.rare summary")
		}
		if eval[bool](tb, `document.querySelector(`+quote(selector)+`).matches("select")`) {
			eval[bool](tb, `((el) => { el.value = `+quote(fields[i+1])+`; return el.value === `+quote(fields[i+1])+
				` })(document.querySelector(`+quote(selector)+`))`)
			continue
		}
		tb.fill(selector, fields[i+1])
	}
}

const submit = "#dialog .change .actions button"

// change makes a change by its dialog, with a double click, and returns when the page says that it was done.
func (tb *tab) change(suffix, said string, fields ...string) {
	tb.t.Helper()
	tb.dialog(suffix)
	tb.enter(fields...)
	tb.sends(said)
}

// sends sends the dialog's form as a visitor does who clicks twice.
func (tb *tab) sends(said string) {
	tb.t.Helper()
	tb.reloaded(func() {
		eval[bool](tb, `((b) => { b.click(); b.click(); return true })(document.querySelector(`+quote(submit)+`))`)
	})
	if got := tb.text("#notices .good"); !strings.Contains(got, said) {
		tb.t.Errorf("the page says %q, not %q; it shows %s", got, said, tb.shows())
	}
}

var because = []string{"reason", reason}

func TestChangesOfRunsThatWait(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	run := kit.Begin(k, idle, "x", kagzi.ID("order-42"))
	page := path("runs", string(run.ID()))
	tb.open(page)
	tb.change("/pause", "Paused", because...)
	logged(k, run, "PAUSED")
	tb.change("/unpause", "Unpaused", because...)
	logged(k, run, "UNPAUSED")
	tb.change("/update", "Updated", append(because, "queue", "side")...)
	logged(k, run, "UPDATED")
	tb.change("/cancel", "Cancelled", because...)
	logged(k, run, "CANCELLED")
	if log, err := admin.New(k.Client).Runs.Log(k.Ctx, run); err != nil || len(log) != 4 {
		t.Errorf("the run's log is %+v, %v: each change was to be made once", log, err)
	}
	tb.change("/delete", "Deleted", because...)
	if at := eval[string](tb, "location.pathname"); at != "/kagzi/runs" {
		t.Errorf("the deleted run leads to %s", at)
	}
	logged(k, run, "DELETED")

	run = kit.Begin(k, idle, "x")
	tb.open(path("runs", string(run.ID())))
	tb.change("/terminate", "Terminated", because...)
	logged(k, run, "TERMINATED")
}

func TestSignalFromItsDialog(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	answer := kagzi.DefineSignal[map[string]int]("answer")
	wf := kagzi.Define[string, int]("sum")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (sum int, err error) {
		for range 2 {
			m, err := kagzi.WaitSignal(ctx, answer)
			if err != nil {
				return 0, err
			}
			sum += m["n"]
		}
		return sum, nil
	})
	run := kit.Begin(k, wf, "x")
	k.WaitStatus(run, kagzi.StatusSleeping)
	tb.open(path("runs", string(run.ID())))
	tb.dialog("/signal")
	tb.enter("payload", `{"n": 1`)
	tb.says("#dialog [data-json-says]", "No JSON")
	tb.click(submit)
	if !eval[bool](tb, `document.activeElement.matches("#dialog textarea") && document.querySelector("#dialog").open`) {
		t.Error("broken JSON does not keep the dialog open")
	}
	tb.enter("payload", `{"n": 1}`)
	tb.sends("Sent answer")
	tb.change("/signal", "Sent answer", "payload", `{"n": 2}`)
	if sum := kit.ResultOf(k, run); sum != 3 {
		t.Errorf("the sum of the messages is %d, not 3: each was to be sent once", sum)
	}
}

func TestChangesOfRunsThatHaveEnded(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	broken := errors.New("broken")
	charge := kagzi.Define[string, string]("charge")
	fail := make(chan struct{}, 1)
	fail <- struct{}{}
	kit.Serve(k, charge, func(ctx kagzi.Context, in string) (string, error) {
		if err := kagzi.Do(ctx, "reserve", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
			select {
			case <-fail:
				return "", kagzi.Permanent(broken)
			default:
				return "charged " + in, nil
			}
		})
	})
	run := kit.Begin(k, charge, "x", kagzi.ID("order-42"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	tb.open(path("runs", string(run.ID())))
	tb.change("/resume", "Resumed", because...)
	logged(k, run, "RESUMED")
	k.WaitStatus(run, kagzi.StatusCompleted)
	tb.says("#main .badge", "Completed")
	for _, c := range []struct {
		verb, said, event, want string
		fields                  []string
	}{
		{
			"/restart", "this is the new run", "RESTARTED", `"charged y"`,
			[]string{"input", `"y"`, "new-id", "order-42-again"},
		},
		{"/fork", "this is the new run", "FORKED", `"charged x"`, []string{"step", "charge"}},
	} {
		tb.open(path("runs", string(run.ID())))
		tb.change(c.verb, c.said, append(because, c.fields...)...)
		logged(k, run.ID(), c.event)
		id := kagzi.RunID(eval[string](tb, `location.pathname.split("/").pop()`))
		if info := k.WaitStatus(id, kagzi.StatusCompleted); string(info.Output) != c.want || info.Origin != run.ID() {
			t.Errorf("%s has made a run of %s with the result %s", c.verb, info.Origin, info.Output)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 3 {
		t.Errorf("there are %d runs, not 3", n)
	}
}

func TestChangesOfSchedules(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	k.Schedule(kagzi.Schedule{Name: "hourly", Run: idle.With("x"), Cron: "0 * * * *"})
	tb.open("/schedules/hourly")
	tb.change("/pause", "Paused")
	if !k.Info("hourly").Paused {
		t.Error("the schedule is not paused")
	}
	if err := admin.New(k.Client).Schedules.Resume(k.Ctx, "hourly"); err != nil {
		t.Fatal(err)
	}
	tb.until(`document.querySelector("#main a[href$='/pause']")`) // the buttons follow what others do
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "hourly"); err != nil {
		t.Fatal(err)
	}
	tb.change("/resume", "Resumed")
	if k.Info("hourly").Paused {
		t.Error("the schedule is paused")
	}
	tb.change("/trigger", "Triggered hourly", because...)
	tb.open("/schedules/hourly")
	tb.dialog("/backfill")
	tb.enter("from", "5h")
	eval[bool](tb, `(document.querySelector(`+quote(submit)+`).click(), true)`)
	tb.says("#dialog", "5 ticks")
	tb.says(submit, "Start 5 runs")
	tb.sends("Started 5 runs")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 6 {
		t.Errorf("there are %d runs, not 6", n)
	}
	tb.open("/schedules/hourly")
	tb.change("/delete", "Deleted hourly")
	if _, err := admin.New(k.Client).Schedules.Get(k.Ctx, "hourly"); err == nil {
		t.Error("the schedule is there")
	}
}

func TestChangesOfLimitsAndWorkers(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	tb.open("/limits")
	tb.change("/limits/queue", "Queue office: at most 3 running", "queue", "office", "most", "3")
	tb.change("/limits/step", "openai", "limit", "openai", "most", "2")
	tb.change("/limits/pause", "Paused", append(because, "queue", "office")...)
	queues, err := admin.New(k.Client).Queues.List(k.Ctx)
	if err != nil || len(queues) != 1 || queues[0].MaxRunning != 3 {
		t.Errorf("the queues are %+v, %v", queues, err)
	}
	pauses, err := admin.New(k.Client).Pauses.List(k.Ctx)
	if err != nil || len(pauses) != 1 || pauses[0].Queue != "office" || pauses[0].Actor != actor ||
		pauses[0].Reason != reason {
		t.Errorf("the pauses are %+v, %v", pauses, err)
	}
	tb.says("#pauses", reason)
	tb.change("/limits/unpause?queue=office", "Unpaused")
	if pauses, err := admin.New(k.Client).Pauses.List(k.Ctx); err != nil || len(pauses) > 0 {
		t.Errorf("the pauses are %+v, %v", pauses, err)
	}

	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "office"})
	kagzi.Handle(w, idle, func(kagzi.Context, string) (string, error) { return "", nil })
	done := kit.RunWorker(t, w)
	tb.open("/workers")
	tb.until(`document.querySelector("#main tbody tr")`)
	tb.reloaded(func() { tb.click("#main tbody th a") })
	tb.change("/drain", "to drain")
	if err := await.Receive(t, done); err != nil {
		t.Error(err)
	}
}

func TestBulk(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	var runs []*kagzi.Run[string]
	for n := range 5 {
		runs = append(runs, kit.Begin(k, idle, "x", kagzi.ID(fmt.Sprint("run-", n))))
	}
	tb.open("/runs")
	for _, n := range []int{1, 3} {
		tb.click("#run-" + string(runs[n].ID()) + " input")
	}
	tb.says("[data-selected]", "2 selected")
	tb.reloaded(func() { tb.click(`.bulk button[formaction$="/cancel"]`) })
	tb.says("#main", "2 runs would be cancelled")
	tb.accessible("the plan")
	for n, run := range runs { // nothing has happened yet
		if info := k.InfoOf(run); info.Status != kagzi.StatusPending {
			t.Errorf("after the plan run %d is %s", n, info.Status)
		}
	}
	tb.fill(`#main [name="reason"]`, reason)
	tb.click(`#main form.change button`)
	tb.says("#main", "2 runs cancelled")
	for n, run := range runs {
		if info := k.InfoOf(run); (info.Status == kagzi.StatusCancelled) != (n == 1 || n == 3) {
			t.Errorf("run %d is %s", n, info.Status)
		}
	}
	logged(k, runs[1], "CANCELLED")
	logged(k, runs[3], "CANCELLED")
}

// Without Authorize there is nothing to change anything with.
func TestReadOnly(t *testing.T) {
	k, tb := begin(t, ui.Config{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "office"})
	kagzi.Handle(w, idle, func(kagzi.Context, string) (string, error) { return "", nil })
	kit.StartWorker(t, w)
	run := kit.Begin(k, idle, "x")
	k.Schedule(kagzi.Schedule{Name: "hourly", Run: idle.With("x"), Every: time.Hour})
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "side"}); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{
		"/", "/runs", path("runs", string(run.ID())), "/schedules", "/schedules/hourly",
		"/topics", "/limits", "/workers", "/stranded", "/doctor",
	} {
		tb.open(page)
		if found := eval[[]string](tb,
			`[...document.querySelectorAll("main a[data-dialog], main form[method=post] button, `+
				`main input[name=run]")].map((el) => el.outerHTML)`); len(found) > 0 {
			t.Errorf("%s has what changes something: %q", page, found)
		}
		tb.says(".foot", "Read-only")
	}
}
