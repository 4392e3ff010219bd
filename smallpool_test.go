package kagzi

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestStepsOnASmallPool: a hundred runs whose steps use the worker's own pool of four connections wait for each other, and
// the worker for them. All complete; that the pool is exhausted is said, and is not taken for a database that is away.
func TestStepsOnASmallPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: newTestClient(t, db.Pool)}
	pool := openPool(t, db.DSN, 4)
	c, logged := loggedClient(t, pool)
	wf := Define[int, int]("greedy")
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (int, error) {
		return n, Do(ctx, "query", func(ctx context.Context) error {
			_, err := pool.Exec(ctx, `SELECT pg_sleep(0.5)`)
			return err
		})
	})
	calls := make([]Call, 100)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := k.c.StartMany(k.ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	startWorker(t, w)
	for _, s := range started {
		k.waitStatus(s.ID, StatusCompleted)
	}
	logged.wantLine(t, "the pool is small", "pool_max_conns=4", "max_concurrent=100")
	logged.wantLine(t, "no connection of the pool is free", "all 4 are in use")
	if logged.has("does not answer") || logged.has("is back") {
		t.Errorf("an exhausted pool was taken for an outage:\n%s", logged)
	}
}
