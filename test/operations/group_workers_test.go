package operations

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// The runs of a group are in two queues, each with a worker of its own that does not poll. The worker that ends one
// tells the other's worker.
func TestGroupOfTwoWorkers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	wf := kagzi.Define[int, int]("wf")
	for _, q := range []string{"a", "b"} {
		w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN)),
			kagzi.WorkerConfig{Queue: q, PollInterval: time.Hour})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			return n, kagzi.Sleep(ctx, "nap", 5*time.Millisecond)
		})
		kit.StartWorker(t, w)
	}
	var runs []*kagzi.Run[int]
	for i := range 60 {
		run, err := kagzi.Start(ctx, c, wf, i, kagzi.Queue([]string{"a", "b"}[i*i%5%2]), kagzi.Group("g"))
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
