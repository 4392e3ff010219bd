package test

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// bulk makes a change of the runs that are ticked, and returns when the page says done.
func (tb *tab) bulk(verb, plan, done string) {
	tb.t.Helper()
	button := `.bulk button[formaction$="/` + verb + `"]`
	tb.until(`document.querySelector(` + quote(button) + `)?.disabled === false`)
	if !eval[bool](tb, `document.querySelector(`+quote(button)+`).checkVisibility()`) {
		tb.click("#bulk-more summary")
	}
	tb.reloaded(func() { tb.click(button) })
	tb.says("#main", plan)
	tb.fill(`#main [name="reason"]`, reason)
	tb.click(`#main form.change button`)
	tb.says("#main", done)
}

// tick ticks the runs in the list.
func (tb *tab) tick(runs ...*kagzi.Run[string]) {
	tb.t.Helper()
	for _, run := range runs {
		tb.click("#run-" + string(run.ID()) + " input")
	}
	tb.says("[data-selected]", fmt.Sprintf("%d selected", len(runs)))
}

func TestBulkVerbs(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	var runs []*kagzi.Run[string]
	for n := range 4 {
		runs = append(runs, kit.Begin(k, idle, "x", kagzi.ID(fmt.Sprint("run-", n))))
	}
	tb.open("/runs")
	tb.tick(runs[0], runs[1])
	if eval[bool](tb,
		`[...document.querySelectorAll(".bulk button")].some((b) => b.formAction.endsWith("/resume") && !b.disabled)`) {
		t.Error("runs that wait can be resumed")
	}
	tb.bulk("terminate", "2 runs would be terminated", "2 runs terminated")
	for _, run := range runs[:2] {
		logged(k, run, "TERMINATED")
	}
	tb.open("/runs?status=cancelled")
	tb.tick(runs[0])
	if first := tb.text(".bulk button"); first != "Resume…" {
		t.Errorf("of cancelled runs the first button is %q", first)
	}
	tb.bulk("resume", "1 run would be resumed", "1 run resumed")
	logged(k, runs[0], "RESUMED")

	tb.open("/runs?status=cancelled")
	tb.tick(runs[1])
	tb.bulk("restart", "1 run would be restarted", "1 run restarted")
	again, err := k.Client.Get(k.Ctx, kagzi.ID("run-1"))
	if err != nil || again.Origin != runs[1].ID() || again.Status != kagzi.StatusPending {
		t.Errorf("the new run is %+v, %v", again, err)
	}

	tb.open("/runs?status=cancelled")
	tb.click(`.bulk [name="all"]`)
	tb.says("[data-selected]", "All runs that match")
	tb.bulk("delete", "The filter: status cancelled", "1 run deleted")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1`, runs[1].ID()); n != 0 {
		t.Error("the run is there")
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 4 {
		t.Errorf("there are %d runs, not 4", n)
	}
}
