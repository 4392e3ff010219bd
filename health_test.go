package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// health is what Health says; an error ends the test.
func health(t *testing.T, c *Client) HealthReport {
	t.Helper()
	r, err := c.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantHealth fails the test unless the named check has the status and its detail contains all of the texts.
func wantHealth(t *testing.T, r HealthReport, name string, status HealthStatus, texts ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c HealthCheck) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q in %+v", name, r.Checks)
	}
	got := r.Checks[i]
	if got != r.Check(name) {
		t.Errorf("Check(%q) is %+v", name, r.Check(name))
	}
	for _, text := range texts {
		if !strings.Contains(got.Detail, text) {
			t.Errorf("%s: %q does not contain %q", name, got.Detail, text)
		}
	}
	if got.Status != status || status.worse(r.Status) {
		t.Errorf("%s is %s, want %s; the report is %s: %s", name, got.Status, status, r.Status, got.Detail)
	}
}

// insertRuns puts n runs into the table as some accident left them.
const insertRuns = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at, error_kind, error, external_id, finished_at, quarantined)
	SELECT gen_random_uuid(), $1, $2, $3, NULLIF($4, 0), $5, CASE WHEN $5 <> 'FAILED' THEN now() - $6::interval END, NULLIF($7, ''), $8::text,
		NULLIF($9, ''), CASE WHEN $5 = 'FAILED' THEN now() - $6::interval END,
		$7 IN ('crash_loop', 'nondeterminism', 'bad_input', 'unreadable')
	FROM generate_series(1, $10::int)`

type oddRuns struct {
	namespace, queue, typ, status, kind, err, id string
	version, n                                   int
	ago                                          time.Duration
}

func (o oddRuns) insert(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	execSQL(t, pool, insertRuns, cmp.Or(o.namespace, "default"), cmp.Or(o.queue, "default"), cmp.Or(o.typ, "ship"), o.version, cmp.Or(o.status, "PENDING"),
		o.ago, o.kind, o.err, o.id, max(1, o.n))
}

// insertWorker registers a worker of queue default that was heard of so long ago.
func insertWorker(t *testing.T, pool *pgxpool.Pool, namespace, status, typ string, silent time.Duration) {
	t.Helper()
	execSQL(t, pool, `
		INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, visibility_timeout, stale_after, active_count, max_concurrent, heartbeat_at)
		VALUES ($1, $2, 'default', ARRAY[$3], $4, '5 minutes', '1 minute', 3, 10, clock_timestamp() - $5::interval)`, uuid.New(), namespace, typ, status, silent)
}

func TestHealthOfWork(t *testing.T) {
	t.Parallel()
	const live, silent = 0, time.Hour
	for _, tt := range []struct {
		name   string
		runs   []oddRuns
		fleet  func(t *testing.T, pool *pgxpool.Pool)
		check  string
		status HealthStatus
		texts  []string
	}{
		{"Nothing", nil, nil, "workers", Healthy, []string{"No worker lives, and no work has waited for one"}},
		{"NothingDue", nil, nil, "queues", Healthy, []string{"No run is due"}},
		{"LiveWorkers", nil, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
			insertWorker(t, pool, "default", "DRAINING", "ship", live)
			insertWorker(t, pool, "default", "OFFLINE", "ship", silent)
			insertWorker(t, pool, "other", "ONLINE", "ship", live)
		}, "workers", Healthy, []string{"2 live, 1 draining; 6 of 20 slots were in use at the last heartbeats."}},
		{"SilentWorker", nil, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
			insertWorker(t, pool, "default", "ONLINE", "ship", silent)
		}, "workers", Degraded, []string{"1 live, and 1 silent", "coordinator"}},
		{"NoWorker", []oddRuns{{ago: time.Hour}}, nil, "workers", Unhealthy, []string{"No worker lives", "60 minutes", "start one"}},
		{"NoWorkerYet", []oddRuns{{ago: time.Second}}, nil, "workers", Healthy, nil},
		{"NoWorkerButDraining", []oddRuns{{ago: time.Hour}}, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "DRAINING", "ship", live)
		}, "workers", Unhealthy, []string{"1 draining"}},
		{"ExpiredLease", []oddRuns{{ago: time.Hour, status: "SLEEPING"}}, nil, "workers", Unhealthy, nil},
		{"FreshWork", []oddRuns{{ago: time.Second}}, nil, "queues", Healthy, []string{"1 run due"}},
		{"WorkToCome", []oddRuns{{ago: -time.Hour}}, nil, "queues", Healthy, []string{"No run is due"}},
		{"WorkOfOthers", []oddRuns{{ago: time.Hour, namespace: "other"}}, nil, "queues", Healthy, []string{"No run is due"}},
		{"NoHandler", []oddRuns{{ago: time.Hour, typ: "bill", n: 3, version: 2}, {ago: time.Second}}, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
		}, "queues", Degraded, []string{"No live worker takes 3 runs", `"bill"`, "of versions 2", "Handle"}},
		{"NoQueue", []oddRuns{{ago: time.Hour, queue: "typo"}, {queue: "another", namespace: "other"}}, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
		}, "queues", Degraded, []string{"No live worker takes 1 run", `"typo"`}},
		{"Overdue", []oddRuns{{ago: time.Hour, n: 1001}, {ago: time.Second, typ: "bill"}}, func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", live)
		}, "queues", Degraded, []string{"although there are workers", "more than 1000 runs", `"ship"`}},
		{"Schedules", []oddRuns{
			{ago: 10 * time.Second, status: "SCHEDULED", id: "soon"},
			{ago: time.Hour, status: "SCHEDULED", id: "other", namespace: "other"},
			{ago: time.Hour, status: "PAUSED", id: "by hand"},
			{ago: time.Hour, status: "PAUSED", id: "x", err: "x", namespace: "other"},
		}, nil, "schedules", Healthy, []string{"None is late"}},
		{"LateSchedule", []oddRuns{{ago: time.Hour, status: "SCHEDULED", id: "nightly"}}, nil, "schedules", Degraded, []string{`1 schedule is more than a minute late: "nightly"`, "coordinator"}},
		{"BrokenSchedule", []oddRuns{{status: "PAUSED", id: "nightly", err: "no such zone"}}, nil, "schedules", Degraded, []string{`paused for an error: "nightly" (no such zone)`}},
		{"Failed", []oddRuns{{status: "FAILED", kind: "timeout"}, {status: "FAILED", kind: "crash_loop", namespace: "other"}}, nil, "set-aside", Healthy, []string{"None."}},
		{
			"SetAside",
			[]oddRuns{{status: "FAILED", kind: "crash_loop", n: 3}, {status: "FAILED", kind: "bad_input", n: 2, ago: time.Hour}, {status: "FAILED", kind: "nondeterminism", ago: 50 * time.Hour}},
			nil, "set-aside", Degraded,
			[]string{"6 runs, 5 within the last day", "Resume", "crash_loop"},
		},
		{"SetAsideLongAgo", []oddRuns{{status: "FAILED", kind: "nondeterminism", ago: 50 * time.Hour}}, nil, "set-aside", Healthy, []string{"1 run, none within the last day", "nondeterminism"}},
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
			r := health(t, newTestClient(t, pool))
			wantHealth(t, r, tt.check, tt.status, tt.texts...)
			wantHealth(t, r, "database", Healthy)
			wantHealth(t, r, "schema", Healthy)
			wantHealth(t, r, "writable", Healthy)
			if r.At.IsZero() || r.Namespace != "default" || len(r.SetAside) > 5 {
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
	r := health(t, newTestClient(t, pool))
	if len(r.Queues) != 2 || len(r.SetAside) != 5 {
		t.Fatalf("report %+v", r)
	}
	bill, ship := r.Queues[0], r.Queues[1]
	if bill.Queue != "default" || bill.Workflow != "bill" || bill.Due != 3 || bill.More || bill.Workers != 1 || !slices.Equal(bill.Versions, []int{3}) || r.At.Sub(bill.Since) < time.Hour {
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
		wantHealth(t, health(t, newTestClient(t, dbtest.Pool(t, dbtest.Empty()))), "schema", Unhealthy, "Schema missing: call kagzi.Migrate")
	})
	t.Run("NewerSchema", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		old := newTestClient(t, pool)
		wantHealth(t, health(t, old), "schema", Healthy)
		execSQL(t, pool, `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 98)`)
		wantHealth(t, health(t, old), "schema", Degraded, "newer", "could not start again")
		wantHealth(t, health(t, old), "queues", Healthy)
		wantHealth(t, health(t, newTestClient(t, pool)), "schema", Unhealthy, "upgrade")
	})
	t.Run("NewerSchemaThatFits", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		execSQL(t, pool, `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 1)`)
		wantHealth(t, health(t, newTestClient(t, pool)), "schema", Healthy, "Version 99, with which this program")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		r := health(t, newTestClient(t, poolWith(t, db.DSN, "default_transaction_read_only", "on")))
		wantHealth(t, r, "writable", Unhealthy, "read-only", "target_session_attrs")
		wantHealth(t, r, "queues", Healthy)
	})
	t.Run("NoRights", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		wantHealth(t, health(t, newTestClient(t, poolWith(t, db.DSN, "role", "pg_monitor"))), "schema", Unhealthy, "This user lacks USAGE on schema kagzi", "doctor.Examine has the GRANT statements.")
	})
	t.Run("PoolClosed", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		c := newTestClient(t, pool)
		pool.Close()
		wantHealth(t, health(t, c), "database", Unhealthy, "the pool was closed")
	})
	t.Run("TableLocked", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		locking(t, pool, `LOCK TABLE kagzi.workers`)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r, err := newTestClient(t, pool).Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantHealth(t, r, "workers", Degraded, "Could not be looked at: no answer in time")
	})
	t.Run("PoolInUse", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.MaxConns(1))
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		r := health(t, newTestClient(t, pool))
		wantHealth(t, r, "pool", Degraded, "All 1 connections", "pool_max_conns")
		wantHealth(t, r, "queues", Healthy)
	})
}

func TestHealthWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := newTestClient(t, openPool(t, proxy.DSN(), 4))
	wantHealth(t, health(t, c), "database", Healthy)
	wantHealth(t, health(t, c), "pool", Healthy, "1 of 4 connections are in use, this look's included.")

	t.Run("Silent", func(t *testing.T) {
		proxy.Freeze()
		defer proxy.Unfreeze()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		r, err := c.Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantHealth(t, r, "database", Unhealthy, "no answer in time")
		if d := time.Since(begun); d > healthTimeout {
			t.Errorf("it took %v", d)
		}
		r, err = c.Health(context.WithoutCancel(t.Context()))
		wantHealth(t, r, "database", Unhealthy, "no answer in time")
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("Cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Health(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("Refused", func(t *testing.T) {
		if err := proxy.Close(); err != nil {
			t.Fatal(err)
		}
		c.store.Pool().Reset()
		r := health(t, c)
		wantHealth(t, r, "database", Unhealthy, "refused")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		cfg := c.store.Pool().Config().ConnConfig
		for _, secret := range []string{cfg.Password, cfg.Host, cfg.Database, "user="} {
			if secret != "" && strings.Contains(string(text), secret) {
				t.Errorf("%q is in %s", secret, text)
			}
		}
	})
}

// TestHealthDeadline asks for the health, within less than the longest wait for a connection, while the application has all
// of the pool's in use: Health leaves itself the time to open one of its own, and reports what is the matter with the pool.
func TestHealthDeadline(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.MaxConns(1))
	c := newTestClient(t, pool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), healthAcquire)
	defer cancel()
	r, err := c.Health(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Check("pool"); got.Status != Degraded { // what the other checks find in the rest of the time, a busy machine decides
		t.Errorf("the pool is %+v; %+v", got, r.Checks)
	}
}
