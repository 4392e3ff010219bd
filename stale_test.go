//go:build unix

package kagzi

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// untold is a configuration of a worker whose leases end while no heartbeat tells it.
var untold = WorkerConfig{
	LeaseTimeout: time.Second, FixedLease: true, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, PollInterval: 50 * time.Millisecond,
	NoCoordinator: true, MaxConcurrent: 1, DrainTimeout: time.Millisecond,
}

// TestNothingIsCalledUnderALeaseThatIsOver holds a worker up, at a place where it is about to call code of the application,
// until another has completed its run: it calls nothing any more. Nobody tells it that it lost the run.
func TestNothingIsCalledUnderALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	step := func(ctx Context, fn func(context.Context) error) error { return Do(ctx, "s", fn, soon) }
	for _, tt := range []struct {
		name  string
		point string
		nth   int32
		calls int64 // by the one that is held up
		body  func(ctx Context, fn func(context.Context) error) error
	}{
		{"Step", "before step", 1, 0, step},
		{"StepTx", "before step", 1, 0, func(ctx Context, fn func(context.Context) error) error {
			return DoTx(ctx, "s", func(ctx context.Context, _ pgx.Tx) error { return fn(ctx) }, soon)
		}},
		{"AnotherAttempt", "before step", 2, 1, step},
		{"WorkflowFunction", "after claim", 1, 0, func(_ Context, fn func(context.Context) error) error { return fn(context.Background()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			wf := Define[int, int]("wf", noRetry)
			var late, other atomic.Int64
			worker := func(calls *atomic.Int64, cfg WorkerConfig) *Worker {
				w := newTestWorker(t, newTestClient(t, openPool(t, db.DSN, 6)), cfg)
				Handle(w, wf, func(ctx Context, _ int) (int, error) {
					return 0, tt.body(ctx, func(context.Context) error {
						if calls.Add(1) == 1 && tt.nth == 2 && calls == &late {
							return errors.New("not yet")
						}
						return nil
					})
				})
				return w
			}
			first := worker(&late, untold)
			var reached atomic.Int32
			held, goOn := hangAt(t, first, tt.point, func() bool { return reached.Add(1) == tt.nth })
			defer goOn()
			runs := startRuns(t, newTestClient(t, db.Pool), wf, 1)
			stop := startLocal(t, first)
			receive(t, held)
			cfg := untold
			cfg.LeaseTimeout, cfg.FixedLease = 24*time.Hour, false
			startLocal(t, worker(&other, cfg))
			waitFor(t, "the other worker ends the run", func() bool {
				return queryOne[bool](t, db.Pool, `SELECT finished_at IS NOT NULL FROM kagzi.workflow_runs`)
			})
			before := queryOne[string](t, db.Pool, `SELECT r::text FROM kagzi.workflow_runs r WHERE run_id = $1`, string(runs[0].ID()))
			goOn()
			stop()
			if n := late.Load(); n != tt.calls {
				t.Errorf("the worker whose lease is over called code %d times, want %d", n, tt.calls)
			}
			if after := queryOne[string](t, db.Pool, `SELECT r::text FROM kagzi.workflow_runs r WHERE run_id = $1`, string(runs[0].ID())); after != before {
				t.Errorf("it changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// TestFrozenWorkerCallsNothing stops a worker process just before it calls a step's function, until another worker has
// completed the run: when it goes on, no timer of its own has fired yet.
func TestFrozenWorkerCallsNothing(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]WorkerConfig{
		"LeaseEnds":    {LeaseTimeout: 600 * time.Millisecond, Heartbeat: 300 * time.Millisecond, StaleAfter: time.Hour, PollInterval: 100 * time.Millisecond},
		"DeclaredDead": quick,
	} {
		for _, wf := range []Workflow[int, string]{oneStep, oneTx} {
			t.Run(name+"/"+wf.Name(), func(t *testing.T) {
				t.Parallel()
				db := dbtest.Database(t)
				dbtest.Audit(t, db.Pool)
				execSQL(t, db.Pool, createEffects)
				c := newTestClient(t, db.Pool)
				file := filepath.Join(t.TempDir(), "zombie")
				zombie := startProcess(t, workerSpec{DSN: db.DSN, Ledger: file, Config: cfg, Point: "before step", Nth: 1, Signal: syscall.SIGSTOP})
				runs := startRuns(t, c, wf, 1)
				waitFor(t, "the process stops", func() bool { return countIn(t, file, "REACHED") == 1 })
				startLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "other"), cfg))
				checkResults(t, runs, func(n int) string { return link("0", "one") })
				if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				zombie.stop(t)
				if n := countIn(t, file, "BEGIN"); n != 0 {
					t.Errorf("the step was called %d times by the worker that had been frozen", n)
				}
			})
		}
	}
}

// TestLateAnswerToAClaim holds back the answer to a claim until what it took is completed, while heartbeats go on: nothing
// is executed again.
func TestLateAnswerToAClaim(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	wf := Define[int, int]("wf")
	var calls atomic.Int64
	worker := func(dsn string) func() {
		w := newTestWorker(t, newTestClient(t, openPool(t, dsn, 6)), WorkerConfig{LeaseTimeout: 3 * time.Second, StaleAfter: time.Hour, PollInterval: 50 * time.Millisecond})
		Handle(w, wf, func(Context, int) (int, error) { calls.Add(1); return 0, nil })
		return startLocal(t, w)
	}
	runs := startRuns(t, newTestClient(t, db.Pool), wf, 3)
	held := proxy.HoldAck(pgproxy.Contains(claimStatement))
	defer held.Release()
	stop := worker(proxy.DSN())
	receive(t, held.Done())
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`); n != len(runs) {
		t.Fatalf("INVALID: the claim took %d runs", n)
	}
	worker(db.DSN)
	checkResults(t, runs, func(int) int { return 0 })
	held.Release()
	stop()
	if n := calls.Load(); n != int64(len(runs)) {
		t.Errorf("%d executions of %d runs", n, len(runs))
	}
}
