package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
)

// remembering is a workflow whose first step is recorded before it begins: see recorded.
var remembering = kagzi.Define[int, int]("remembering", kit.NoRetry)

// handleRemembering registers remembering. calls counts the executions of the step; each is called after it in every
// execution.
func handleRemembering(w *kagzi.Worker, calls *atomic.Int64, each func(ctx kagzi.Context, n int) error) {
	kagzi.Handle(w, remembering, func(ctx kagzi.Context, n int) (int, error) {
		if _, err := kagzi.Step(ctx, "recorded", func(context.Context) (json.RawMessage, error) {
			calls.Add(1)
			return json.RawMessage("0"), nil
		}); err != nil {
			return 0, err
		}
		return n, each(ctx, n)
	})
}

// startLater starts n runs that are not due before recorded is called.
func startLater(t *testing.T, c *kagzi.Client, first, n int) []*kagzi.Run[int] {
	t.Helper()
	var runs []*kagzi.Run[int]
	for i := range n {
		run, err := kagzi.Start(kit.Context(t), c, remembering, first+i, kagzi.Delay(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return runs
}

// recorded writes rows as if the runs had begun and recorded the step. output is an SQL expression for the result.
func recorded(t *testing.T, pool *pgxpool.Pool, runs []*kagzi.Run[int], output string) {
	t.Helper()
	var ids []string
	for _, r := range runs {
		ids = append(ids, string(r.ID()))
	}
	dbtest.Exec(t, pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind,
		run_attempt, first_attempt, output, started_at, finished_at)
		SELECT run_id, 'recorded', 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1,
			convert_to(`+output+`, 'UTF8'), now(), now()
		FROM kagzi.workflow_runs WHERE run_id = ANY ($1::text[]::uuid[])`, ids)
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET started_at = now(), version = 1, available_at = now()
		WHERE run_id = ANY ($1::text[]::uuid[])`, ids)
}

// damage makes every result that is stored out of line unreadable, as a lost block of the disk would. repair undoes
// that.
func damage(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	kit.SetReadable(t, pool, "step_runs", false)
	if _, err := pool.Exec(t.Context(), `SELECT md5(output) FROM kagzi.step_runs`); err == nil {
		t.Fatal("nothing is damaged")
	}
}

func repair(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	kit.SetReadable(t, pool, "step_runs", true)
}

func nothingMore(kagzi.Context, int) error { return nil }

// slowPool is a pool of a user for whom the reads of the given runs' histories never end.
func slowPool(t *testing.T, db *dbtest.DB, slow ...*kagzi.Run[int]) *pgxpool.Pool {
	t.Helper()
	role, _, _ := kit.PoorClient(t, db, "")
	var ids []string
	for _, r := range slow {
		ids = append(ids, string(r.ID()))
	}
	dbtest.Exec(t, db.Pool, fmt.Sprintf(`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			IF run = ANY ('{%s}') THEN PERFORM pg_sleep(600); END IF;
			RETURN true;
		END $$`, strings.Join(ids, ",")))
	dbtest.Exec(t, db.Pool, `CREATE POLICY slow ON kagzi.step_runs USING (public.readable(run_id))`)
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.step_runs ENABLE ROW LEVEL SECURITY`)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	cfg.ConnConfig.RuntimeParams["role"] = role
	cfg.ConnConfig.RuntimeParams["client_connection_check_interval"] = "100ms" // so that abandoned queries end
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestManySlowHistoriesHoldUpNobodyElse wakes many runs whose histories take for ever to read: runs that are claimed
// while these are tried one by one complete before the last try.
func TestManySlowHistoriesHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	const n = 30
	db := dbtest.Database(t, dbtest.AsOwner())
	owner := kit.NewClient(t, db.Pool)
	slow := startLater(t, owner, 0, n)
	c := kit.NewClient(t, slowPool(t, db, slow...))
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{
		PollInterval: 100 * time.Millisecond,
		DrainTimeout: 100 * time.Millisecond,
	})
	handleRemembering(w, new(atomic.Int64), nothingMore)
	recorded(t, db.Pool, slow, `'0'`)
	begun := make(chan *worker.Session, 1)
	kit.HooksOf(t, w).Begun = func(s testhook.Session) { begun <- worker.SessionOf(s) }
	kit.StartWorker(t, w)
	s := await.Receive(t, begun)
	await.True(t, "they are tried one after the other", func() bool { return worker.HardHistories(s) > 0 })
	others := startLater(t, owner, 0, 5)
	recorded(t, db.Pool, others, `'0'`)
	kit.CheckResults(t, others, func(i int) int { return i })
	if worker.HardHistories(s) >= n {
		t.Error("the others had to wait until each slow history was tried")
	}
}

// TestUnreadableHistoryCostsNobodyElse wakes 1,000 runs at once, one of which has a history that takes for ever to
// read: the others complete, later runs complete, too, and the run's row says why it waits.
func TestUnreadableHistoryCostsNobodyElse(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	ctx := kit.Context(t)
	owner := kit.NewClient(t, db.Pool)
	runs := kit.StartRuns(t, owner, remembering, 1000)
	recorded(t, db.Pool, runs, `'0'`)
	bad := runs[500]
	pool := slowPool(t, db, bad)
	c, logged := kit.LoggedClient(t, pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1000})
	var calls atomic.Int64
	handleRemembering(w, &calls, nothingMore)
	kit.StartWorker(t, w)
	others := slices.Concat(runs[:500], runs[501:])
	kit.CheckResults(t, others, func(i int) int {
		if i < 500 {
			return i
		}
		return i + 1
	})
	late := startLater(t, owner, 0, 10)
	recorded(t, db.Pool, late, `'0'`)
	kit.CheckResults(t, late, func(i int) int { return i })
	kit.CheckResults(t, kit.StartRuns(t, owner, remembering, 10), func(i int) int { return i })
	if n := calls.Load(); n != 10 {
		t.Errorf("recorded steps were executed %d times", n-10)
	}
	logged.WantLine(t, "what a run records cannot be read or sealed", string(bad.ID()))
	await.True(t, "the run waits for its history", func() bool {
		info, err := bad.Info(ctx)
		return err == nil && info.Status == kagzi.StatusPending && info.WaitingOn.String() == "history"
	})
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.step_runs DISABLE ROW LEVEL SECURITY`)
	dbtest.Exec(t, db.Pool, `DROP POLICY slow ON kagzi.step_runs`)
	kit.CheckResults(t, []*kagzi.Run[int]{bad}, func(int) int { return 500 })
}

// TestUnreadableHistoryIsQuarantined claims a run with a damaged history again and again, after ever longer pauses,
// until it is quarantined. Once repaired and resumed, it goes on, and the failures are reset.
func TestUnreadableHistoryIsQuarantined(t *testing.T) {
	k := kit.New(t)
	runs := kit.StartRuns(t, k.Client, remembering, 1)
	id := runs[0].ID()
	recorded(t, k.Pool, runs, kit.OutOfLine)
	damage(t, k.Pool)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond})
	var calls atomic.Int64
	handleRemembering(w, &calls, func(ctx kagzi.Context, _ int) error { return kagzi.Sleep(ctx, "long", time.Hour) })
	kit.StartWorker(t, w)
	failures := func() int {
		return k.Count(`SELECT load_failures FROM kagzi.workflow_runs WHERE run_id = $1`, string(id))
	}
	for n := 1; n <= 3; n++ {
		await.True(t, "its history cannot be read once more", func() bool { return failures() >= n })
		k.WaitStatus(id, kagzi.StatusPending, "history")
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET load_failures = $2, available_at = now() WHERE run_id = $1
		AND status = 'PENDING'`, string(id), replay.MaxLoadFailures-1)
	re := kit.FailureOf(k, runs[0], kagzi.StatusFailed)
	if re.Kind != kind.Unreadable || !strings.Contains(re.Message, "toast") || !strings.Contains(re.Message, "Resume") {
		t.Errorf("failed with %v", re)
	}
	report, err := admin.New(k.Client).Health(k.Ctx)
	if err != nil || !slices.Contains(report.Quarantined, string(id)) {
		t.Errorf("Health names %v, %v as quarantined", report.Quarantined, err)
	}
	repair(t, k.Pool)
	k.Resume(id)
	k.WaitStatus(id, kagzi.StatusSleeping)
	if n := failures(); n != 0 || calls.Load() != 0 {
		t.Errorf("%d failures are remembered, and the step was executed %d times", n, calls.Load())
	}
}

// TestReadHistoryForgetsFailures makes a history readable again before its run is quarantined.
func TestReadHistoryForgetsFailures(t *testing.T) {
	k := kit.New(t)
	runs := kit.StartRuns(t, k.Client, remembering, 1)
	id := runs[0].ID()
	recorded(t, k.Pool, runs, kit.OutOfLine)
	damage(t, k.Pool)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond})
	var calls atomic.Int64
	handleRemembering(w, &calls, func(ctx kagzi.Context, _ int) error { return kagzi.Sleep(ctx, "long", time.Hour) })
	kit.StartWorker(t, w)
	await.True(t, "its history cannot be read", func() bool {
		return k.Count(`SELECT load_failures FROM kagzi.workflow_runs WHERE run_id = $1`, string(id)) > 1
	})
	repair(t, k.Pool)
	k.WaitStatus(id, kagzi.StatusSleeping)
	if n := k.Count(`SELECT load_failures FROM kagzi.workflow_runs WHERE run_id = $1`, string(id)); n != 0 ||
		calls.Load() != 0 {
		t.Errorf("%d failures are remembered, and the step was executed %d times", n, calls.Load())
	}
}

// TestCrashLoopIsQuarantinedWithoutItsHistory shows that a crash-loop suspect is quarantined without a read of its
// history, which may be what kills the workers.
func TestCrashLoopIsQuarantinedWithoutItsHistory(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	runs := kit.StartRuns(t, c, remembering, 1)
	recorded(t, db.Pool, runs, kit.OutOfLine)
	damage(t, db.Pool)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.step_runs SET finished_at = now() - interval '2 hours'`)
	kit.LoseRun(t, db.Pool, runs[0].ID(), worker.MaxRecoveries+1)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now()`)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	handleRemembering(w, new(atomic.Int64), nothingMore)
	kit.StartWorker(t, w)
	_, err := runs[0].Result(kit.Context(t))
	var failed *kagzi.RunError
	if !errors.As(err, &failed) || failed.Kind != kind.CrashLoop {
		t.Errorf("got %v, want kind crash_loop", err)
	}
	repair(t, db.Pool)
}

// TestLargeHistoriesShareTheMemory wakes more runs with long functions than there is memory for their histories: as
// many as fit are under way at a time, runs with small histories overtake them, and all complete.
func TestLargeHistoriesShareTheMemory(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const size, room, n = worker.SharedEach * 5 / 4, 4, 6
	large := kit.StartRuns(t, c, remembering, n)
	recorded(t, db.Pool, large, fmt.Sprintf(`'"' || repeat('x', %d) || '"'`, size))
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 2 * n, PollInterval: 100 * time.Millisecond})
	kit.HooksOf(t, w).MostLarge = room*size + size/2
	var calls, live, most atomic.Int64
	open := make(chan struct{})
	handleRemembering(w, &calls, func(ctx kagzi.Context, in int) error {
		if in >= n {
			return nil
		}
		most.Store(max(most.Load(), live.Add(1)))
		defer live.Add(-1)
		return kagzi.Do(ctx, "hold", func(context.Context) error {
			await.Opened(t, open)
			return nil
		})
	})
	kit.StartWorker(t, w)
	await.True(t, "there is no room for more", func() bool { return live.Load() == room })
	small := startLater(t, c, n, 10)
	recorded(t, db.Pool, small, `'0'`)
	kit.CheckResults(t, small, func(i int) int { return n + i })
	close(open)
	kit.CheckResults(t, large, func(i int) int { return i })
	if most.Load() > room {
		t.Errorf("%d large histories were in memory at once, want %d at the most", most.Load(), room)
	}
}

// TestUnreadableMessagesHoldUpTheirRunOnly sends messages to runs under way, one of which cannot be read: the other
// runs get theirs, and that run is yielded, and goes on once its message is readable.
func TestUnreadableMessagesHoldUpTheirRunOnly(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	ctx := kit.Context(t)
	owner := kit.NewClient(t, db.Pool)
	_, c, _ := kit.PoorClient(t, db, "")
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	cfg := kit.Quick
	cfg.MaxConcurrent = 20
	w := kit.NewWorker(t, c, cfg)
	busy, open := make(chan bool, 100), make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) { // keeps the run in memory
			return 0, kagzi.Do(ctx, "hold", func(ctx context.Context) error {
				busy <- true
				select {
				case <-open:
				case <-ctx.Done():
				}
				return ctx.Err()
			})
		})
		return kagzi.WaitSignal(ctx, kit.Approved)
	})
	runs := kit.StartRuns(t, owner, wf, 10)
	dbtest.Exec(t, db.Pool, fmt.Sprintf(`CREATE FUNCTION public.legible(run uuid) RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			IF run = '%s' THEN RAISE 'this cannot be read'; END IF;
			RETURN true;
		END $$`, runs[3].ID()))
	dbtest.Exec(t, db.Pool, `CREATE POLICY broken ON kagzi.signals USING (public.legible(run_id))`)
	kit.StartWorker(t, w)
	for range runs {
		await.Receive(t, busy)
	}
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.signals ENABLE ROW LEVEL SECURITY`)
	for _, r := range runs {
		if err := owner.Signal(ctx, r.ID(), kit.Approved.With("yes")); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "the run waits for its history", func() bool {
		info, err := runs[3].Info(ctx)
		return err == nil && info.Status == kagzi.StatusPending && info.WaitingOn.String() == "history"
	})
	await.True(t, "Health names the run", func() bool { // a busy machine does not answer each time
		report, err := admin.New(c).Health(ctx)
		check := report.Check("histories")
		return err == nil && check.Status == health.Degraded && strings.Contains(check.Detail, string(runs[3].ID()))
	})
	close(open)
	kit.CheckResults(t, slices.Concat(runs[:3], runs[4:]), func(int) string { return "yes" })
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.signals DISABLE ROW LEVEL SECURITY`)
	kit.CheckResults(t, runs[3:4], func(int) string { return "yes" })
	dbtest.Exec(t, db.Pool, `DROP POLICY broken ON kagzi.signals`)
}
