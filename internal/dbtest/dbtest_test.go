package dbtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/migrations"
)

func TestMain(m *testing.M) { Main(m) }

// A recorder is a testing.TB that keeps its failures, for a test to compare.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Context() context.Context  { return context.Background() }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (r *recorder) Errorf(f string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(f, a...))
}

// finish runs the cleanups and returns the failures.
func (r *recorder) finish() []string {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	r.cleanups = nil
	return r.errors
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func exec(t testing.TB, db execer, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t testing.TB, db *DB, sql string) (n int) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// pendingRun inserts a run that violates no invariant.
const pendingRun = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
	VALUES (gen_random_uuid(), 'ns', 'q', 'w', 'PENDING', now())`

func TestDatabase(t *testing.T) {
	t.Run("IsMigratedAndEmpty", func(t *testing.T) {
		t.Parallel()
		for range 3 {
			r := &recorder{TB: t}
			db := Database(r)
			if _, err := migrations.Check(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
			if n := count(t, db, "SELECT count(*) FROM kagzi.workflow_runs"); n != 0 {
				t.Errorf("%d runs of another test", n)
			}
			exec(t, db.Pool, pendingRun)
			if got := r.finish(); len(got) > 0 {
				t.Error(got)
			}
		}
	})

	t.Run("IsNobodyElses", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		names := map[string]bool{}
		for range 16 {
			wg.Go(func() {
				db := Database(t)
				mu.Lock()
				defer mu.Unlock()
				if names[db.Name] {
					t.Errorf("%s was given out twice", db.Name)
				}
				names[db.Name] = true
				exec(t, db.Pool, pendingRun)
				if n := count(t, db, "SELECT count(*) FROM kagzi.workflow_runs"); n != 1 {
					t.Errorf("%d runs, want 1", n)
				}
			})
		}
		wg.Wait()
	})

	t.Run("DSNLeadsToIt", func(t *testing.T) {
		t.Parallel()
		db := Database(t)
		conn := Connect(t, db.DSN)
		if got := conn.Config().Database; got != db.Name {
			t.Errorf("DSN leads to %s, want %s", got, db.Name)
		}
	})

	t.Run("EndsLeftSessions", func(t *testing.T) {
		t.Parallel()
		r := &recorder{TB: t}
		db := Database(r)
		conn := Connect(t, db.DSN)
		exec(t, conn, "BEGIN")
		exec(t, conn, pendingRun) // holds locks that emptying the tables needs
		if got := r.finish(); len(got) > 0 {
			t.Error(got)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("the session is still there")
		}
	})

	t.Run("ReportsLeakedConnections", func(t *testing.T) {
		t.Parallel()
		r := &recorder{TB: t}
		db := Database(r, func(o *options) { o.patience = 50 * time.Millisecond })
		conn, err := db.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.finish(); len(got) != 1 || !strings.Contains(got[0], "1 connections") {
			t.Errorf("got %q", got)
		}
		conn.Release()
		db.Pool.Close()
	})

	t.Run("ToleratesAClosedPool", func(t *testing.T) {
		t.Parallel()
		r := &recorder{TB: t}
		Database(r).Pool.Close()
		if got := r.finish(); len(got) > 0 {
			t.Error(got)
		}
	})

	t.Run("EmptyHasNoTables", func(t *testing.T) {
		t.Parallel()
		if n := count(t, Database(t, Empty()), "SELECT count(*) FROM pg_namespace WHERE nspname = 'kagzi'"); n != 0 {
			t.Error("it has the schema kagzi")
		}
	})

	t.Run("MaxConns", func(t *testing.T) {
		t.Parallel()
		if n := Pool(t, MaxConns(3)).Config().MaxConns; n != 3 {
			t.Errorf("the pool takes %d connections", n)
		}
	})

	t.Run("ChecksTheInvariants", func(t *testing.T) {
		t.Parallel()
		for _, opts := range [][]Option{nil, {Unchecked()}} {
			r := &recorder{TB: t}
			exec(t, Pool(r, opts...), strings.Replace(pendingRun, "now()", "NULL", 1))
			if got := r.finish(); len(got) != 1-len(opts) {
				t.Errorf("got %q with %d options", got, len(opts))
			}
		}
	})
}

// A test's changes of the schema must not affect the next test.
func TestReset(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change string
		again  bool // whether the database can be used again
	}{
		{"Nothing", "SELECT 1", true},
		{"Rows", pendingRun, true},
		{"UserTables", "CREATE TABLE parent (id serial PRIMARY KEY); CREATE TABLE child (id int REFERENCES " +
			"parent)", true},
		{"View", "CREATE VIEW v AS SELECT 1 AS one", false},
		{"Function", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", false},
		{"Type", "CREATE TYPE mood AS ENUM ('good')", false},
		{"Schema", "CREATE SCHEMA other", false},
		{"Extension", "CREATE EXTENSION pg_trgm", false},
		{"DroppedIndex", "DROP INDEX kagzi.workflow_runs_claim", false},
		{"OtherIndexOfTheName", "DROP INDEX kagzi.workflow_runs_claim; CREATE INDEX workflow_runs_claim ON " +
			"kagzi.workflow_runs (run_id)", false},
		{"DroppedTable", "DROP TABLE kagzi.signals", false},
		{"Column", "ALTER TABLE kagzi.signals ADD COLUMN extra int", false},
		{"Constraint", "ALTER TABLE kagzi.signals ADD CHECK (sequence > 0)", false},
		{"Analyzed", pendingRun + "; ANALYZE kagzi.workflow_runs", false},
		{"ManyRows", "INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event) SELECT gen_random_uuid(), " +
			"gen_random_uuid(), 'ns', 'RESUMED' FROM generate_series(1, 10000)", true},
		{"Vacuumed", "VACUUM FREEZE kagzi.workflow_runs", true},
		{"TemporaryTable", "CREATE TEMPORARY TABLE mine (n int)", true},
		{"Storage", "ALTER TABLE kagzi.signals SET (fillfactor = 10)", false},
		{"Trigger", "CREATE FUNCTION kagzi.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE " +
			"TRIGGER t AFTER INSERT ON kagzi.signals EXECUTE FUNCTION kagzi.f()", false},
		{"Version", "INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (999, " +
			"true, 1)", false},
		{"Setting", "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET statement_timeout = " +
			"200'; END $$", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := shared.Get()
			if err != nil {
				t.Fatal(err)
			}
			r := &recorder{TB: t}
			db := Database(r, Unchecked())
			exec(t, Owner(t, db.Pool), tt.change)
			db.Pool.Close()
			again, err := s.reset(t.Context(), &cleaner{Conn: Connect(t, db.DSN)})
			if err != nil && tt.again {
				t.Error(err)
			}
			if again != tt.again {
				t.Errorf("can be used again: %v, want %v", again, tt.again)
			}
			if got := r.finish(); len(got) > 0 {
				t.Error(got)
			}
		})
	}

	t.Run("TakesLittleTime", func(t *testing.T) {
		r := &recorder{TB: t}
		db := Database(r)
		exec(t, db.Pool, pendingRun)
		before := time.Now()
		r.finish()
		t.Logf("checked and emptied in %v", time.Since(before))
		before = time.Now()
		Database(t)
		t.Logf("given out in %v", time.Since(before))
	})
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1/old?sslmode=disable": "postgres://u:p@h:1/new?sslmode=disable",
		"postgres://u@/old?host=%2Ftmp":          "postgres://u@/new?host=%2Ftmp",
		"host=h dbname=old":                      "host=h dbname=old dbname=new",
	} {
		got := withDatabase(dsn, "new")
		if got != want {
			t.Errorf("%s became %s, want %s", dsn, got, want)
		}
		if cfg, err := pgx.ParseConfig(got); err != nil || cfg.Database != "new" {
			t.Errorf("%s: %v", got, err)
		}
	}
}

func TestNamedServer(t *testing.T) {
	shared, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAGZI_TEST_DATABASE_URL", shared.dsn)
	s, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := s.dropAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	db := Database(t) // on the shared server, which must still run
	if n := count(t, db, "SELECT count(*) FROM pg_database WHERE starts_with(datname, '"+s.prefix+"')"); n != 0 {
		t.Errorf("%d databases left on the named server", n)
	}
}
