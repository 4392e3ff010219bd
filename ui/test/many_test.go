package test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
	"github.com/kagzi/kagzi/ui/internal/demo"

	"github.com/kagzi/kagzi"
)

// The list of 100,000 runs is turned page by page, and filtered.
func TestManyRuns(t *testing.T) {
	browser.reserve(t)
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked()) // the runs never were
	if err := demo.Many(kit.Context(t), pool, 100_000, 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	s, stop := serve(kit.NewClientWith(t, pool, kagzi.ClientConfig{}), pool, ui.Config{Authorize: everybody})
	t.Cleanup(stop)
	tb := newTab(t, s)
	tb.open("/runs")
	const ids = `[...document.querySelectorAll("#rows tbody tr")].map((tr) => tr.id)`
	seen := map[string]bool{}
	for range 3 {
		rows := eval[[]string](tb, ids)
		if len(rows) != 50 {
			t.Fatalf("the page has %d runs", len(rows))
		}
		for _, id := range rows {
			if seen[id] {
				t.Errorf("%s is on two pages", id)
			}
			seen[id] = true
		}
		eval[bool](tb, `(document.querySelector(".pager a[rel=next]").scrollIntoView(), true)`)
		tb.click(".pager a[rel=next]")
		tb.until(`document.querySelector("#rows tbody tr") && document.querySelector("#rows tbody tr").id !== ` +
			quote(rows[0]))
	}
	if y := eval[int](tb, `scrollY`); y != 0 {
		t.Errorf("the next page begins at %d px", y)
	}
	tb.click(".pager a:not([rel])")
	tb.until(`location.search === "" && document.querySelectorAll("#rows tbody tr").length === 50`)
	tb.click("#tabs li:nth-child(5) a")
	tb.until(`location.search.includes("status=") && ` +
		`document.querySelector("#tabs [aria-current]").closest("li:nth-child(5)")`)
	if other := eval[int](tb,
		`new Set([...document.querySelectorAll("#rows .badge")].map((b) => b.innerText)).size`); other != 1 {
		t.Errorf("the tab shows runs of %d statuses", other)
	}
	tb.fill("#field-workflow", "workflow-3")
	tb.press("\r")
	tb.until(`location.search.includes("workflow=workflow-3") && ` +
		`[...document.querySelectorAll("#rows .workflow")].every((td) => td.innerText === "workflow-3")`)
}

// Rows that have come for a page of the list do not get into the next one.
func TestNextPageIsItsOwn(t *testing.T) {
	browser.reserve(t)
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked()) // the runs never were
	if err := demo.Many(kit.Context(t), pool, 60, time.Hour); err != nil {
		t.Fatal(err)
	}
	s, stop := serve(kit.NewClientWith(t, pool, kagzi.ClientConfig{}), pool, ui.Config{Authorize: everybody})
	t.Cleanup(stop)
	tb := newTab(t, s)
	tb.open("/runs")
	const first = `document.querySelector("#rows tbody tr").id`
	row := eval[string](tb, first)
	eval[bool](tb, `(() => {
		const Stream = EventSource;
		window.EventSource = class extends Stream { constructor(url) { super(url); window.stream = this; } };
		kagzi.reopen();
		document.addEventListener("htmx:afterSwap", () => { window.wasOpen = stream.readyState !== Stream.CLOSED; });
		document.querySelector("#rows input[name=run]").checked = true;
		kagzi.update(document.querySelector("#rows").outerHTML); // they are held while a run is selected
		return true;
	})()`)
	tb.click(".pager a[rel=next]")
	tb.until(`location.search !== "" && document.querySelectorAll("#rows tbody tr").length === 10`)
	if eval[bool](tb, `wasOpen`) {
		t.Error("the stream of the first page is open beside the second page")
	}
	tb.ready()
	if got := eval[string](tb, first); got == row {
		t.Error("the second page shows the rows of the first one")
	}
}
