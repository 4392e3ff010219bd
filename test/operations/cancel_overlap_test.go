package operations

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run that was cancelled keeps its slot until its functions have returned.
func TestOverlapAfterCancel(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	if err := admin.New(c).Queues.Set(ctx, admin.QueueLimits{
		Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1},
		Hold: true,
	}); err != nil {
		t.Fatal(err)
	}
	wf := kagzi.Define[int, int]("wf")
	l := &ledger{now: map[string]int{}, most: map[string]int{}}
	began := make(chan int, 100)
	for range 2 {
		w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN)), kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			return n, kagzi.Do(ctx, "s", func(ctx context.Context) error {
				defer l.begin("a")()
				began <- n
				<-ctx.Done()
				<-time.After(5 * time.Millisecond) // as if it rolled something back
				return ctx.Err()
			})
		})
		kit.StartWorker(t, w)
	}
	var runs []*kagzi.Run[int]
	for i := range 20 {
		run, err := kagzi.Start(ctx, c, wf, i, kagzi.Key("a"))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	for range runs {
		n := await.Receive(t, began)
		if err := c.Cancel(ctx, runs[n]); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.most["a"]; n > 1 {
		t.Errorf("%d runs of a sequence were executed at a time", n)
	}
}
