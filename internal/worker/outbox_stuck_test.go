package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
)

// TestOutboxIsTriedAgain has two writes of a run whose row is locked share a flush with one that the server refuses. So
// the writes of each run are flushed alone: both writes of the locked run are requeued, and written in one flush.
func TestOutboxIsTriedAgain(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	child := kagzi.Define[int, int]("child", kagzi.Queue("kids"))
	starts, refused := kagzi.Define[int, int]("starts"), kagzi.Define[int, int]("refused", kit.NoRetry)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, starts, func(ctx kagzi.Context, _ int) (int, error) {
		if _, err := kagzi.StartChild(ctx, "one", child, 1); err != nil {
			return 0, err
		}
		_, err := kagzi.RunChild(ctx, "two", child, 2)
		return 0, err
	})
	kagzi.Handle(w, refused, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.Do(ctx, "refused", func(context.Context) error { return nil })
	})
	dbtest.Exec(t, db.Pool,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`)
	dbtest.Exec(t, db.Pool, `CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW
		WHEN (NEW.step_id = 'refused') EXECUTE FUNCTION refuse()`)
	run, err := kagzi.Start(ctx, c, starts, 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := kagzi.Start(ctx, c, refused, 1)
	if err != nil {
		t.Fatal(err)
	}
	var flushes atomic.Int64
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before flush" {
			flushes.Add(1)
		}
	})
	s := newHeldSession(t, w)
	s.HoldRetries()
	s.Claim(ctx, 2)
	both := []worker.HeldExecution{await.Receive(t, s.Come), await.Receive(t, s.Come)}
	starting := both[0]
	if kagzi.RunID(starting.Run()) != run.ID() {
		starting = both[1]
	}
	waitWrites(t, starting, 2)
	tx := dbtest.BeginWith(t, db.Pool, kit.LockRun, string(run.ID()))
	s.Flush(both...)
	if starting != await.Receive(t, s.Again) {
		t.Fatal("another execution than the locked run's comes again")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	flushes.Store(0)
	s.Flush(starting)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`,
		string(run.ID())); n != 2 || flushes.Load() != 1 {
		t.Errorf("%d starts are recorded, in %d flushes", n, flushes.Load())
	}
	flushAll(t, s)
	if _, err := other.Result(ctx); !errors.Is(err, kind.Database) {
		t.Errorf("the run whose record was refused: %v", err)
	}
}
