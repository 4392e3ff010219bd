package namespaces

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// The runs under way of a namespace that an operator drains count among MaxConcurrent.
func TestSlotsOfADrainingNamespace(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	hold := kagzi.DefineDo[int]("hold")
	begun, release := make(chan string, 10), make(chan struct{})
	var running, most atomic.Int64
	run(t, pool, Config{
		Worker: kagzi.WorkerConfig{MaxConcurrent: 1},
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, hold, func(ctx kagzi.Context, _ int) error {
				return kagzi.Do(ctx, "hold", func(ctx context.Context) error {
					if now := running.Add(1); now > most.Load() {
						most.Store(now)
					}
					defer running.Add(-1)
					begun <- c.Namespace()
					select {
					case <-release:
					case <-ctx.Done():
					}
					return ctx.Err()
				})
			})
			return nil
		},
	})
	a := elsewhere(t, pool, "a")
	first, err := kagzi.Start(t.Context(), a, hold, 1)
	if err != nil {
		t.Fatal(err)
	}
	await.Receive(t, begun)
	second, err := kagzi.Start(t.Context(), elsewhere(t, pool, "b"), hold, 1)
	if err != nil {
		t.Fatal(err)
	}
	online, _, err := admin.New(a).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"ONLINE"}})
	if err != nil || len(online) != 1 {
		t.Fatalf("%+v, error %v", online, err)
	}
	if err := admin.New(a).Workers.Drain(t.Context(), online[0].ID); err != nil {
		t.Fatal(err)
	}
	await.BecomesTrue(time.Second, func() bool { return most.Load() > 1 }) // it must not
	close(release)
	if _, err := first.Result(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := second.Result(t.Context()); err != nil {
		t.Error(err)
	}
	if n := most.Load(); n > 1 {
		t.Errorf("%d runs were under way at once, with one slot", n)
	}
}

// Serve may change its mind about a namespace that always has work.
func TestServeChangesItsMind(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	tick := kagzi.DefineDo[int]("tick")
	var no atomic.Bool
	var n atomic.Int64
	w, _ := run(t, pool, Config{
		Idle: 20 * time.Millisecond, Serve: func(string) bool { return !no.Load() },
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, tick, func(ctx kagzi.Context, i int) error {
				n.Add(1)
				if err := kagzi.Sleep(ctx, "s", 100*time.Millisecond); err != nil {
					return err
				}
				return kagzi.Continue(ctx, i+1)
			})
			return nil
		},
	})
	if _, err := kagzi.Start(t.Context(), elsewhere(t, pool, "a"), tick, 1); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it goes", func() bool { return n.Load() > 3 })
	no.Store(true)
	await.True(t, "the namespace is not served any more", func() bool {
		return len(w.Active()) == 0
	})
}

// deaf returns pools of a database: one behind a proxy that loses all notifications, and one beside it.
func deaf(t *testing.T) (behind *pgxpool.Pool, db *dbtest.DB) {
	db = dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	proxy.Impose(pgproxy.Trouble{Deaf: pgproxy.Everything})
	behind, err := pgxpool.New(t.Context(), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	return behind, db
}

// Changes of a namespace that is not served do not hide those of others.
func TestChangesOfAnUnservedNamespace(t *testing.T) {
	t.Parallel()
	behind, db := deaf(t)
	if _, err := db.Pool.Exec(t.Context(), `
		INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key)
		SELECT 'default', 'other', 'k' || i FROM generate_series(1, 10000) i`); err != nil {
		t.Fatal(err)
	}
	var j kit.Journal
	run(t, behind, Config{Handle: handlers(&j), Serve: func(ns string) bool { return ns != "other" }})
	c := elsewhere(t, db.Pool, "a")
	if _, err := kagzi.Start(t.Context(), c, nap, 0, kagzi.Key("k")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the run is executed", func() bool {
		return strings.Contains(j.String(), "napped")
	})
}

// A queued run of a schedule is found without notifications.
func TestQueuedRunWithoutNotifications(t *testing.T) {
	t.Parallel()
	behind, db := deaf(t)
	pool := db.Pool
	var j kit.Journal
	w, _ := run(t, behind, Config{Handle: handlers(&j), Idle: 20 * time.Millisecond})
	c := elsewhere(t, pool, "tenant")
	if err := c.Schedule(t.Context(), kagzi.Schedule{
		Name: "s", Every: time.Second, Run: listen.With(1), Overlap: kagzi.OverlapQueueOne,
	}); err != nil {
		t.Fatal(err)
	}
	count := func(where string) int {
		return int(dbtest.QueryOne[int64](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE `+where))
	}
	await.True(t, "a run is queued", func() bool {
		return count(`status = 'SLEEPING'`) == 1 && count(`available_at = 'infinity' AND status = 'PENDING'`) == 1
	})
	if _, err := pool.Exec(t.Context(), `UPDATE kagzi.schedules SET next_at = now() + interval '1 day'`); err != nil {
		t.Fatal(err)
	}
	await.True(t, "no worker", func() bool { return len(w.Active()) == 0 })
	id := dbtest.QueryOne[string](t, pool, `SELECT run_id::text FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`)
	if err := admin.New(c).Runs.Terminate(t.Context(), kagzi.RunID(id)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the queued run has begun", func() bool {
		return count(`status = 'SLEEPING'`) == 1
	})
}
