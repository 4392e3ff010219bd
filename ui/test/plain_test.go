package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// withoutScript lets the tab's pages run no script of their own.
func (tb *tab) withoutScript() {
	tb.t.Helper()
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// loaded waits until the tab shows another document than before, after act.
func (tb *tab) loaded(act func()) {
	tb.t.Helper()
	eval[bool](tb, `(document.documentElement.dataset.before = "1") === "1"`)
	act()
	tb.until(`!document.documentElement.dataset.before && document.readyState === "complete" && ` +
		`!!document.querySelector("h1")`)
}

// visit opens a page whose scripts do not run.
func (tb *tab) visit(at string) {
	tb.t.Helper()
	tb.do(navigate(tb.site.url + at))
	tb.until(`document.readyState === "complete" && !!document.querySelector("h1")`)
	if eval[bool](tb, `document.documentElement.classList.contains("js")`) {
		tb.t.Error("its script has run")
	}
}

// plain fills the form of a page, given as pairs, sends it, and waits until the next page says said.
func (tb *tab) plain(at, said string, fields ...string) {
	tb.t.Helper()
	tb.visit(at)
	for i := 0; i+1 < len(fields); i += 2 {
		tb.until(`document.querySelector("#main form.change [name=` + fields[i] + `]")`)
		eval[bool](tb, `((el) => { el.value = `+quote(fields[i+1])+
			`; return true })(document.querySelector("#main form.change [name=`+fields[i]+`]"))`)
	}
	tb.loaded(func() { tb.click("#main form.change .actions button:last-of-type") })
	if got := tb.text("#notices .good"); !strings.Contains(got, said) {
		tb.t.Errorf("%s: the page says %q, not %q; it shows %s", at, got, said, tb.shows())
	}
}

// Without a script lists, filters, pages and runs can be read.
func TestReadingWithoutAScript(t *testing.T) {
	k, tb := begin(t, ui.Config{})
	for n := range 51 {
		kit.Begin(k, idle, "x", kagzi.ID(fmt.Sprint("run-", n)))
	}
	tb.withoutScript()
	tb.visit("/runs")
	rows := func() int { return eval[int](tb, `document.querySelectorAll("#rows tbody tr").length`) }
	if n := rows(); n != 50 {
		t.Errorf("the list has %d runs", n)
	}
	tb.loaded(func() { tb.click(".pager a[rel=next]") })
	if n := rows(); n != 1 {
		t.Errorf("the next page has %d runs", n)
	}
	tb.fill("#field-id", "run-7")
	tb.loaded(func() { tb.click("#filter .actions button") })
	if n := rows(); n != 1 || !strings.Contains(tb.text("#rows"), "run-7") {
		t.Errorf("the filter shows %d runs: %s", n, tb.text("#rows"))
	}
	tb.loaded(func() { tb.click("#rows tbody th a") })
	for _, id := range []string{"head", "why", "timeline", "data", "log"} {
		if tb.text("#"+id) == "" {
			t.Errorf("the run's page lacks #%s", id)
		}
	}
	tb.visit("/")
	tb.loaded(func() { tb.click("#throughput a") }) // counts, which scripts get later
	if text := tb.text("#throughput"); !strings.Contains(text, "51 runs started") {
		t.Errorf("the overview says %s", text)
	}
	tb.fill("#find", "run-9")
	tb.loaded(func() { tb.press("\r") })
	if h := tb.text("h1"); h != "run-9" {
		t.Errorf("the search leads to %q", h)
	}
	for _, page := range pages {
		tb.visit(page)
		tb.fits()
	}
}

func TestChangesOfRunsWithoutAScript(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	tb.withoutScript()
	run := kit.Begin(k, idle, "x", kagzi.ID("order-42"))
	page := path("runs", string(run.ID()))
	tb.visit(page)
	tb.loaded(func() { tb.click(`#main a[href$="/cancel"]`) }) // a page in place of a dialog
	if h := tb.text("h1"); h != "Cancel order-42" {
		t.Errorf("the link leads to %q", h)
	}
	tb.plain(page+"/pause", "Paused", because...)
	tb.plain(page+"/unpause", "Unpaused", because...)
	tb.plain(page+"/update", "Updated", append(because, "queue", "side")...)
	tb.plain(page+"/signal", "Sent approved", "name", "approved", "payload", `"yes"`)
	tb.plain(page+"/cancel", "Cancelled", because...)
	logged(k, run, "CANCELLED")
	tb.plain(page+"/resume", "Resumed", because...)
	tb.plain(page+"/terminate", "Terminated", because...)
	tb.plain(page+"/restart", "this is the new run", append(because, "new-id", "order-43")...)
	if again, err := k.Client.Get(k.Ctx, kagzi.ID("order-43")); err != nil || again.Origin != run.ID() {
		t.Errorf("the new run is %+v, %v", again, err)
	}
	tb.plain(page+"/delete", "Deleted", because...)
	logged(k, run, "DELETED")

	failing := kagzi.Define[string, string]("failing")
	kit.Serve(k, failing, func(ctx kagzi.Context, _ string) (string, error) {
		return "",
			kagzi.Do(ctx, "charge", func(context.Context) error { return kagzi.Permanent(errors.New("declined")) })
	})
	failed := kit.Begin(k, failing, "x")
	kit.FailureOf(k, failed, kagzi.StatusFailed)
	tb.plain(path("runs", string(failed.ID()), "fork"), "this is the new run", append(because, "step", "charge")...)
	logged(k, failed.ID(), "FORKED")
}

func TestBulkWithoutAScript(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	run := kit.Begin(k, idle, "x")
	other := kit.Begin(k, idle, "x")
	tb.withoutScript()
	tb.visit("/runs")
	tb.click("#run-" + string(run.ID()) + " input")
	tb.loaded(func() { tb.click(`.bulk button[formaction$="/cancel"]`) })
	if text := tb.text("#main"); !strings.Contains(text, "1 run would be cancelled") {
		t.Error(text)
	}
	tb.fill(`#main [name="reason"]`, reason)
	tb.loaded(func() { tb.click("#main form.change .actions button") })
	if text := tb.text("#main"); !strings.Contains(text, "1 run cancelled") {
		t.Error(text)
	}
	logged(k, run, "CANCELLED")
	if info := k.InfoOf(other); info.Status != kagzi.StatusPending {
		t.Errorf("the other run is %s", info.Status)
	}
}

func TestChangesOfThingsWithoutAScript(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	tb.withoutScript()
	k.Schedule(kagzi.Schedule{Name: "hourly", Run: idle.With("x"), Cron: "0 * * * *"})
	tb.plain("/schedules/hourly/pause", "Paused")
	tb.plain("/schedules/hourly/resume", "Resumed")
	tb.plain("/schedules/hourly/trigger", "Triggered hourly", because...)
	tb.visit("/schedules/hourly/backfill")
	tb.fill("#main [name=from]", "3h")
	tb.loaded(func() { tb.click("#main form.change .actions button") })
	tb.loaded(func() { tb.click("#main form.change .actions button") })
	if text := tb.text("#notices"); !strings.Contains(text, "Started 3 runs") {
		t.Errorf("the backfill says %q", text)
	}
	tb.plain("/schedules/hourly/delete", "Deleted hourly")

	tb.plain("/limits/queue", "Queue office: at most 3 running", "queue", "office", "most", "3")
	tb.plain("/limits/key", "Key acme of queue office", "queue", "office", "key", "acme", "most", "1")
	tb.plain("/limits/step", "openai", "limit", "openai", "most", "2")
	tb.plain("/limits/step/delete?limit=openai", "Deleted openai")
	tb.plain("/limits/pause?queue=office", "Paused", because...)
	tb.plain("/limits/unpause?queue=office", "Unpaused")

	runs := serveSorter(k)
	await.Receive(t, runs)
	tb.plain("/consumers/sorter/trigger", "Triggered sorter")
	tb.plain("/consumers/sorter/skip", "Skipped the event", "topic", "mail", "event", "m1")
	tb.plain("/consumers/sorter/delete", "Deleted sorter")

	id, done := serveQueue(k, "side")
	tb.plain(path("workers", id)+"/drain", "to drain")
	if err := await.Receive(t, done); err != nil {
		t.Error(err)
	}
	_, done = serveQueue(k, "office")
	tb.plain("/workers/drain?queue=office", "Asked 1 worker of queue office to drain")
	if err := await.Receive(t, done); err != nil {
		t.Error(err)
	}
	id, _ = serveQueue(k, "late")
	tb.plain(path("workers", id)+"/force-offline", "is offline")
}
