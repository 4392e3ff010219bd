package cli_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// stuck and runs get name a run that may be what kills its workers, and when it is tried next; runs list selects it.
func TestSuspectsAreNamed(t *testing.T) {
	k, s := newShell(t)
	suspect := kit.Begin(k, checkout, 1, kagzi.ID("suspect"))
	kit.Begin(k, checkout, 2, kagzi.ID("other"))
	kit.Suspect(k, suspect.ID(), 7)
	s.run("stuck").exits(4).prints("suspects", string(suspect.ID()), "was under way when 7 workers died",
		"next try in ")
	s.run("runs get suspect").ok().prints("7 workers died since its last progress", "It was under way when 7 workers "+
		"died, so it may be what kills them", "Its next try comes 20")
	s.run("runs list --min-recoveries 7").ok().prints("suspect", "recovery").omits("other")
	s.run("runs count --min-recoveries 1 --by workflow").ok().prints("checkout").omits("2")
	s.run("runs list --min-recoveries 8").ok().says("No run matches.")
	s.run("runs list --min-recoveries 0").exits(2).says("--min-recoveries is 0")
	s.run("runs cancel --min-recoveries -1 --yes").exits(2).says("--min-recoveries is -1")
	s.run("runs cancel --min-recoveries 3 --yes").ok()
	k.WaitStatus(suspect.ID(), kagzi.StatusCancelled)
}

// A run whose worker is gone is not listed as running, and its takeover is not announced in the past.
func TestRunsOfASilentWorker(t *testing.T) {
	k, s := newShell(t)
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	kit.LoseRun(k.T, k.Pool, run.ID(), 7) // its worker is not in the registry
	s.run("runs list").ok().prints("worker silent", "its worker last reported 20", "; the next one with a free slot "+
		"takes it over").omits("RUNNING")
	s.run("runs get order-1").ok().prints("worker silent", "It is not being executed: its worker ",
		" is gone. Another one may have it since 20", "It was under way when 7 workers died").omits("RUNNING",
		"takes over at the latest")
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() + interval '5 minutes'`)
	s.run("runs list").ok().prints("worker silent", "; another one takes it over 20", " at the latest")
	info := jsonOf[[]kagzi.RunInfo](s.run("runs list --json").ok())
	if len(info) != 1 || info[0].SilentSince.IsZero() || info[0].Status != kagzi.StatusRunning {
		t.Errorf("as JSON it is %+v", info)
	}
}
