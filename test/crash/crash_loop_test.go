//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// mostRecoveries is how often a run may lose its worker before it becomes a crash-loop suspect.
const mostRecoveries = 20

// A run that has lost its worker too often without progress is quarantined. Other runs continue.
func TestCrashLoopIsQuarantined(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	poison := kit.StartRuns(t, c, oneStep, 1)[0]
	kit.LoseRun(t, db, poison.ID(), mostRecoveries)
	others := kit.StartRuns(t, c, triple, 20)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{PollInterval: 100 * time.Millisecond}))
	kit.CheckResults(t, others, tripleResult)
	// From its third recovery on it waits first, minutes by now.
	await.True(t, "the poison run waits", func() bool {
		info, err := poison.Info(t.Context())
		return err == nil && info.Status == kagzi.StatusPending && info.WaitingOn == "recovery" && info.Recoveries == mostRecoveries+1 && time.Until(info.AvailableAt) > 3*time.Minute
	})
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(poison.ID()))
	_, err := poison.Result(kit.Context(t))
	var failed *kagzi.RunError
	if !errors.As(err, &failed) || failed.Kind != kind.CrashLoop || failed.Status != kagzi.StatusFailed {
		t.Errorf("got %v, want kind crash_loop", err)
	}
}

// A run that has recorded a step since its recoveries began is no suspect and continues.
func TestProgressEndsACrashLoop(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	run := kit.StartRuns(t, c, triple, 1)[0]
	kit.LoseRun(t, db, run.ID(), mostRecoveries+5)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now()`)
	dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt, first_attempt, output, started_at, finished_at)
		SELECT run_id, 'one', 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1, convert_to(to_json($1::text)::text, 'UTF8'), now(), now() FROM kagzi.workflow_runs`, kit.Link("0", "one"))
	file := filepath.Join(t.TempDir(), "l")
	kit.StartLocal(t, localWorker(t, c, file, kagzi.WorkerConfig{}))
	kit.CheckResults(t, []*kagzi.Run[string]{run}, tripleResult)
	if n := countIn(t, file, "BEGIN"); n != 2 {
		t.Errorf("%d steps were executed, want the 2 that were not recorded", n)
	}
	if info, err := run.Info(t.Context()); err != nil || info.Recoveries != 0 {
		t.Errorf("recoveries %d, %v; want 0", info.Recoveries, err)
	}
}

// A worker executes at most one crash-loop suspect at a time, beside the other runs. The next suspect begins when that one has
// ended, although it was due before and nobody polls.
func TestSuspectsRunOneAtATime(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, int]("suspect")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
	const suspects = 3
	begin, end := make(chan int, suspects), make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		return n, kagzi.Do(ctx, "s", func(ctx context.Context) error {
			if n < suspects {
				begin <- n
				await.Opened(t, end)
			}
			return nil
		})
	})
	runs := kit.StartRuns(t, c, wf, 15)
	for _, r := range runs[:suspects] {
		kit.LoseRun(t, db, r.ID(), 3)
	}
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now()`)
	kit.StartLocal(t, w)
	kit.CheckResults(t, runs[suspects:], func(i int) int { return suspects + i })
	for i := range suspects {
		select {
		case <-begin:
		case <-time.After(await.Patience):
			t.Errorf("suspect %d has no turn", i+1)
		}
		await.True(t, "the other suspects are due", func() bool {
			return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING' AND available_at < now() - interval '20 ms'`) == suspects-1-i
		})
		if len(begin) > 0 {
			t.Error("two suspects are under way at once")
		}
		select {
		case end <- struct{}{}:
		case <-time.After(await.Patience):
		}
	}
	kit.CheckResults(t, runs[:suspects], func(i int) int { return i })
}

// A run kills its process again and again, and a supervisor starts the next process. The other runs complete, and the suspect is
// executed at growing intervals.
func TestRunThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClient(t, db.Pool)
	poison := kit.StartRuns(t, c, oneStep, 1)[0] // alone in having a step that is not transactional
	spec := workerSpec{DSN: db.DSN, Ledger: filepath.Join(t.TempDir(), "l"), Config: kit.Quick, Point: "during step", Nth: 1, Signal: syscall.SIGKILL}
	died := 0
	next := func() *process {
		dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour' WHERE status <> 'OFFLINE'`) // no need to wait
		return startProcess(t, spec)
	}
	for range suspectFrom {
		next().killed(t)
		died++
	}
	others := kit.StartRuns(t, c, oneTx, 20)
	p := next()
	await.True(t, "the others complete", func() bool {
		select {
		case <-p.done:
			p.killed(t)
			died++
			p = next()
		default:
		}
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`) == len(others)
	})
	kit.CheckResults(t, others, func(i int) string { return kit.Link(fmt.Sprint(i), "one") })
	await.True(t, "the poison run is a suspect", func() bool {
		info, err := poison.Info(t.Context())
		if err != nil || info.Status.Ended() {
			t.Fatalf("the poison run is %s, %v", info.Status, err)
		}
		return info.Recoveries >= suspectFrom
	})
	t.Logf("%d processes died of it", died)
}

const suspectFrom = 3 // recoveries
