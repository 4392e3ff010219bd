package checkup_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

func TestHealthOfWork(t *testing.T) {
	t.Parallel()
	const live, silent = 0, time.Hour
	for _, tt := range []struct {
		name   string
		runs   []oddRuns
		fleet  func(t *testing.T, pool *pgxpool.Pool)
		check  string
		status health.Status
		texts  []string
	}{
		{"Nothing", nil, nil, "workers", health.Healthy, []string{"No worker is live, and no work has waited for one"}},
		{"NothingDue", nil, nil, "queues", health.Healthy, []string{"No run is due"}},
		{
			"LiveWorkers", nil, func(t *testing.T, pool *pgxpool.Pool) {
				insertWorker(t, pool, "default", "ONLINE", "ship", live)
				insertWorker(t, pool, "default", "ONLINE", "ship", live)
				insertWorker(t, pool, "default", "DRAINING", "ship", live)
				insertWorker(t, pool, "default", "OFFLINE", "ship", silent)
				insertWorker(t, pool, "other", "ONLINE", "ship", live)
			}, "workers", health.Healthy,
			[]string{"2 live, 1 draining; 6 of 20 slots were in use at the last heartbeats."},
		},
		{"SilentWorker", nil, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
			insertWorker(t, pool, "default", "ONLINE", "ship", silent)
		}, "workers", health.Degraded, []string{"1 live, and 1 silent", "coordinator"}},
		{
			"NoWorker",
			[]oddRuns{{ago: time.Hour}},
			nil, "workers", health.Unhealthy,
			[]string{"No worker is live", "60 minutes", "start one"},
		},
		{"NoWorkerYet", []oddRuns{{ago: time.Second}}, nil, "workers", health.Healthy, nil},
		{"NoWorkerButDraining", []oddRuns{{ago: time.Hour}}, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "DRAINING", "ship", live)
		}, "workers", health.Unhealthy, []string{"1 draining"}},
		{"ExpiredLease", []oddRuns{{ago: time.Hour, status: "SLEEPING"}}, nil, "workers", health.Unhealthy, nil},
		{"FreshWork", []oddRuns{{ago: time.Second}}, nil, "queues", health.Healthy, []string{"1 run due"}},
		{"WorkToCome", []oddRuns{{ago: -time.Hour}}, nil, "queues", health.Healthy, []string{"No run is due"}},
		{
			"WorkOfOthers",
			[]oddRuns{{ago: time.Hour, namespace: "other"}},
			nil, "queues", health.Healthy,
			[]string{"No run is due"},
		},
		{
			"NoHandler",
			[]oddRuns{{ago: time.Hour, typ: "bill", n: 3, version: 2}, {ago: time.Second}},
			func(t *testing.T, pool *pgxpool.Pool) {
				insertWorker(t, pool, "default", "ONLINE", "ship", live)
			}, "queues", health.Degraded,
			[]string{
				"No live worker takes 3 runs", `"bill"`,
				"(they are of version 2, and the workers of the queue do not have the workflow)",
				"start one that takes the queue and has code of the workflow.",
			},
		},
		{
			"NoQueue",
			[]oddRuns{{ago: time.Hour, queue: "typo"}, {queue: "another", namespace: "other"}},
			func(t *testing.T, pool *pgxpool.Pool) {
				insertWorker(t, pool, "default", "ONLINE", "ship", live)
			}, "queues", health.Degraded,
			[]string{
				"No live worker takes 1 run", `"typo"`,
				"(no worker has the queue)",
			},
		},
		{
			"Overdue",
			[]oddRuns{{ago: time.Hour, n: 1001}, {ago: time.Second, typ: "bill"}},
			func(t *testing.T, pool *pgxpool.Pool) {
				insertWorker(t, pool, "default", "ONLINE", "ship", live)
			}, "queues", health.Degraded,
			[]string{"although there are workers", "more than 1000 runs", `"ship"`},
		},
		{"Schedules", []oddRuns{
			{ago: 10 * time.Second, status: "SCHEDULED", id: "soon"},
			{ago: time.Hour, status: "SCHEDULED", id: "other", namespace: "other"},
			{ago: time.Hour, status: "PAUSED", id: "by hand"},
			{ago: time.Hour, status: "PAUSED", id: "x", err: "x", namespace: "other"},
		}, nil, "schedules", health.Healthy, []string{"None is late"}},
		{
			"LateSchedule",
			[]oddRuns{{ago: time.Hour, status: "SCHEDULED", id: "nightly"}},
			nil, "schedules",
			health.Degraded,
			[]string{`1 schedule is more than a minute late: "nightly"`, "coordinator"},
		},
		{
			"BrokenSchedule",
			[]oddRuns{{status: "PAUSED", id: "nightly", err: "no such zone"}},
			nil, "schedules",
			health.Degraded,
			[]string{`paused for an error: "nightly" (no such zone)`},
		},
		{"Failed", []oddRuns{{status: "FAILED", kind: "timeout"}, {
			status: "FAILED", kind: "crash_loop",
			namespace: "other",
		}}, nil, "quarantined", health.Healthy, []string{"None."}},
		{
			"Quarantined",
			[]oddRuns{{status: "FAILED", kind: "crash_loop", n: 3}, {
				status: "FAILED", kind: "bad_input", n: 2,
				ago: time.Hour,
			}, {status: "FAILED", kind: "nondeterminism", ago: 50 * time.Hour}},
			nil, "quarantined", health.Degraded,
			[]string{"6 runs, 5 within the last day", "and resume them", "crash_loop"},
		},
		{
			"QuarantinedLongAgo",
			[]oddRuns{{status: "FAILED", kind: "nondeterminism", ago: 50 * time.Hour}},
			nil,
			"quarantined", health.Healthy,
			[]string{"1 run, none within the last day", "nondeterminism"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t)
			for _, o := range tt.runs {
				o.insert(t, pool)
			}
			if tt.fleet != nil {
				tt.fleet(t, pool)
			}
			r := examine(t, newClient(t, pool))
			wantHealth(t, r, tt.check, tt.status, tt.texts...)
			wantHealth(t, r, "database", health.Healthy)
			wantHealth(t, r, "schema", health.Healthy)
			wantHealth(t, r, "writable", health.Healthy)
			if r.At.IsZero() || r.Namespace != "default" || len(r.Quarantined) > 5 {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestHealthNamesWhatIsDue(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	oddRuns{ago: time.Hour, typ: "bill", n: 2, version: 3}.insert(t, pool)
	oddRuns{ago: time.Minute, typ: "bill"}.insert(t, pool)
	oddRuns{ago: time.Minute, queue: "shop"}.insert(t, pool)
	oddRuns{status: "FAILED", kind: "bad_input", n: 7}.insert(t, pool)
	insertWorker(t, pool, "default", "ONLINE", "bill", 0)
	r := examine(t, newClient(t, pool))
	if len(r.Queues) != 2 || len(r.Quarantined) != 5 {
		t.Fatalf("report %+v", r)
	}
	bill, ship := r.Queues[0], r.Queues[1]
	if bill.Queue != "default" || bill.Workflow != "bill" || bill.Due != 3 || bill.More || bill.Workers != 1 ||
		!slices.Equal(bill.Versions, []int{3}) || r.At.Sub(bill.Since) < time.Hour {
		t.Errorf("bill %+v", bill)
	}
	if ship.Queue != "shop" || ship.Workflow != "ship" || ship.Due != 1 || ship.Workers != 0 || ship.Versions != nil {
		t.Errorf("ship %+v", ship)
	}
	if r.Workers.Live != 1 || r.Workers.OldestHeartbeat.IsZero() {
		t.Errorf("workers %+v", r.Workers)
	}
}

func TestHealthOfDatabase(t *testing.T) {
	t.Parallel()
	t.Run("NoSchema", func(t *testing.T) {
		t.Parallel()
		wantHealth(t, examine(t, newClient(t, dbtest.Pool(t, dbtest.Empty()))), "schema", health.Unhealthy,
			"Schema missing: call kagzi.Migrate")
	})
	t.Run("NewerSchema", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		old := newClient(t, pool)
		wantHealth(t, examine(t, old), "schema", health.Healthy)
		dbtest.Exec(t, pool, `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program)
			VALUES (99, true, 98)`)
		wantHealth(t, examine(t, old), "schema", health.Degraded, "newer", "could not start again")
		wantHealth(t, examine(t, old), "queues", health.Healthy)
		wantHealth(t, examine(t, newClient(t, pool)), "schema", health.Unhealthy, "upgrade")
	})
	t.Run("NewerSchemaThatFits", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		dbtest.Exec(t, pool, `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program)
			VALUES (99, true, 1)`)
		wantHealth(t, examine(t, newClient(t, pool)), "schema", health.Healthy, "Version 99, with which this program")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		r := examine(t, newClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only", "on"))))
		wantHealth(t, r, "writable", health.Unhealthy, "read-only", "target_session_attrs")
		wantHealth(t, r, "queues", health.Healthy)
	})
	t.Run("NoRights", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		wantHealth(t, examine(t, newClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", "pg_monitor")))),
			"schema", health.Unhealthy, "This user lacks USAGE on schema kagzi", "the doctor has the GRANT statements.")
	})
	t.Run("PoolClosed", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		c := newClient(t, pool)
		pool.Close()
		wantHealth(t, examine(t, c), "database", health.Unhealthy, "the pool was closed")
	})
	t.Run("TableLocked", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		dbtest.BeginWith(t, pool, `LOCK TABLE kagzi.workers`)
		// the other checks are answered in less, on any machine
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		r, err := admin.New(newClient(t, pool)).Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantHealth(t, r, "workers", health.Degraded, "Could not be checked: no answer in time")
	})
	t.Run("PoolInUse", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.MaxConns(1))
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		r := examine(t, newClient(t, pool))
		wantHealth(t, r, "pool", health.Degraded, "All 1 connections", "pool_max_conns")
		wantHealth(t, r, "queues", health.Healthy)
	})
}

func TestHealthWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pool := dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(4))
	c := newClient(t, pool)
	wantHealth(t, examine(t, c), "database", health.Healthy)
	wantHealth(t, examine(t, c), "pool", health.Healthy, "1 of 4 connections are in use, one of them by this check.")

	t.Run("Silent", func(t *testing.T) {
		proxy.Freeze()
		defer proxy.Unfreeze()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		r, err := admin.New(c).Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantHealth(t, r, "database", health.Unhealthy, "no answer in time")
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		r, err = admin.New(c).Health(context.WithoutCancel(t.Context()))
		wantHealth(t, r, "database", health.Unhealthy, "no answer in time")
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("Cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := admin.New(c).Health(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("Refused", func(t *testing.T) {
		if err := proxy.Close(); err != nil {
			t.Fatal(err)
		}
		pool.Reset()
		r := examine(t, c)
		wantHealth(t, r, "database", health.Unhealthy, "refused")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		cfg := pool.Config().ConnConfig
		for _, secret := range []string{cfg.Password, cfg.Host, cfg.Database, "user="} {
			if secret != "" && strings.Contains(string(text), secret) {
				t.Errorf("%q is in %s", secret, text)
			}
		}
	})
}

// TestHealthDeadline asks for the health, within less than the longest wait for a connection, while the application has
// all of the pool's in use: Health leaves itself the time to open one of its own, and reports what is the matter with
// the pool.
func TestHealthDeadline(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.MaxConns(1))
	c := newClient(t, pool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r, err := admin.New(c).Health(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// what the other checks find in the rest of the time, a busy machine decides
	if got := r.Check("pool"); got.Status != health.Degraded {
		t.Errorf("the pool is %+v; %+v", got, r.Checks)
	}
}

// Runs that wait because they were under way when their workers died are named, with the deaths and the next try.
func TestHealthNamesSuspects(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	c := newClient(t, pool)
	if r := examine(t, c); slices.ContainsFunc(r.Checks, func(c health.Check) bool { return c.Name == "suspects" }) {
		t.Errorf("without any: %+v", r.Check("suspects"))
	}
	oddRuns{n: 3}.insert(t, pool)
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET recoveries = 7, waiting_on = '[{"kind": "recovery"}]',
		available_at = now() + interval '10 minutes'
		WHERE run_id IN (SELECT run_id FROM kagzi.workflow_runs ORDER BY run_id LIMIT 2)`)
	wantHealth(t, examine(t, c), "suspects", health.Degraded, "2 runs may be what kills the workers",
		"(ship) was under way when 7 workers died, next try in ")
	dbtest.Exec(t, pool,
		`UPDATE kagzi.workflow_runs SET available_at = now() WHERE waiting_on = '[{"kind": "recovery"}]'`)
	wantHealth(t, examine(t, c), "suspects", health.Degraded, "next try as soon as")
}
