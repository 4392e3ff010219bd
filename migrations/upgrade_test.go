package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// Migrations of future programs, each of which follows ours. Our tables stay in use while they are applied.
const (
	addColumn = `
-- +kagzi OldestProgram {oldest}
-- +goose Up
ALTER TABLE kagzi.workflow_runs ADD COLUMN next integer NOT NULL DEFAULT 7;
-- +goose Down
ALTER TABLE kagzi.workflow_runs DROP COLUMN next;
`
	addIndex = `
-- +kagzi OldestProgram {oldest}
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS kagzi.workflow_runs_next;
CREATE INDEX CONCURRENTLY workflow_runs_next ON kagzi.workflow_runs (started_at, namespace_id);
-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS kagzi.workflow_runs_next;
`
	dropColumn = `
-- +kagzi OldestProgram {next}
-- +goose Up
ALTER TABLE kagzi.workflow_runs DROP COLUMN origin_run_id;
-- +goose Down
ALTER TABLE kagzi.workflow_runs ADD COLUMN origin_run_id uuid;
`
)

// this is the version of this program.
var this = migrations.Version()

// said returns a text with the version that comes n after this one.
func said(text string, n int64) string { return fmt.Sprintf(text, this+n) }

// one sends a statement, as the application or a worker would, on the table that migrations change.
const one = `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at)
	VALUES (gen_random_uuid(), 'ns', '{q}', 'w', 'COMPLETED', now())`

