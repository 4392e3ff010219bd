package test

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/ui"
)

var (
	approval = kagzi.Define[string, string]("approval")
	approved = kagzi.DefineSignal[string]("approved")
	idle     = kagzi.Define[string, string]("idle")
)

// approve waits until an operator approves.
func approve(ctx kagzi.Context, _ string) (string, error) { return kagzi.WaitSignal(ctx, approved) }

// mark tells a page that was loaded from the same page later.
const mark = `(window.mark = true)`

// same fails the test if the page was loaded anew since mark.
func (tb *tab) same() {
	tb.t.Helper()
	if !eval[bool](tb, `window.mark === true`) {
		tb.t.Error("the page was loaded again")
	}
}

func TestLiveUpdates(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	kit.Serve(k, approval, approve)
	run := kit.Begin(k, approval, "x", kagzi.ID("order-42"))
	k.WaitStatus(run, kagzi.StatusSleeping)
	row := "#run-" + string(run.ID())
	page := newTab(t, tb.site)
	for tb, where := range map[*tab]string{tb: "/runs", page: path("runs", string(run.ID()))} {
		tb.open(where)
		tb.says("#main .badge", "Sleeping")
		eval[bool](tb, mark)
	}
	k.Signal(run, approved.With("yes"))
	tb.says(row+" .badge", "Completed")
	page.says("#main .badge", "Completed")
	tb.same()
	page.same()
	page.until(`document.querySelector("#live").dataset.state === "off"`) // nothing will change any more
	page.same()
}

// What the viewer does outlives updates.
func TestLiveUpdatesKeepTheViewersPlace(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	var runs []*kagzi.Run[string]
	for n := range 40 {
		runs = append(runs, kit.Begin(k, idle, "x", kagzi.ID(fmt.Sprint("run-", n))))
	}
	tb.open("/")
	tb.click("#throughput-numbers summary")
	tb.click("#fine summary")
	eval[bool](tb, `scrollTo(0, 120), `+mark)
	k.Cancel(runs[0])
	tb.says("#due tbody", "39")
	if !eval[bool](tb,
		`document.querySelector("#throughput-numbers").open && document.querySelector("#fine").open && `+
			`document.activeElement.matches("#fine summary") && scrollY === 120`) {
		t.Error("the update has closed what was open, or moved the focus or the page")
	}
	tb.same()

	tb.open("/runs")
	eval[bool](tb, mark)
	tb.click("#run-" + string(runs[20].ID()) + " input")
	tb.says("[data-selected]", "1 selected")
	tb.fill("#field-workflow", "idl")
	eval[bool](tb, `(scrollTo(0, 200), true)`)
	k.Cancel(runs[39])
	tb.says("#tabs", "Cancelled 2") // the counts go on
	if text := tb.text("#run-" + string(runs[39].ID()) + " .badge"); text != "Pending" {
		t.Errorf("the list has changed to %q under a selection", text)
	}
	if !eval[bool](tb,
		`document.activeElement.id === "field-workflow" && document.activeElement.value === "idl" && scrollY === 200`) {
		t.Error("the update has moved the focus, the page, or what was typed")
	}
	tb.press("\b\b\b") // or it would filter the list
	tb.click("#run-" + string(runs[20].ID()) + " input")
	tb.says("#run-"+string(runs[39].ID())+" .badge", "Cancelled")
	tb.same()
}

func TestHiddenTabsHaveNoStream(t *testing.T) {
	k, tb := begin(t, ui.Config{})
	run := kit.Begin(k, idle, "x")
	tb.open("/runs")
	eval[bool](tb, mark)
	await.True(t, "the page is live", func() bool { return tb.site.streams.Load() == 1 })
	hide := func(is bool) {
		eval[bool](tb,
			fmt.Sprintf(`(Object.defineProperty(document, "hidden", {configurable: true, get: () => %v}), `+
				`document.dispatchEvent(new Event("visibilitychange")))`, is))
	}
	hide(true)
	await.True(t, "the stream ends", func() bool { return tb.site.streams.Load() == 0 })
	k.Cancel(run)
	hide(false)
	tb.says("#run-"+string(run.ID())+" .badge", "Cancelled")
	if n := tb.site.streams.Load(); n != 1 {
		t.Errorf("%d streams are open", n)
	}
	tb.same()
}

// Postgres goes away while a visitor looks, and comes back.
func TestOutage(t *testing.T) {
	browser.reserve(t)
	t.Parallel()
	db := dbtest.Database(t)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{})}
	run := kit.Begin(k, idle, "x", kagzi.ID("order-42"))
	proxy := pgproxy.Start(t, db.DSN)
	pool := dbtest.OpenPool(t, proxy.DSN())
	s, stop := serve(kit.NewClientWith(t, pool, kagzi.ClientConfig{}), pool, ui.Config{})
	t.Cleanup(stop)
	tb, late := newTab(t, s), newTab(t, s)
	tb.open("/runs")
	eval[bool](tb, mark)
	proxy.Freeze()
	defer proxy.Unfreeze()
	tb.until(`document.querySelector("#outage").checkVisibility()`)
	if text := tb.text("#outage"); !eval[bool](tb, `Date.parse(document.querySelector("#outage time").dateTime) > 0`) {
		t.Errorf("the notice does not say since when Postgres is away: %s", text)
	}
	tb.says("#outage", "Postgres gives no answer")
	tb.says("#rows", "order-42") // the last state stays
	tb.accessible("in an outage")
	late.allow("503", "ERR_ABORTED")
	late.do(navigate(s.url + "/schedules")) // a page of which nothing is known
	late.says("h1", "Postgres")
	proxy.Unfreeze()
	tb.until(`!document.querySelector("#outage").checkVisibility()`)
	k.Cancel(run)
	tb.says("#run-"+string(run.ID())+" .badge", "Cancelled")
	tb.same()
	late.says("h1", "Schedules") // by itself
}
