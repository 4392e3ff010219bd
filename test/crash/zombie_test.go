//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// patient is kit.Quick for a machine that may stand still for a few seconds, in which no live worker may be declared
// dead.
var patient = kagzi.WorkerConfig{
	MaxConcurrent: 4, Heartbeat: 600 * time.Millisecond, StaleAfter: 6 * time.Second,
	PollInterval: 200 * time.Millisecond,
}

// A worker process is stopped just before it writes. Another worker takes over its run and completes it. When the first
// continues, the database refuses its write, and the worker notices.
func TestZombieChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		call    kagzi.Call
		point   string
		refused string // the write
		want    string
	}{
		{"Record", oneStep.With(7), "before flush", "record", kit.Link("7", "one")},
		{"Finish", kit.Nothing.With(7), "before flush", "finish", "7"},
		{"Suspension", napping.With(300 * time.Millisecond), "before flush", "record", "rested"},
		{"Retry", relapse.With(7), "before flush", "suspend", "7"},
		{"StepTx", oneTx.With(7), "after step", "record", kit.Link("7", "one")},
	} {
		// Either the lease ends by itself, or the fleet finds the worker silent and declares it dead.
		t.Run(tc.name+"/LeaseEnds", func(t *testing.T) {
			t.Parallel()
			testZombie(t, tc.call, tc.point, tc.refused, tc.want, kagzi.WorkerConfig{
				LeaseTimeout: 3 * time.Second, Heartbeat: time.Second, StaleAfter: time.Hour,
				PollInterval: 100 * time.Millisecond,
			})
		})
		t.Run(tc.name+"/DeclaredDead", func(t *testing.T) {
			t.Parallel()
			testZombie(t, tc.call, tc.point, tc.refused, tc.want, patient)
		})
	}
}

func testZombie(t *testing.T, call kagzi.Call, point, refused, want string, cfg kagzi.WorkerConfig) {
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClient(t, db.Pool)
	file := filepath.Join(t.TempDir(), "zombie")
	zombie := startProcess(t, workerSpec{
		DSN: db.DSN, Ledger: file, Config: cfg, Point: point, Nth: 1,
		Signal: syscall.SIGSTOP,
	})
	started, err := c.StartMany(t.Context(), []kagzi.Call{call})
	if err != nil {
		t.Fatal(err)
	}
	run := kit.StartedBy(t, c, started[0].ID)
	await.True(t, "the process stops", func() bool { return countIn(t, file, "REACHED") == 1 })
	lease := dbtest.QueryOne[string](t, db.Pool, `SELECT lease FROM kagzi.workflow_runs`)

	stop := kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "other"), cfg))
	if got, err := run.Result(kit.Context(t)); err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
	stop()
	before := tables(t, db)
	if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the zombie's write is refused", func() bool { return countIn(t, file, "REFUSED", refused) > 0 })
	zombie.stop(t)
	if after := tables(t, db); after != before {
		t.Errorf("the zombie changed the tables from\n%s\nto\n%s", before, after)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE lease = $1`,
		lease); n != 0 {
		t.Error("INVALID: nobody took the run over")
	}
}

// The zombie continues while the other worker still executes the step that the zombie has executed. The step has no
// result yet, so only the lease keeps the zombie's result out.
func TestZombieRecordsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wf    kagzi.Workflow[int, string]
		point string
	}{
		"Step":   {oneStep, "before flush"},
		"StepTx": {oneTx, "after step"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			dbtest.Exec(t, db.Pool, createEffects)
			c := kit.NewClient(t, db.Pool)
			file := filepath.Join(t.TempDir(), "zombie")
			zombie := startProcess(t, workerSpec{
				DSN: db.DSN, Ledger: file, Config: patient, Point: tc.point, Nth: 1,
				Signal: syscall.SIGSTOP,
			})
			runs := kit.StartRuns(t, c, tc.wf, 1)
			await.True(t, "the process stops", func() bool { return countIn(t, file, "REACHED") == 1 })

			w := kit.NewWorker(t, c, patient)
			begun, open := make(chan struct{}, 1), make(chan struct{})
			kagzi.Handle(w, tc.wf, func(ctx kagzi.Context, n int) (string, error) {
				return kagzi.Step(ctx, "one", func(context.Context) (string, error) {
					select {
					case begun <- struct{}{}:
					default:
					}
					await.Opened(t, open)
					return "the other's", nil
				})
			})
			kit.StartLocal(t, w)
			await.Receive(t, begun)
			if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the zombie's record is refused", func() bool {
				return countIn(t, file, "REFUSED", "record") > 0
			})
			zombie.stop(t)
			if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
				WHERE status = 'COMPLETED'`); n != 0 {
				t.Errorf("%d steps are recorded", n)
			}
			close(open)
			kit.CheckResults(t, runs, func(int) string { return "the other's" })
			checkEffects(t, db, 0)
		})
	}
}

// tables returns all runs and steps, and the effects of transactional steps.
func tables(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	return dbtest.QueryOne[string](t, db.Pool, `SELECT concat_ws(E'\n',
		(SELECT string_agg(r::text, E'\n' ORDER BY run_id) FROM kagzi.workflow_runs r),
		(SELECT string_agg(s::text, E'\n' ORDER BY run_id, step_id, attempt_number) FROM kagzi.step_runs s),
		(SELECT string_agg(e::text, E'\n' ORDER BY run_id) FROM effects e))`)
}

// A worker is stopped until its lease has expired. The context of its step ends with ErrLeaseLost, and the worker
// continues to work, under a new ID if it was declared dead.
func TestZombieStepLearnsOfIt(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	dir := t.TempDir()
	file, release := filepath.Join(dir, "zombie"), filepath.Join(dir, "release")
	zombie := startProcess(t, workerSpec{DSN: db.DSN, Ledger: file, Config: patient})
	run, err := kagzi.Start(t.Context(), c, holding, release)
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the step begins", func() bool { return countIn(t, file, "BEGIN") == 1 })
	if err := zombie.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	stop := kit.StartLocal(t, localWorker(t, c, other, patient))
	await.True(t, "the step begins elsewhere", func() bool { return countIn(t, other, "BEGIN") == 1 })
	if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the zombie's step learns of it", func() bool {
		return countIn(t, file, "CAUSE", string(run.ID()), fmt.Sprint(kagzi.ErrLeaseLost)) == 1
	})
	kit.Touch(t, release)
	if got, err := run.Result(kit.Context(t)); err != nil || got != "held" {
		t.Errorf("got %q, %v", got, err)
	}
	stop()
	kit.CheckResults(t, kit.StartRuns(t, c, triple, 3), tripleResult) // by the former zombie
	zombie.stop(t)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE pid = $1`,
		zombie.cmd.Process.Pid); n != 2 {
		t.Errorf("the process registered %d times, want 2", n)
	}
}
