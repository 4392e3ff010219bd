//go:build unix

package crash_test

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestSleepsHoldNothing shows that 3,000 sleeping runs cost a worker neither goroutines nor slots nor connections,
// and that those which wake at one instant all go on, none too early (which the invariants check).
func TestSleepsHoldNothing(t *testing.T) {
	t.Parallel()
	const n, slots = 3_000, 10
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	calls := make([]kagzi.Call, n)
	for i := range calls {
		calls[i] = napping.With(time.Hour)
	}
	if _, err := c.StartMany(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "l")
	begun := time.Now()
	w := startProcess(t, workerSpec{DSN: db.DSN, Ledger: file, Config: kagzi.WorkerConfig{MaxConcurrent: slots}})
	count := func(status string) int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = $1`, status)
	}
	await.TrueWithin(t, 4*await.Patience, "all runs sleep", func() bool { return count("SLEEPING") == n })
	t.Logf("%d runs fell asleep in %v", n, time.Since(begun).Round(time.Millisecond))
	if got, err := kit.StartRuns(t, c, kit.Nothing, 1)[0].Result(kit.Context(t)); err != nil || got != "0" {
		t.Fatalf("a run beside the sleeping ones: %q, %v", got, err)
	}
	// 6 of the worker's pool, its listener and its heartbeater, and those of this test. Another may be about to end.
	await.True(t, "the worker has at most 8 connections", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> ALL ($1)`, poolPIDs(t, db)) <= 8
	})
	wake := dbtest.QueryOne[time.Time](t, db.Pool, `WITH w AS (SELECT clock_timestamp() + interval '300 ms' AS at),
		s AS (UPDATE kagzi.step_runs SET wake_at = w.at FROM w),
		r AS (UPDATE kagzi.workflow_runs SET available_at = w.at FROM w WHERE status = 'SLEEPING') SELECT at FROM w`)
	kit.WakeWorkers(t, db.Pool) // the worker could not know
	await.TrueWithin(t, 4*await.Patience, "all runs wake and complete", func() bool {
		return count("COMPLETED") == n+1
	})
	t.Logf("%d timers of one instant drained in %v", n, time.Since(wake).Round(time.Millisecond))
	w.stop(t)
	lines, err := readLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(lines[len(lines)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d goroutines", most)
	if most >= 100 {
		t.Errorf("the worker had %d goroutines, want less than 100", most)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
		WHERE finished_at < wake_at`); n > 0 {
		t.Errorf("%d sleeps ended early", n)
	}
}

// poolPIDs are the sessions of the test itself.
func poolPIDs(t *testing.T, db *dbtest.DB) []uint32 {
	t.Helper()
	pids := []uint32{} // not nil: SQL compares nothing with NULL
	for _, pool := range testPools(t, db) {
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			pids = append(pids, conn.Conn().PgConn().PID())
			defer conn.Release()
		}
	}
	return pids
}

// testPools are the pools of the test itself. Under the roles, its statements have a pool of their own.
func testPools(t *testing.T, db *dbtest.DB) []*pgxpool.Pool {
	t.Helper()
	if owner := dbtest.Owner(t, db.Pool); owner != db.Pool {
		return []*pgxpool.Pool{db.Pool, owner}
	}
	return []*pgxpool.Pool{db.Pool}
}

// testConns counts the connections of the test itself.
func testConns(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	for _, pool := range testPools(t, db) {
		n += int(pool.Stat().TotalConns())
	}
	return n
}

// TestSleepLengths shows where a short, a medium and a long sleep leave their runs.
func TestSleepLengths(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	dbtest.Audit(t, db.Pool)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{PollInterval: time.Hour}))
	runs := map[time.Duration]*kagzi.Run[string]{}
	for _, d := range []time.Duration{50 * time.Millisecond, 2 * time.Second, time.Hour} {
		run, err := kagzi.Start(t.Context(), c, napping, d)
		if err != nil {
			t.Fatal(err)
		}
		runs[d] = run
	}
	for _, d := range []time.Duration{50 * time.Millisecond, 2 * time.Second} {
		if got, err := runs[d].Result(kit.Context(t)); err != nil || got != "rested" {
			t.Errorf("%v: %q, %v", d, got, err)
		}
	}
	suspensions := func(d time.Duration) int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes WHERE run_id = $1
			AND old_status = 'RUNNING' AND new_status = 'SLEEPING'`, string(runs[d].ID()))
	}
	if n := suspensions(50 * time.Millisecond); n != 0 {
		t.Errorf("a sleep of 50 ms left memory %d times", n)
	}
	if n := suspensions(2 * time.Second); n != 1 {
		t.Errorf("a sleep of 2 s left memory %d times, want once", n)
	}
	info, err := runs[time.Hour].Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Status != kagzi.StatusSleeping || info.WaitingOn.String() != "timer nap" {
		t.Errorf("the long sleeper is %s, waiting on %q", info.Status, info.WaitingOn)
	}
	if ahead := dbtest.QueryOne[bool](t, db.Pool, `SELECT available_at - s.wake_at = interval '0'
		AND s.wake_at BETWEEN now() + interval '58 min' AND now() + interval '1 hour'
		FROM kagzi.workflow_runs r JOIN kagzi.step_runs s USING (run_id)
			WHERE r.run_id = $1`, string(runs[time.Hour].ID())); !ahead {
		t.Errorf("the long sleeper is available at %v", info.AvailableAt)
	}
}

// BenchmarkTimerLateness reports how long after its wake time a sleeping run goes on, on an otherwise idle worker that
// would poll in half a minute.
func BenchmarkTimerLateness(b *testing.B) {
	pool := dbtest.Pool(b)
	c := kit.NewClient(b, pool)
	w := kit.NewWorker(b, c, kagzi.WorkerConfig{PollInterval: 30 * time.Second})
	var mu sync.Mutex
	var late []time.Duration
	wf := kagzi.Define[int, int]("lateness")
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		if err := kagzi.Sleep(ctx, "nap", time.Duration(300+n*13%1000)*time.Millisecond); err != nil {
			return 0, err
		}
		return n, kagzi.Do(ctx, "after", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			// which is when the sleep ended; the database's clock is this machine's
			late = append(late, time.Since(ctx.Now()))
			return nil
		})
	})
	kit.StartLocal(b, w)
	const together = 50
	for b.Loop() {
		runs := kit.StartRuns(b, c, wf, together)
		kit.CheckResults(b, runs, func(i int) int { return i })
	}
	slices.Sort(late)
	at := func(q float64) float64 { return float64(late[int(q*float64(len(late)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(len(late)), "timers")
}
