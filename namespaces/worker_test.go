package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
)

var greet = kagzi.Define[string, string]("greet")

// handleGreet handles greet, which says in which namespace it was executed.
func handleGreet(w *kagzi.Worker, c *kagzi.Client) error {
	kagzi.Handle(w, greet, func(_ kagzi.Context, name string) (string, error) {
		return "hello " + name + " of " + c.Namespace(), nil
	})
	return nil
}

// Runs of many namespaces are executed, each in its own, and namespaces without work have no worker afterwards.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.MaxConns(6))
	w, _ := run(t, pool, Config{Handle: handleGreet, Idle: 50 * time.Millisecond})
	var started []*kagzi.Run[string]
	for i := range campaign.Size(40, 1000) {
		c := elsewhere(t, pool, fmt.Sprint("tenant ", i))
		r, err := kagzi.Start(t.Context(), c, greet, "ada")
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, r)
	}
	for i, r := range started {
		if got, err := r.Result(t.Context()); err != nil || got != fmt.Sprint("hello ada of tenant ", i) {
			t.Errorf("%q, error %v", got, err)
		}
	}
	await.True(t, "no namespace has a worker", func() bool { return len(w.Active()) == 0 })
	workers := func() int64 { return dbtest.QueryOne[int64](t, pool, `SELECT count(*) FROM kagzi.workers`) }
	before := workers()
	if await.BecomesTrue(500*time.Millisecond, func() bool { return len(w.Active()) > 0 }) || workers() > before {
		t.Error("a namespace without work has got a worker again")
	}
}

// All namespaces share the slots, and one with little work does not wait for those with much.
func TestNamespacesShareSlots(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	const slots, heavy, runs = 4, 5, 300
	var running, most, done atomic.Int64
	work := kagzi.DefineDo[int]("work")
	w, stop := run(t, pool, Config{
		Worker: kagzi.WorkerConfig{MaxConcurrent: slots},
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, work, func(ctx kagzi.Context, n int) error {
				for now := running.Add(1); ; {
					if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
						break
					}
				}
				defer running.Add(-1)
				defer done.Add(1)
				return kagzi.Do(ctx, "work", func(context.Context) error { return nil })
			})
			return nil
		},
	})
	calls := make([]kagzi.Call, runs)
	for i := range calls {
		calls[i] = work.With(i)
	}
	for i := range heavy {
		if _, err := elsewhere(t, pool, fmt.Sprint("heavy ", i)).StartMany(t.Context(), calls); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "all heavy namespaces have a worker", func() bool { return len(w.Active()) == heavy })
	light, err := kagzi.Start(t.Context(), elsewhere(t, pool, "light"), work, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := light.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := done.Load(); n >= heavy*runs {
		t.Errorf("the light run has ended after all %d of the heavy namespaces", n)
	}
	await.True(t, "all runs have ended", func() bool { return done.Load() >= heavy*runs+1 })
	stop()
	if got := most.Load(); got > slots {
		t.Errorf("%d runs were under way at once, with %d slots", got, slots)
	}
}

