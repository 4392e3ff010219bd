//go:build unix

package kagzi

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestBacklogIsTriedAgain has two items of a run whose row is locked share a flush with one that the server refuses, so that
// each is tried by itself, and lets the pause of the first be over before it is the second's turn: both come again.
func TestBacklogIsTriedAgain(t *testing.T) {
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
	if _, err := Start(ctx, c, refused, 1); err != nil {
		t.Fatal(err)
	}
	s := newHeldSession(t, db, w)
	patient := make(chan *item, 100)
	s.patient = batch.New(batch.Config[*item]{Flush: func(items []*item) {
		for _, it := range items {
			patient <- it
		}
	}})
	s.claim(ctx, 2)
	var starting, other []*item
	for len(starting) < 2 || len(other) < 1 {
		if it := receive(t, s.items); it.e.run.RunID.String() == string(run.ID()) {
			starting = append(starting, it)
		} else {
			other = append(other, it)
		}
	}
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, string(run.ID())); err != nil {
		t.Fatal(err)
	}
	s.flush(slices.Clone(starting))
	first, second := receive(t, patient), receive(t, patient)
	flushes := 0
	w.failpoint = func(point string, _ uuid.UUID) {
		if point != "before flush" {
			return
		}
		if flushes++; flushes == 3 { // of the refused one
			waitFor(t, "the first item's pause is over", func() bool {
				first.e.mu.Lock()
				defer first.e.mu.Unlock()
				return !first.e.backlog.pausing
			})
		}
	}
	s.flush([]*item{first, other[0], second})
	if flushes != 3 {
		t.Fatalf("INVALID: %d flushes", flushes)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	s.flush([]*item{receive(t, patient), receive(t, patient)})
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, string(run.ID())); n != 2 {
		t.Errorf("%d starts are recorded", n)
	}
	s.flushAll()
}
