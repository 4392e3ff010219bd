package operations

import (
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Groups whose first runs are in a queue that no worker serves do not hold up the keys of another queue, although they
// stand before them in the line, and are many more than the worker has slots.
func TestGroupsThatNobodyServes(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 2, PollInterval: time.Hour})
	kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	for i := range 60 {
		if _, err := kagzi.Start(ctx, c, wf, i, kagzi.Queue("nobody's"), kagzi.Group(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	kit.StartWorker(t, w)
	await.True(t, "the groups stand in the line", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.run_keys
			WHERE available_at < 'infinity'`) == 60
	})
	var runs []*kagzi.Run[int]
	for i := range 5 {
		run, err := kagzi.Start(ctx, c, wf, i, kagzi.Key(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	for _, run := range runs {
		if _, err := run.Result(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
