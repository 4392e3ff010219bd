//go:build unix

package crash_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestKillAfterAVerb kills the worker process that has just executed the first step of a run that was resumed or
// forked. Another completes the run: nothing that was recorded before the verb or before the kill is executed again,
// and the transactional effect exists once.
func TestKillAfterAVerb(t *testing.T) {
	t.Parallel()
	for verb, apply := range map[string]func(*testing.T, *kagzi.Client, string) kagzi.RunID{
		"Resume": resumedRun,
		"Fork":   forkedRun,
	} {
		for _, point := range campaign.Some([]string{"during tx", "after record", "after step", "after flush"}, 2) {
			t.Run(verb+" "+point, func(t *testing.T) {
				t.Parallel()
				kit.WaitTurn(t)
				db := dbtest.Database(t)
				dbtest.Audit(t, db.Pool)
				dbtest.Exec(t, db.Pool, createEffects)
				c := kit.NewClient(t, db.Pool)
				id := apply(t, c, db.DSN)
				dir := t.TempDir()
				files := [2]string{filepath.Join(dir, "victim"), filepath.Join(dir, "rescuer")}
				startProcess(t, workerSpec{
					DSN: db.DSN, Ledger: files[0], Config: kit.Quick, Point: point, Nth: 1,
					Signal: syscall.SIGKILL,
				}).killed(t)
				recorded := dbtest.QueryOne[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM kagzi.step_runs
					WHERE run_id = $1 AND step_id = 'ledger' AND status = 'COMPLETED')`, string(id))
				startProcess(t, workerSpec{DSN: db.DSN, Ledger: files[1], Config: kit.Quick})
				run := kit.Find(t, c, chained, id)
				if got, err := run.Result(kit.Context(t)); err != nil || got != chainedResult(0) {
					t.Errorf("got %q, %v", got, err)
				}
				if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM effects WHERE run_id = $1`,
					string(id)); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
				begun := map[string]int{}
				for _, file := range files {
					lines, err := readLedger(file)
					if err != nil {
						t.Fatal(err)
					}
					for _, l := range lines {
						if l[0] == "BEGIN" {
							begun[l[2]+" "+l[3]]++
						}
					}
				}
				if recorded != (point == "after record") && point != "after flush" {
					t.Errorf("INVALID: the step was recorded: %t", recorded)
				}
				want := map[string]int{
					"ledger 1": 2, "flaky 1": 1, "flaky 2": 1, "l/left 1": 1, "l/left2 1": 1,
					"r/right 1": 1, "last 1": 1,
				}
				if recorded || point == "after flush" { // the first flush may come before the step
					want["ledger 1"] = 1
				}
				for step, n := range want { // a busy machine may lose a worker more than once
					if begun[step] < n || step == "ledger 1" && recorded && begun[step] > n {
						t.Errorf("attempt %s was executed %d times, want %d", step, begun[step], n)
					}
					delete(begun, step)
				}
				if len(begun) > 0 {
					t.Errorf("executed again: %v", begun)
				}
			})
		}
	}
}

// resumedRun is a run whose worker died after the first step, and that was cancelled and resumed.
func resumedRun(t *testing.T, c *kagzi.Client, dsn string) kagzi.RunID {
	t.Helper()
	id := kit.StartRuns(t, c, chained, 1)[0].ID()
	startProcess(t, workerSpec{
		DSN: dsn, Ledger: filepath.Join(t.TempDir(), "l"), Config: kit.Quick,
		Point: "after record", Nth: 1, Signal: syscall.SIGKILL,
	}).killed(t)
	for _, err := range []error{c.Cancel(t.Context(), id), admin.New(c).Runs.Resume(t.Context(), id)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// forkedRun is a fork of a run that has completed.
func forkedRun(t *testing.T, c *kagzi.Client, dsn string) kagzi.RunID {
	t.Helper()
	run := kit.StartRuns(t, c, chained, 1)[0]
	stop := kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{}))
	kit.CheckResults(t, []*kagzi.Run[string]{run}, chainedResult)
	stop()
	id, err := admin.New(c).Runs.Fork(t.Context(), run.ID(), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	return id
}