// While a long step is under way, its lease is extended, and its namespace keeps its worker.
func TestLongStepInANamespace(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	long := kagzi.DefineDo[int]("long")
	begun, release := make(chan struct{}, 10), make(chan struct{})
	w, _ := run(t, pool, Config{
		Idle: 20 * time.Millisecond, Worker: kagzi.WorkerConfig{Heartbeat: 200 * time.Millisecond},
		Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
			kagzi.HandleDo(w, long, func(ctx kagzi.Context, _ int) error {
				return kagzi.Do(ctx, "long", func(ctx context.Context) error {
					begun <- struct{}{}
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			})
			return nil
		},
	})
	c, err := w.Client("tenant")
	if err != nil {
		t.Fatal(err)
	}
	r, err := kagzi.Start(t.Context(), c, long, 1)
	if err != nil {
		t.Fatal(err)
	}
	await.Receive(t, begun)
	// Most of the lease has passed. What is left is enough for a busy machine.
	left := dbtest.QueryOne[time.Time](t, pool, `UPDATE kagzi.workflow_runs
		SET available_at = available_at - interval '4 min' RETURNING available_at`)
	await.True(t, "the lease is extended", func() bool {
		return dbtest.QueryOne[bool](t, pool, `SELECT available_at > $1::timestamptz + interval '3 min'
			FROM kagzi.workflow_runs`, left)
	})
	if got := fmt.Sprint(w.Active()); got != "[tenant]" {
		t.Errorf("active: %s", got)
	}
	close(release)
	if _, err := r.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(begun); n != 0 {
		t.Errorf("the step was called %d times more", n)
	}
}

// If a process dies, another one finds its runs.
func TestDeathOfAWorkerOfNamespaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	behind := dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(10))
	stuck := kagzi.DefineDo[int]("stuck")
	begun := make(chan string, 10)
	cfg := func(name string) Config {
		return Config{
			Worker: kagzi.WorkerConfig{
				DrainTimeout: time.Millisecond, Coordinator: kagzi.CoordinatorConfig{StaleAfter: time.Second},
			},
			Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
				kagzi.HandleDo(w, stuck, func(ctx kagzi.Context, _ int) error {
					return kagzi.Do(ctx, "stuck", func(ctx context.Context) error {
						begun <- name + " in " + c.Namespace()
						if name == "second" {
							return nil
						}
						<-ctx.Done()
						return ctx.Err()
					})
				})
				return nil
			},
		}
	}
	run(t, behind, cfg("first"))
	for i := range 3 {
		if _, err := kagzi.Start(t.Context(), elsewhere(t, db.Pool, fmt.Sprint("tenant ", i)), stuck, 1); err != nil {
			t.Fatal(err)
		}
		if got, want := await.Receive(t, begun), fmt.Sprint("first in tenant ", i); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	proxy.Freeze()
	t.Cleanup(proxy.Unfreeze)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`) // no need to wait
	run(t, db.Pool, cfg("second"))
	var taken []string
	for range 3 {
		taken = append(taken, await.Receive(t, begun))
	}
	slices.Sort(taken)
	if got := fmt.Sprint(taken); got != "[second in tenant 0 second in tenant 1 second in tenant 2]" {
		t.Error(got)
	}
	proxy.Unfreeze()
}

// A namespace whose worker an operator has drained is not served again. The others are.
func TestDrainOfANamespace(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	logged := &testlog.Buffer{}
	w, _ := run(t, pool, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: logged.Logger()}})
	greeted := func(namespace string) *kagzi.Run[string] {
		t.Helper()
		r, err := kagzi.Start(t.Context(), elsewhere(t, pool, namespace), greet, "ada")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if _, err := greeted("a").Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := admin.New(elsewhere(t, pool, "a"))
	online, _, err := a.Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"ONLINE"}})
	if err != nil || len(online) != 1 {
		t.Fatalf("%+v, error %v", online, err)
	}
	if err := a.Workers.Drain(t.Context(), online[0].ID); err != nil {
		t.Fatal(err)
	}
	logged.WantLine(t, "was drained", "namespace=a")
	left := greeted("a")
	if _, err := greeted("b").Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "namespace a has no worker", func() bool { return !slices.Contains(w.Active(), "a") })
	if info, err := left.Info(t.Context()); err != nil || info.Status != kagzi.StatusPending {
		t.Errorf("%+v, error %v", info, err)
	}
}

// A worker serves the namespaces that Serve chooses.
func TestServe(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	only := func(name string) func(string) bool { return func(namespace string) bool { return namespace == name } }
	w, _ := run(t, pool, Config{Handle: handleGreet, Serve: only("b")})
	var runs []*kagzi.Run[string]
	for _, namespace := range []string{"a", "b"} {
		r, err := kagzi.Start(t.Context(), elsewhere(t, pool, namespace), greet, "ada")
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	if _, err := runs[1].Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.Active()); got != "[b]" {
		t.Error(got)
	}
	if all, err := List(t.Context(), pool); err != nil || fmt.Sprint(all) != "[a b]" {
		t.Errorf("%q, error %v", all, err)
	}
	if info, err := runs[0].Info(t.Context()); err != nil || info.Status != kagzi.StatusPending {
		t.Errorf("%+v, error %v", info, err)
	}
	run(t, pool, Config{Handle: handleGreet, Serve: only("a")})
	if _, err := runs[0].Result(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While the database is away, nothing is lost, and the worker goes on after it.
func TestOutageOfAllNamespaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	behind, err := pgxpool.New(t.Context(), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	logged := &testlog.Buffer{}
	run(t, behind, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: logged.Logger()}})
	for i := range 3 {
		if i > 0 {
			proxy.CutAll()
		}
		for _, namespace := range []string{"a", "b", fmt.Sprint("c", i)} {
			r, err := kagzi.Start(t.Context(), elsewhere(t, db.Pool, namespace), greet, "ada")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Result(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Old runs are deleted in all namespaces, also in those without a worker, and young ones are not.
func TestOldRunsOfAllNamespaces(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	for _, namespace := range []string{"a", "b", "other"} {
		for _, status := range []string{"COMPLETED", "FAILED"} {
			for _, age := range []string{"8 days", "31 days", "1 day"} {
				if _, err := pool.Exec(t.Context(), `
					INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status,
						finished_at, created_at)
					SELECT ('00000000-0000-7000-8000-' || lpad(to_hex((random() * 1e9)::bigint), 12, '0'))::uuid, $1,
						'default', 'greet', $2, now() - $3::interval, now() - $3::interval`, namespace, status,
					age); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run(t, pool, Config{Handle: handleGreet, Serve: func(namespace string) bool { return namespace != "other" }})
	left := func() string {
		return dbtest.QueryOne[string](t, pool, `SELECT string_agg(namespace_id || ' ' || n, ', ' ORDER BY namespace_id)
			FROM (SELECT namespace_id, count(*) AS n FROM kagzi.workflow_runs GROUP BY 1) x`)
	}
	await.True(t, "the old runs are deleted", func() bool { return left() == "a 3, b 3, other 6" })
}

func TestNewWorker(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	for _, tt := range []struct {
		name string
		pool *pgxpool.Pool
		cfg  Config
		want string
	}{
		{"no pool", nil, Config{Handle: handleGreet}, "pool is nil"},
		{"no Handle", pool, Config{}, "Handle is nil"},
		{"no handler", pool, Config{Handle: func(*kagzi.Worker, *kagzi.Client) error { return nil }}, "no handler"},
		{
			"a failing Handle", pool,
			Config{Handle: func(*kagzi.Worker, *kagzi.Client) error { return errors.New("no") }},
			"Config.Handle: no",
		},
		{
			"a namespace", pool,
			Config{Handle: handleGreet, Client: kagzi.ClientConfig{Namespace: "a"}},
			"leave it empty",
		},
		{
			"no coordinator", pool,
			Config{Handle: handleGreet, Worker: kagzi.WorkerConfig{NoCoordinator: true}},
			"NoCoordinator",
		},
		{
			"a bad worker", pool,
			Config{Handle: handleGreet, Worker: kagzi.WorkerConfig{MaxConcurrent: -1}},
			"MaxConcurrent",
		},
		{"a short time", pool, Config{Handle: handleGreet, Every: 1}, "Config.Every is 1ns"},
		{"a long time", pool, Config{Handle: handleGreet, Idle: 1 << 62}, "a hundred years"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewWorker(tt.pool, tt.cfg)
			kit.MustContain(t, err, tt.want)
		})
	}
	var none *Worker
	if err := none.Run(t.Context()); err == nil || none.Active() != nil {
		t.Error("a nil worker runs")
	}
	_, err := List(t.Context(), nil)
	kit.MustContain(t, err, "pool is nil")
	_, err = new(Worker).Client("a")
	kit.MustContain(t, err, "NewWorker")
	w, err := NewWorker(pool, Config{Handle: handleGreet})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Client("a:b")
	kit.MustContain(t, err, "contains ':'")
}

// Where Citus has distributed the tables, no statement reads all namespaces.
func TestNamespacesOnCitus(t *testing.T) {
	t.Parallel()
	cfg := dbtest.Pool(t).Config()
	dbtest.LooksLikeCitus(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w, err := NewWorker(pool, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: testlog.New(t)}})
	if err != nil {
		t.Fatal(err)
	}
	kit.MustContain(t, w.Run(t.Context()), "Citus", "a worker for each namespace")
	_, err = List(t.Context(), pool)
	kit.MustContain(t, err, "Citus")
}
