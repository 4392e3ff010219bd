package test

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// The lane of executions appears, and marks the takeover, while the page is open. A click on a bar leads to its worker.
func TestTakeoverIsMarked(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	approved := kagzi.DefineSignal[string]("approved")
	fn := func(ctx kagzi.Context, in string) (string, error) {
		if err := kagzi.Do(ctx, "reserve", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		if _, err := kagzi.WaitSignal(ctx, approved); err != nil {
			return "", err
		}
		return in, kagzi.Do(ctx, "ship", func(context.Context) error { return nil })
	}
	stop := kit.Serve(k, idle, fn)
	run := kit.Begin(k, idle, "x")
	k.WaitStatus(run, kagzi.StatusSleeping)
	tb.open(path("runs", string(run.ID())))
	eval[bool](tb, mark)
	tb.until(`document.querySelectorAll("#row-workers .exec").length > 0 && !document.querySelector(".takeover")`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, idle, fn)
	k.Signal(run, approved.With("yes"))
	kit.ResultOf(k, run)
	tb.until(`document.querySelector("#row-workers .takeover") && ` +
		`document.querySelector("#row-workers .name").innerText.includes("2 workers")`)
	tb.same()
	tb.size(390, 800)
	tb.fits()
	tb.accessible("a takeover, 390 px")
	tb.size(1280, 900)
	second := kit.Only(t, k.Client, admin.WorkerFilter{Status: []string{"ONLINE"}}).ID
	tb.click(`#row-workers a[href$="` + second + `"] .exec:not(.thin)`)
	tb.until(`location.pathname.endsWith(` + quote("/workers/"+second) + `)`)
}
