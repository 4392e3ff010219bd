package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// A test that needs processes starts this test binary again with this variable set to a DSN.
const processVariable = "MIGRATIONS_TEST_DSN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(processVariable); dsn != "" {
		if err := upAlone(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Main(m)
}

// upAlone is the program that the started processes run.
func upAlone(dsn string) error {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	// Wait for the others: a process that comes late would find nothing to do.
	if _, err := pool.Exec(context.Background(), "SELECT pg_advisory_lock_shared(1), "+
		"pg_advisory_unlock_shared(1)"); err != nil {
		return err
	}
	if err := migrations.Up(context.Background(), pool); err != nil {
		return err
	}
	_, err = migrations.Check(context.Background(), pool)
	return err
}

// newerSchema makes the schema look like that of a migration after which this program does not work.
const newerSchema = "INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99999, " +
	"true, 99998)"

func up(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if err := migrations.Down(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantCheck(t *testing.T, pool *pgxpool.Pool, want error) {
	t.Helper()
	if _, err := migrations.Check(t.Context(), pool); !errors.Is(err, want) {
		t.Errorf("Check returned %v, want %v", err, want)
	}
}

// wantApplied fails the test unless each migration was applied exactly once and no lock is left.
func wantApplied(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	wantCheck(t, pool, nil)
	var applied int64
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM kagzi.schema_migrations WHERE version_id > 0").
		Scan(&applied); err != nil {
		t.Fatal(err)
	}
	if applied != migrations.Version() {
		t.Errorf("%d migrations were applied, want %d", applied, migrations.Version())
	}
	var locks int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
		WHERE locktype = 'advisory' AND datname = current_database()`).Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if locks != 0 {
		t.Errorf("%d advisory locks left", locks)
	}
}

func TestUp(t *testing.T) {
	t.Run("Once", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		up(t, pool)
		wantApplied(t, pool)
		up(t, pool)
		wantApplied(t, pool)
	})

	t.Run("WithOneConnectionInUse", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty(), dbtest.MaxConns(1))
		up(t, pool)
		wantApplied(t, pool)
	})

	t.Run("TenAtOnce", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Empty())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				pool, err := pgxpool.New(t.Context(), db.DSN)
				if err != nil {
					t.Error(err)
					return
				}
				defer pool.Close()
				if err := migrations.Up(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantApplied(t, db.Pool)
	})

	t.Run("TenProcessesAtOnce", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Empty())
		gate, err := db.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Release()
		if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				var said bytes.Buffer
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), processVariable+"="+db.DSN)
				cmd.Stdout, cmd.Stderr = &said, &said
				if err := cmd.Run(); err != nil {
					t.Errorf("%v: %s", err, said.String())
				}
			})
		}
		eventually(t, "ten processes wait", func() bool {
			var waiting int
			err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
				WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()`).Scan(&waiting)
			return err == nil && waiting == 10
		})
		if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wantApplied(t, db.Pool)
	})

	t.Run("InASchemaMadeByTheOwner", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Empty())
		role := db.Name + "_app"
		execute(t, db.Pool, "CREATE ROLE "+role)
		t.Cleanup(func() {
			ctx := context.Background()
			if _, err := db.Pool.Exec(ctx, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role); err != nil {
				t.Error(err)
			}
		})
		execute(t, db.Pool, "CREATE SCHEMA kagzi AUTHORIZATION "+role)
		cfg := db.Pool.Config()
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		up(t, pool)
		wantApplied(t, pool)
	})

	t.Run("TakesNoLockIfNothingIsPending", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		holdLock(t, db)
		up(t, db.Pool)
	})

	t.Run("WaitsForTheLockUntilCancelled", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Empty())
		release := holdLock(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := migrations.Up(ctx, db.Pool); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		wantCheck(t, db.Pool, migrations.ErrMissing)
		release()
		up(t, db.Pool)
		wantApplied(t, db.Pool)
	})

	t.Run("DespiteStatementTimeout", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Empty())
		execute(t, db.Pool, "ALTER DATABASE "+db.Name+" SET statement_timeout = '1ms'")
		pool, err := pgxpool.New(t.Context(), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		up(t, pool)
		wantApplied(t, db.Pool)
	})

	t.Run("RefusesANewerSchema", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.AsOwner())
		execute(t, pool, newerSchema)
		if err := migrations.Up(t.Context(), pool); !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("got %v, want ErrNewer", err)
		}
	})

	t.Run("ReportsABrokenSchema", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		execute(t, pool, "CREATE SCHEMA kagzi; CREATE TABLE kagzi.workflow_runs (taken int)")
		if err := migrations.Up(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "workflow_runs") {
			t.Errorf("got %v, want the table's name in it", err)
		}
		wantCheck(t, pool, migrations.ErrMissing)
		execute(t, pool, "DROP TABLE kagzi.workflow_runs")
		up(t, pool)
		wantApplied(t, pool)
	})
}

func TestDown(t *testing.T) {
	t.Run("AndUp", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		for range 2 {
			up(t, pool)
			wantApplied(t, pool)
			down(t, pool)
			wantCheck(t, pool, migrations.ErrMissing)
			var left int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = "+
				"'kagzi'::regnamespace").Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left != 0 {
				t.Errorf("%d relations left", left)
			}
		}
	})

	t.Run("OfNothing", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		down(t, pool)
		wantCheck(t, pool, migrations.ErrMissing)
	})
}

func TestCheck(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty())
			cfg := db.Pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			wantCheck(t, pool, migrations.ErrMissing)
			up(t, pool)
			wantCheck(t, pool, nil)
			execute(t, pool, newerSchema)
			wantCheck(t, pool, migrations.ErrNewer)
			execute(t, pool, "DELETE FROM kagzi.schema_migrations WHERE version_id > 0")
			wantCheck(t, pool, migrations.ErrMissing)
			execute(t, pool, "DROP SCHEMA kagzi CASCADE")
			wantCheck(t, pool, migrations.ErrMissing)
		})
	}

	t.Run("Older", func(t *testing.T) {
		t.Parallel()
		_, err := migrations.CheckVersion(t.Context(), dbtest.Pool(t), 99999)
		for _, want := range []string{"99999", fmt.Sprintf("version %d", migrations.Version()), "kagzi.Migrate"} {
			if !errors.Is(err, migrations.ErrOlder) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want ErrOlder and %q", err, want)
			}
		}
	})

	t.Run("NamesBothVersions", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.AsOwner())
		execute(t, pool, newerSchema)
		_, err := migrations.Check(t.Context(), pool)
		for _, want := range []string{"99999", fmt.Sprintf("version %d", migrations.Version()), "upgrade"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
	})

	t.Run("PassesOnOtherErrors", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		pool.Close()
		_, err := migrations.Check(t.Context(), pool)
		if err == nil || errors.Is(err, migrations.ErrMissing) {
			t.Errorf("got %v from a closed pool", err)
		}
	})
}

// holdLock holds the lock that migrations take until the test ends or release is called.
func holdLock(t *testing.T, db *dbtest.DB) (release func()) {
	t.Helper()
	conn := dbtest.Connect(t, db.DSN)
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", migrations.LockID); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(t.Context()) }
}

// patience is how long a test waits for an event that must come.
const patience = time.Minute

// eventually waits until holds returns true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("still not so: %s", what)
		case <-tick.C:
		}
	}
}
