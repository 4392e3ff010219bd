package operations

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Claims that hand on a key, one after the other, put off no run without a key: it begins when it is due, and not once
// they end.
func TestHandedKeysPutOffNoOtherRun(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	if err := admin.New(c).Queues.Set(ctx,
		admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	const n = 3000
	wf := kagzi.Define[int, int]("wf")
	var line []kagzi.Call
	for i := range n {
		line = append(line, wf.With(i, kagzi.Key("a")))
	}
	if _, err := c.StartMany(ctx, line); err != nil {
		t.Fatal(err)
	}
	later, err := kagzi.Start(ctx, c, wf, n, kagzi.Delay(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 10, PollInterval: time.Hour, NoCoordinator: true})
	kagzi.Handle(w, wf, func(_ kagzi.Context, i int) (int, error) { return i, nil })
	kit.StartWorker(t, w)
	if _, err := later.Result(ctx); err != nil {
		t.Fatal(err)
	}
	if left := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
		WHERE finished_at IS NULL`); left == 0 {
		t.Error("the run without a key began when all others had ended")
	}
}
