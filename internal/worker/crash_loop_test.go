package worker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
)

// TestRunsThatNeverBeganAreNoCrashLoop lets worker after worker die while it executes one run and others wait in its
// memory. Only the one that was executed is quarantined. A crash-loop suspect that no worker has begun is not taken for
// one that kills them: it comes before those that died more often, and ends.
func TestRunsThatNeverBeganAreNoCrashLoop(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const n = 5
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1})
	begun, open := make(chan int, 1000), make(chan struct{})
	var executed [n]atomic.Int32
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(_ kagzi.Context, i int) (int, error) {
		executed[i].Add(1)
		if i == 0 {
			begun <- i
			await.Opened(t, open)
		}
		return i, nil
	})
	runs := kit.StartRuns(t, c, wf, n)
	poison, info := runs[0], kagzi.RunInfo{}
	for died := 0; !info.Status.Ended() && died < 200; died++ {
		dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() - CASE WHEN run_id = $1
			THEN interval '2 s' ELSE interval '1 s' END
			WHERE status IN ('PENDING', 'RUNNING')`, string(poison.ID()))
		s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
		if err != nil {
			t.Fatal(err)
		}
		s.Claim(t.Context(), n)
		for s.Executes() { // until it dies, and writes nothing but the end of a quarantined run
			select {
			case <-begun:
			case <-time.After(10 * time.Second):
				t.Fatalf("worker %d neither begins nor ends a run", died)
			case x := <-s.Come:
				if x.Run() != string(poison.ID()) {
					if died > 4 { // all are suspects, and only the first one has begun
						s.Flush(x)
					}
					continue
				}
				s.Flush(x)
			}
			break
		}
		if info, err = poison.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !info.Status.Ended() { // a busy machine gives it back before it begins, which is no recovery
		t.Fatalf("the run that kills its workers is %s after 200 deaths", info.Status)
	}
	if _, err := poison.Result(kit.Context(t)); info.Status != kagzi.StatusFailed || !errors.Is(err, kind.CrashLoop) {
		t.Errorf("the run that kills its workers: %s, %v", info.Status, err)
	}
	for i, r := range runs[1:] {
		if info, err := r.Info(t.Context()); err != nil || info.Recoveries > 3+int(executed[i+1].Load()) {
			t.Errorf("run %d: %d recoveries counted, %v", i+1, info.Recoveries, err)
		}
	}
	close(open)
	kit.StartLocal(t, w)
	kit.CheckResults(t, runs[1:], func(i int) int { return i + 1 })
	await.True(t, "no run is left", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE status IN ('PENDING', 'RUNNING', 'SLEEPING')`) == 0
	})
}
