package operations

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Runs with keys that a long transaction starts begin when it commits, although claims have read the changes of later
// starts meanwhile.
func TestKeyedRunsOfALongTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
	kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kit.StartWorker(t, w)
	for range 5 {
		tx := dbtest.Begin(t, db.Pool)
		late, err := c.StartMany(ctx, []kagzi.Call{wf.With(1, kagzi.Key("a"))}, kagzi.InTx(tx))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			run, err := kagzi.Start(ctx, c, wf, i, kagzi.Key("b"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Result(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute) // long before the worker polls
		if _, err := kit.Find(t, c, wf, late[0].ID).Result(short); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}
