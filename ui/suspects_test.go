package ui

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The page of a run names it if it may be what kills its workers, and says when it is tried next. The list selects such
// runs.
func TestSuspectsAreNamed(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	suspect := kit.Begin(k, echo, "x", kagzi.ID("suspect"))
	kit.Begin(k, echo, "x", kagzi.ID("other"))
	kit.Suspect(k, suspect.ID(), 7)
	wants(t, s.mustGet("/runs/suspect"), "It was under way when 7 workers died, so it may be what kills them",
		"Its next try comes <time ", "<dt>Recoveries</dt><dd>7</dd>")
	page := s.mustGet("/runs?min-recoveries=3")
	wants(t, page, ">suspect<")
	lacks(t, page, ">other<")
	for _, n := range []string{"x", "0", "-1"} {
		wants(t, s.mustGet("/runs?min-recoveries="+n), "is no number of workers")
	}
	says(t, s.post("/runs/bulk/cancel", "all", "1", "filter", "min-recoveries=3").body, "1 run would be cancelled",
		"workers died at least 3")
}

// A run whose worker is gone is not shown as running.
func TestRunsOfASilentWorker(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x", kagzi.ID("order"))
	kit.LoseRun(k.T, k.Pool, run.ID(), 7) // its worker is not in the registry
	list := s.mustGet("/runs")
	wants(t, list, `<span class="badge warning">`, "Worker silent", "its worker last reported <time ",
		"; the next one with a free slot takes it over")
	lacks(t, list, ">Running</span>", "at the latest")
	page := s.mustGet("/runs/order")
	wants(t, page, "Worker silent", "Why it waits", "It is not being executed: its worker ",
		" is gone. Another one may have it since <time ", "It was under way when 7 workers died")
	lacks(t, page, ">Running</span>", "at the latest")
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() + interval '5 minutes'`)
	s.web.Cache.Expire()
	wants(t, s.mustGet("/runs"), "Worker silent", "; another one takes it over <time ", " at the latest")
}
