//go:build unix

package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestOutboxIsTriedAgain has two writes of a run whose row is locked share a flush with one that the server refuses, so that
// each run's are tried by themselves: those of the locked one come again, both, in one flush.
func TestOutboxIsTriedAgain(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	child := Define[int, int]("child", Queue("kids"))
	starts, refused := Define[int, int]("starts"), Define[int, int]("refused", noRetry)
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, starts, func(ctx Context, _ int) (int, error) {
		if _, err := StartChild(ctx, "one", child, 1); err != nil {
			return 0, err
		}
		_, err := RunChild(ctx, "two", child, 2)
		return 0, err
	})
	Handle(w, refused, func(ctx Context, _ int) (int, error) {
		return 0, Do(ctx, "refused", func(context.Context) error { return nil })
	})
	execSQL(t, db.Pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`)
	execSQL(t, db.Pool, `CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW WHEN (NEW.step_id = 'refused') EXECUTE FUNCTION refuse()`)
	run, err := Start(ctx, c, starts, 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Start(ctx, c, refused, 1)
	if err != nil {
		t.Fatal(err)
	}
	var flushes atomic.Int64
	failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before flush" {
			flushes.Add(1)
		}
	})
	s := newHeldSession(t, db, w)
	again := make(chan *execution, 100)
	s.retries = batch.New(batch.Config[*execution]{Flush: func(es []*execution) {
		for _, e := range es {
			again <- e
		}
	}})
	s.claim(ctx, 2)
	both := []*execution{receive(t, s.come), receive(t, s.come)}
	starting := both[0]
	if RunID(starting.runID) != run.ID() {
		starting = both[1]
	}
	s.enqueued(starting, 2)
	tx := locking(t, db.Pool, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, string(run.ID()))
	s.flush(both)
	if starting != receive(t, again) {
		t.Fatal("another execution than the locked run's comes again")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	flushes.Store(0)
	s.flush([]*execution{starting})
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, string(run.ID())); n != 2 || flushes.Load() != 1 {
		t.Errorf("%d starts are recorded, in %d flushes", n, flushes.Load())
	}
	s.flushAll()
	if _, err := other.Result(ctx); !errors.Is(err, KindDatabase) {
		t.Errorf("the run whose record was refused: %v", err)
	}
}
