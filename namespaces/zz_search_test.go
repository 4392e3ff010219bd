package namespaces

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
)

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
func TestZZChangesOfAnUnservedNamespace(t *testing.T) {
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
	await.TrueWithin(t, 10*time.Second, "the run is executed", func() bool {
		return strings.Contains(j.String(), "napped")
	})
}

// A queued run of a schedule is found without notifications.
func TestZZQueuedRunWithoutNotifications(t *testing.T) {
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
	await.TrueWithin(t, 10*time.Second, "the queued run has begun", func() bool {
		return count(`status = 'SLEEPING'`) == 1
	})
}

// A worker runs again, and its clients work between and after.
func TestZZRunAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	w, err := NewWorker(pool, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: testlog.New(t)}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Client("a")
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for i := range 5 {
		r, err := kagzi.Start(t.Context(), c, greet, "ada")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if _, err := r.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
		for k := range 10 { // ends while these namespaces begin
			if _, err := kagzi.Start(t.Context(), elsewhere(t, pool, fmt.Sprint("n", k)), greet, "b"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(i*20) * time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		r, err = kagzi.Start(t.Context(), c, greet, "bob")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := r.Result(t.Context())
			ended <- err
		}()
		run(t, pool, Config{Handle: handleGreet})
		if err := await.Receive(t, ended); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("goroutines", before, runtime.NumGoroutine())
}

// A small pool suffices for many namespaces.
func TestZZSmallPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := db.Pool.Config()
	cfg.MaxConns = 3
	small, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	logged := &testlog.Buffer{}
	run(t, small, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: logged.Logger()}})
	var runs []*kagzi.Run[string]
	for i := range 60 {
		r, err := kagzi.Start(t.Context(), elsewhere(t, db.Pool, fmt.Sprint("n", i)), greet, "b")
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	began := time.Now()
	for _, r := range runs {
		if _, err := r.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(time.Since(began))
	for _, line := range strings.Split(logged.String(), "\n") {
		if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
			t.Log(line)
		}
	}
}
