package operations_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// The steps of a hundred runs use the worker's own pool of four connections, so they wait for each other, and the
// worker waits for them. All complete. The log says that the pool is exhausted, and the worker does not take that for
// an outage.
func TestStepsOnASmallPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	pool := dbtest.OpenPool(t, db.DSN, dbtest.Conns(4))
	openAll(t, pool) // on a busy machine, opening one beside the steps may take longer than a call waits
	c, logged := kit.LoggedClient(t, pool)
	wf := kagzi.Define[int, int]("greedy")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		return n, kagzi.Do(ctx, "query", func(ctx context.Context) error {
			_, err := pool.Exec(ctx, `SELECT pg_sleep(0.5)`)
			return err
		})
	})
	calls := make([]kagzi.Call, 100)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	kit.StartWorker(t, w)
	for _, s := range started {
		k.WaitStatus(s.ID, kagzi.StatusCompleted)
	}
	logged.WantLine(t, "the pool is small", "pool_max_conns to at least 10,", "pool_max_conns=4", "max_concurrent=100")
	logged.WantLine(t, "no connection of the pool is free", "all 4 are in use")
	if logged.Has("does not answer") || logged.Has("is back") {
		t.Errorf("an exhausted pool was taken for an outage:\n%s", logged)
	}
}

// openAll opens all connections of the pool.
func openAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}