func upTo(t *testing.T, pool *pgxpool.Pool, texts ...string) {
	t.Helper()
	if err := migrations.UpFiles(t.Context(), pool, dbtest.NextMigrations(texts...)); err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction that the test ends, on a connection of its own.
func begin(t *testing.T, db *dbtest.DB, sql string) *pgx.Conn {
	t.Helper()
	conn := dbtest.Connect(t, db.DSN)
	for _, sql := range []string{"BEGIN", sql} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func scan[T any](t *testing.T, pool *pgxpool.Pool, sql string) (v T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// soon fails the test unless the statement ends within patience.
func soon(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := pool.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// If a reader blocks an ALTER TABLE, those who come after the ALTER TABLE must not wait.
func TestMigrationLetsOthersPass(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Empty())
	up(t, db.Pool)
	reader := begin(t, db, "SELECT FROM kagzi.workflow_runs LIMIT 1")
	done := make(chan error, 1)
	go func() {
		done <- migrations.UpFiles(t.Context(), db.Pool, dbtest.NextMigrations(addColumn))
	}()
	for range 3 {
		eventually(t, "the migration waits for the reader", func() bool {
			return scan[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d
				ON d.oid = l.database
				WHERE d.datname = current_database() AND l.mode = 'AccessExclusiveLock' AND NOT l.granted)`)
		})
		soon(t, db.Pool, one)
	}
	select {
	case err := <-done:
		t.Fatalf("INVALID: the migration has ended beside the reader: %v", err)
	default:
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := scan[int](t, db.Pool, "SELECT min(next) FROM kagzi.workflow_runs"); got != 7 {
		t.Errorf("the new column has %d", got)
	}
}

func TestMigrationWaitsForTablesUntilCancelled(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Empty())
	up(t, db.Pool)
	reader := begin(t, db, "SELECT FROM kagzi.workflow_runs LIMIT 1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- migrations.UpFiles(ctx, db.Pool, dbtest.NextMigrations(addColumn)) }()
	eventually(t, "the migration waits for the reader", func() bool {
		return scan[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.mode = 'AccessExclusiveLock' AND NOT l.granted)`)
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	upTo(t, db.Pool, addColumn)
}

// An index on a table in use is built while others use it. A build that is interrupted leaves an invalid index, which
// the next build must replace.
func TestIndexIsBuiltBesideTheWork(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Empty())
	up(t, db.Pool)
	states := `SELECT coalesce((SELECT CASE WHEN i.indisvalid THEN 'valid' ELSE 'invalid' END FROM pg_index i
		WHERE i.indexrelid = to_regclass('kagzi.workflow_runs_next')), 'none')`
	writer := begin(t, db, one)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- migrations.UpFiles(ctx, db.Pool, dbtest.NextMigrations(addIndex)) }()
	eventually(t, "the index is being built", func() bool { return scan[string](t, db.Pool, states) == "invalid" })
	soon(t, db.Pool, one)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("INVALID: the build was not broken off: %v", err)
	}
	eventually(t, "the broken build has ended", func() bool {
		return scan[int](t, db.Pool, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.locktype = 'advisory'`) == 0
	})
	if _, err := writer.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if got := scan[string](t, db.Pool, states); got != "invalid" {
		t.Fatalf("INVALID: the broken build has left an index that is %s", got)
	}
	upTo(t, db.Pool, addIndex)
	if got := scan[string](t, db.Pool, states); got != "valid" {
		t.Errorf("the index is %s", got)
	}
	if got := scan[int64](t, db.Pool, "SELECT max(version_id) FROM kagzi.schema_migrations"); got != this+1 {
		t.Errorf("the schema has version %d", got)
	}
}

// A build that waits for a long transaction is not restarted.
func TestIndexBuildIsPatient(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Empty())
	up(t, db.Pool)
	oid := `SELECT coalesce(to_regclass('kagzi.workflow_runs_next')::oid::bigint, 0)`
	writer := begin(t, db, one)
	done := make(chan error, 1)
	go func() { done <- migrations.UpFiles(t.Context(), db.Pool, dbtest.NextMigrations(addIndex)) }()
	var first int64
	eventually(t, "the index is being built", func() bool {
		first = scan[int64](t, db.Pool, oid)
		return first != 0
	})
	for _, sql := range []string{"SELECT pg_sleep(1)", "COMMIT"} { // longer than other migrations wait for a table
		if _, err := writer.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if last := scan[int64](t, db.Pool, oid); last != first {
		t.Errorf("the index is another than the one whose build began beside the transaction")
	}
}

// A program works with a newer schema that says that it fits older programs, and refuses any other newer one.
func TestOlderProgram(t *testing.T) {
	t.Parallel()
	t.Run("AfterAnExpandingMigration", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		upTo(t, pool, addColumn)
		wantCheck(t, pool, nil)
		up(t, pool)
		if version, err := migrations.Check(t.Context(), pool); version != this+1 || err != nil {
			t.Errorf("Check found version %d, %v", version, err)
		}
		if version, err := migrations.CheckVersion(t.Context(), pool, this+2); version != this+1 ||
			!errors.Is(err, migrations.ErrOlder) {
			t.Errorf("a newer program found version %d, %v", version, err)
		}
	})
	t.Run("AfterAContractingMigration", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		upTo(t, pool, addColumn, dropColumn)
		wantCheck(t, pool, migrations.ErrNewer)
		if err := migrations.Up(t.Context(), pool); !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("Up of the old program returned %v", err)
		}
		_, err := migrations.Check(t.Context(), pool)
		for _, want := range []string{
			said("has version %d", 2), said("from version %d on", 1),
			said("knows version %d", 0), "upgrade",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		if _, err := migrations.CheckVersion(t.Context(), pool, this+1); err != nil {
			t.Errorf("a program of version 2: %v", err)
		}
	})
}

// A migration that removes something is refused while workers of older programs, which need it, are running.
func TestContractingMigrationLooksForWorkers(t *testing.T) {
	t.Parallel()
	worker := func(status, heartbeat string, version int64) string {
		return fmt.Sprintf(`INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status,
			hostname, build, schema_version, lease_timeout, stale_after, heartbeat_at)
			VALUES (gen_random_uuid(), 'ns', '{q}', '{}', '%s', 'host-7', 'v0.1.0', %d, '5 minutes', '30 minutes',
				now() - interval '%s')`, status, version, heartbeat)
	}
	for name, tt := range map[string]struct {
		worker  string
		refused bool
	}{
		"None":         {"SELECT", false},
		"Online":       {worker("ONLINE", "20 minutes", this), true},
		"Draining":     {worker("DRAINING", "0", this), true},
		"Stopped":      {worker("OFFLINE", "0", this), false},
		"Dead":         {worker("ONLINE", "40 minutes", this), false},
		"OfThatOrMore": {worker("ONLINE", "0", this+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Empty())
			upTo(t, pool, addColumn)
			execute(t, pool, tt.worker)
			err := migrations.UpFiles(t.Context(), pool, dbtest.NextMigrations(addColumn, dropColumn))
			if !tt.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range []string{
				said("migration %d ", 2), said("before version %d ", 1), "running: 1,",
				"v0.1.0", "host-7", "stop them",
			} {
				if !errors.Is(err, migrations.ErrInUse) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			wantCheck(t, pool, nil)
			if got := scan[int](t, pool, "SELECT count(*) FROM pg_attribute WHERE attrelid = "+
				"'kagzi.workflow_runs'::regclass AND attname = 'origin_run_id'"); got != 1 {
				t.Error("the column is gone")
			}
		})
	}
}

// The owner of a database may set timeouts and other defaults for programs that answer users.
func TestSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, settings ...string) *pgxpool.Pool {
		db := dbtest.Database(t, dbtest.Empty())
		for _, s := range settings {
			execute(t, db.Pool, "ALTER DATABASE "+db.Name+" SET "+s)
		}
		pool, err := pgxpool.New(t.Context(), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	t.Run("DoNoHarm", func(t *testing.T) {
		t.Parallel()
		pool := set(t, "statement_timeout = '1ms'", "idle_in_transaction_session_timeout = '1ms'",
			"lock_timeout = '1ms'",
			"default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on")
		upTo(t, pool, addColumn, addIndex)
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		err := migrations.Up(t.Context(), set(t, "default_transaction_read_only = on"))
		for _, want := range []string{"read-only", "primary", "default_transaction_read_only"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
	})
}

// The error of a user who may not migrate names the missing right.
func TestRightsOfTheUser(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plant string // %[1]s is the user, %[2]s the database
		wants []string
	}{
		"NoSchema": {"SELECT", []string{
			`user "%[1]s" may not create schema kagzi`, `GRANT CREATE ON DATABASE "%[2]s" TO "%[1]s"`,
			`CREATE SCHEMA kagzi AUTHORIZATION "%[1]s"`,
		}},
		"SchemaOfOther": {"CREATE SCHEMA kagzi", []string{
			`user "%[1]s" may not create tables in schema kagzi`,
			`GRANT USAGE, CREATE ON SCHEMA kagzi TO "%[1]s"`,
		}},
		"NoCreate": {
			"CREATE SCHEMA kagzi; GRANT USAGE ON SCHEMA kagzi TO %[1]s",
			[]string{`GRANT USAGE, CREATE ON SCHEMA kagzi TO "%[1]s"`},
		},
		"TablesOfOther": {
			"",
			[]string{
				`user "%[1]s" may not change the tables of schema kagzi, which belong to "postgres"`,
				`call Migrate as postgres, or GRANT "postgres" TO "%[1]s"`,
			},
		},
		"TablesOfOtherButCreate": {
			"GRANT CREATE ON SCHEMA kagzi TO %[1]s; GRANT INSERT ON kagzi.schema_migrations TO %[1]s",
			[]string{`may not change the tables`, `call Migrate as postgres`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty())
			role := db.Name + "_user"
			execute(t, db.Pool, "CREATE ROLE "+role)
			t.Cleanup(func() {
				if _, err := db.Pool.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+
					role); err != nil {
					t.Error(err)
				}
			})
			if strings.HasPrefix(name, "TablesOfOther") {
				up(t, db.Pool)
				execute(t, db.Pool, "GRANT USAGE ON SCHEMA kagzi TO "+role+"; GRANT SELECT ON ALL TABLES IN SCHEMA "+
					"kagzi TO "+role)
			}
			execute(t, db.Pool, strings.ReplaceAll(tt.plant, "%[1]s", role))
			cfg := db.Pool.Config()
			cfg.ConnConfig.RuntimeParams["role"] = role
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			err = migrations.UpFiles(t.Context(), pool, dbtest.NextMigrations(addColumn))
			for _, want := range tt.wants {
				want = strings.NewReplacer("%[1]s", role, "%[2]s", db.Name).Replace(want)
				if rights := new(*migrations.RightsError); !errors.As(err, rights) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

func TestFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"no line":                 {strings.ReplaceAll(addColumn, "+kagzi", "kagzi")},
		`no "-- +goose`:           {strings.ReplaceAll(addColumn, "+goose Up", "Up")},
		said("and %d", 1):         {strings.ReplaceAll(addColumn, "{oldest}", "99")},
		said("between %d and", 1): {addColumn, dropColumn, addColumn},
		"in a transaction":        {strings.ReplaceAll(addIndex, "{oldest}", "{next}")},
	} {
		if err := migrations.Parse(dbtest.NextMigrations(texts...)); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %q", err, name)
		}
	}
	if err := migrations.Parse(dbtest.NextMigrations(addColumn, addIndex, dropColumn)); err != nil {
		t.Error(err)
	}
}
