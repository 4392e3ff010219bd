package checkup_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/kind"
)

// With a wrong connection string, Health, the probe, calls, Migrate and Worker.Run say what to correct. They do not say
// that workers go on by themselves if Run has refused to start.
func TestWrongConnectionString(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for _, tt := range []struct {
		name   string
		change func(*url.URL)
		check  string // what Health says
		call   string // what errors say
		waits  bool   // Run waits until the database is there
	}{
		{"database", func(u *url.URL) { u.Path = "/nonsense" }, "the server has no such database (SQLSTATE 3D000). " +
			"Correct the database in the pool's connection string", "correct the database in", false},
		{"user", func(u *url.URL) { u.User = url.UserPassword("nobody", "x") }, "the server refuses the user or the " +
			"password (SQLSTATE 28", "correct user and password in", false},
		{
			"password", func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") },
			"the server refuses the user or the password (SQLSTATE 28P01)", "correct user and password in", false,
		},
		{
			"TLS", func(u *url.URL) { u.RawQuery = "sslmode=require" }, "the server refuses TLS. Correct sslmode",
			"correct sslmode in", true,
		},
		{"port", func(u *url.URL) { u.Host = "127.0.0.1:1" }, "refused", "refused", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(db.DSN)
			if err != nil || u.User == nil {
				t.Fatalf("INVALID: the server's address is %s: %v", db.DSN, err)
			}
			tt.change(u)
			pool, err := pgxpool.New(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			c := newClient(t, pool)
			for _, report := range []health.Report{
				examine(t, c),
				wantProbe(t, admin.New(c).Readiness(), http.StatusServiceUnavailable, health.Unhealthy),
			} {
				wantHealth(t, report, "database", health.Unhealthy, tt.check)
				if got := strings.Contains(report.Check("database").Detail, "go on by themselves"); got != tt.waits {
					t.Errorf("it says that workers go on: %t; %s", got, report.Check("database").Detail)
				}
				if text := report.Check("database").Detail; strings.Contains(text, "nonsense") ||
					strings.Contains(text, "nobody") {
					t.Errorf("a name is in %q", text)
				}
			}
			wf := kagzi.Define[int, int]("wf")
			_, starting := kagzi.Start(t.Context(), c, wf, 1)
			_, getting := c.Get(t.Context(), kagzi.ID("x"))
			errs := map[string]error{"Start": starting, "Get": getting, "Migrate": kagzi.Migrate(t.Context(), pool)}
			if !tt.waits {
				errs["Run"] = runWorker(t, c, wf)
			}
			for name, err := range errs {
				if err == nil || strings.Count(err.Error(), tt.call) == 0 || !tt.waits &&
					strings.Count(err.Error(), tt.call) != 1 || !strings.HasPrefix(err.Error(), "kagzi: ") {
					t.Errorf("%s: %v; want %q", name, err, tt.call)
				}
				if k := kagzi.KindOf(err); k != kind.Database && k != kind.Network {
					t.Errorf("%s: %v is of kind %s", name, err, k)
				}
			}
		})
	}
}

// runWorker returns the error of a worker of c that refuses to start.
func runWorker(t *testing.T, c *kagzi.Client, wf kagzi.Workflow[int, int]) error {
	t.Helper()
	w, err := kagzi.NewWorker(c, kagzi.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { return 0, nil })
	return w.Run(context.WithoutCancel(t.Context()))
}

// A closed pool, a user who may not connect, and a database without the tables are named as such.
func TestWrongPoolOrRights(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[int, int]("wf")
	want := func(t *testing.T, c *kagzi.Client, check, detail, call string) {
		t.Helper()
		wantHealth(t, examine(t, c), check, health.Unhealthy, detail)
		wantHealth(t, wantProbe(t, admin.New(c).Readiness(), http.StatusServiceUnavailable, health.Unhealthy), check,
			health.Unhealthy, detail)
		_, starting := kagzi.Start(t.Context(), c, wf, 1)
		for name, err := range map[string]error{"Start": starting, "Run": runWorker(t, c, wf)} {
			if err == nil || strings.Count(err.Error(), call) != 1 {
				t.Errorf("%s: %v; want %q", name, err, call)
			}
		}
	}
	t.Run("Closed", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		c := newClient(t, pool)
		pool.Close()
		want(t, c, "database", "the pool was closed. Give NewClient a pool that stays open until its workers "+
			"have ended.", "closed pool: give NewClient a pool that stays open")
	})
	t.Run("Connect", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.AsOwner())
		role := dbtest.Role(t, db)
		name := db.Pool.Config().ConnConfig.Database
		dbtest.Exec(t, db.Pool, `ALTER ROLE `+role+` LOGIN PASSWORD 'right'`)
		dbtest.Exec(t, db.Pool, `REVOKE CONNECT ON DATABASE `+name+` FROM PUBLIC`)
		t.Cleanup(func() {
			if _, err := db.Pool.Exec(context.Background(), `GRANT CONNECT ON DATABASE `+name+
				` TO PUBLIC`); err != nil {
				t.Error(err)
			}
		})
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "right")
		pool, err := pgxpool.New(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		want(t, newClient(t, pool), "database", "(SQLSTATE 42501). GRANT CONNECT ON DATABASE to the user.",
			"GRANT CONNECT ON DATABASE")
	})
	t.Run("AnotherDatabase", func(t *testing.T) {
		t.Parallel()
		want(t, newClient(t, dbtest.Pool(t, dbtest.Empty())), "schema", "call kagzi.Migrate, or connect to the "+
			"database that has it", "or connect to the database that has it")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		want(t, newClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only", "on"))),
			"writable", "connect to the primary (target_session_attrs=read-write)",
			"connect to the primary (target_session_attrs=read-write)")
	})
	t.Run("Rights", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		role := dbtest.Role(t, db)
		dbtest.Exec(t, db.Pool, `REVOKE INSERT ON kagzi.workers FROM `+role)
		c := newClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
		wantHealth(t, examine(t, c), "writable", health.Healthy, "this user may make them") // a client needs no more
		if err := runWorker(t, c, wf); err == nil || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("Run: %v", err)
		}
		wantHealth(t, examine(t, c), "writable", health.Unhealthy, "INSERT on kagzi.workers")
	})
}
