//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// longHeartbeat is the configuration of a worker whose leases expire before its next heartbeat.
var longHeartbeat = kagzi.WorkerConfig{
	LeaseTimeout: time.Second, FixedLease: true, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
	PollInterval:  50 * time.Millisecond,
	NoCoordinator: true, MaxConcurrent: 1, DrainTimeout: time.Millisecond,
}

// A worker is held up just before it calls code of the application, until another worker has completed the run. The
// first calls nothing any more, although no notification told it that it lost the run.
func TestNothingIsCalledUnderALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	step := func(ctx kagzi.Context, fn func(context.Context) error) error { return kagzi.Do(ctx, "s", fn, kit.Soon) }
	for _, tt := range []struct {
		name  string
		point string
		calls int64 // by the one that is held up, before it is
		body  func(ctx kagzi.Context, fn func(context.Context) error) error
	}{
		{"Step", "before step", 0, step},
		{"StepTx", "before step", 0, func(ctx kagzi.Context, fn func(context.Context) error) error {
			return kagzi.DoTx(ctx, "s", func(ctx context.Context, _ pgx.Tx) error { return fn(ctx) }, kit.Soon)
		}},
		{"AnotherAttempt", "before step", 1, step},
		{"WorkflowFunction", "after claim", 0, func(_ kagzi.Context, fn func(context.Context) error) error {
			return fn(context.Background())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var late, other atomic.Int64
			worker := func(calls *atomic.Int64, cfg kagzi.WorkerConfig) *kagzi.Worker {
				w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6))), cfg)
				kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
					return 0, tt.body(ctx, func(context.Context) error {
						if calls.Add(1) <= tt.calls && calls == &late {
							return errors.New("not yet")
						}
						return nil
					})
				})
				return w
			}
			first := worker(&late, longHeartbeat)
			// On a busy machine it may reach the point when its lease is over, and claim the run again.
			held, goOn := kit.HangAt(t, first, tt.point, func() bool { return late.Load() == tt.calls })
			defer goOn()
			runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), wf, 1)
			stop := kit.StartLocal(t, first)
			await.Receive(t, held)
			cfg := longHeartbeat
			cfg.LeaseTimeout, cfg.FixedLease = 24*time.Hour, false
			kit.StartLocal(t, worker(&other, cfg))
			await.True(t, "the other worker ends the run", func() bool {
				return dbtest.QueryOne[bool](t, db.Pool, `SELECT finished_at IS NOT NULL FROM kagzi.workflow_runs`)
			})
			before := dbtest.QueryOne[string](t, db.Pool, `SELECT r::text FROM kagzi.workflow_runs r WHERE run_id = $1`,
				string(runs[0].ID()))
			goOn()
			stop()
			if n := late.Load(); n != tt.calls {
				t.Errorf("the worker whose lease is over called code %d times, want %d", n, tt.calls)
			}
			if after := dbtest.QueryOne[string](t, db.Pool, `SELECT r::text FROM kagzi.workflow_runs r
				WHERE run_id = $1`, string(runs[0].ID())); after != before {
				t.Errorf("it changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// A worker process is stopped just before it calls a step's function, until another worker has completed the run. It
// does not call the function when it continues, although none of its timers has fired yet.
func TestFrozenWorkerCallsNothing(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]kagzi.WorkerConfig{
		"LeaseEnds": {
			LeaseTimeout: 600 * time.Millisecond, Heartbeat: 300 * time.Millisecond, StaleAfter: time.Hour,
			PollInterval: 100 * time.Millisecond,
		},
		"DeclaredDead": kit.Quick,
	} {
		for _, wf := range []kagzi.Workflow[int, string]{oneStep, oneTx} {
			t.Run(name+"/"+wf.Name(), func(t *testing.T) {
				t.Parallel()
				db := dbtest.Database(t)
				dbtest.Audit(t, db.Pool)
				dbtest.Exec(t, db.Pool, createEffects)
				c := kit.NewClient(t, db.Pool)
				file := filepath.Join(t.TempDir(), "zombie")
				zombie := startProcess(t, workerSpec{
					DSN: db.DSN, Ledger: file, Config: cfg, Point: "before step",
					Nth: 1, Signal: syscall.SIGSTOP,
				})
				runs := kit.StartRuns(t, c, wf, 1)
				await.True(t, "the process stops", func() bool { return countIn(t, file, "REACHED") == 1 })
				other := cfg
				other.LeaseTimeout = 0 // that of the zombie ends, and a busy machine must not let this one end
				kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "other"), other))
				kit.CheckResults(t, runs, func(n int) string { return kit.Link("0", "one") })
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

// The answer to a claim is held back, while heartbeats continue, until the claimed runs are completed. Nothing is
// executed again.
func TestLateAnswerToAClaim(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	wf := kagzi.Define[int, int]("wf")
	var calls atomic.Int64
	worker := func(dsn string) func() {
		w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, dsn, dbtest.Conns(6))),
			kagzi.WorkerConfig{
				LeaseTimeout: 9 * time.Second, StaleAfter: time.Hour,
				PollInterval: 50 * time.Millisecond,
			})
		kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { calls.Add(1); return 0, nil })
		return kit.StartLocal(t, w)
	}
	runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), wf, 3)
	first := uuid.MustParse(string(runs[0].ID()))
	held := proxy.HoldAckIf(pgproxy.Contains(claimStatement), func(columns [][]byte) bool {
		return slices.ContainsFunc(columns, func(c []byte) bool {
			return bytes.Equal(c, first[:]) || string(c) == first.String()
		})
	})
	defer held.Release()
	stop := worker(proxy.DSN())
	await.Receive(t, held.Done())
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`); n !=
		len(runs) {
		t.Fatalf("INVALID: the claim took %d runs", n)
	}
	worker(db.DSN)
	kit.CheckResults(t, runs, func(int) int { return 0 })
	held.Release()
	stop()
	if n := calls.Load(); n != int64(len(runs)) {
		t.Errorf("%d executions of %d runs", n, len(runs))
	}
}
