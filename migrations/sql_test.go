package migrations_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// everything describes the whole schema in a form that does not depend on who created it or when.
const everything = `
SELECT coalesce(string_agg(thing, E'\n' ORDER BY thing COLLATE "C"), '') FROM (
	SELECT format('column %s.%s %s %s %s %s %s', attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod),
		attnotnull, attcollation, pg_get_expr(adbin, adrelid))
	FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'kagzi'::regnamespace AND relkind = 'r')
		AND attnum > 0 AND NOT attisdropped
	UNION ALL SELECT format('relation %s %s %s', relname, relkind, reloptions) FROM pg_class
		WHERE relnamespace = 'kagzi'::regnamespace
	UNION ALL SELECT format('index %s %s', pg_get_indexdef(indexrelid), indisvalid) FROM pg_index
		WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'kagzi'::regnamespace)
	UNION ALL SELECT format('constraint %s %s %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE connamespace = 'kagzi'::regnamespace
	UNION ALL SELECT format('version %s %s %s %s', id, version_id, is_applied, oldest_program)
		FROM kagzi.schema_migrations
) t (thing)`

// statements splits a script as psql does.
func statements(script string) (list []string) {
	var b strings.Builder
	for _, line := range strings.SplitAfter(script, "\n") {
		if b.Len() == 0 && (strings.HasPrefix(line, "--") || strings.TrimSpace(line) == "") {
			continue
		}
		b.WriteString(line)
		if strings.HasSuffix(line, ";\n") && strings.Count(b.String(), "$$")%2 == 0 {
			list = append(list, b.String())
			b.Reset()
		}
	}
	return append(list, b.String())
}

// send sends a script on one connection, and stops at the first error.
func send(ctx context.Context, db *dbtest.DB, script string) error {
	conn, err := pgx.Connect(ctx, db.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements(script) {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

func script(t *testing.T, from, to int64, texts ...string) string {
	t.Helper()
	sql, err := migrations.SQLOf(dbtest.NextMigrations(texts...), from, to)
	if err != nil {
		t.Fatal(err)
	}
	return sql
}

// The script leaves a database in the same state as Up does.
func TestScript(t *testing.T) {
	t.Parallel()
	next := []string{addColumn, addIndex, dropColumn}
	for name, steps := range map[string][][2]int64{
		"InOne": {{0, 0}}, "InTwo": {{0, this + 1}, {this + 1, 0}},
		"OneByOne": {{0, this}, {this, this + 1}, {this + 1, this + 2}, {this + 2, this + 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, db := dbtest.Pool(t, dbtest.Empty()), dbtest.Database(t, dbtest.Empty())
			upTo(t, want, next...)
			for _, step := range steps {
				if err := send(t.Context(), db, script(t, step[0], step[1], next...)); err != nil {
					t.Fatalf("from %d to %d: %v", step[0], step[1], err)
				}
			}
			wantSame(t, db.Pool, want)
			upTo(t, db.Pool, next...)
			wantSame(t, db.Pool, want)
		})
	}
	t.Run("ByPsql", func(t *testing.T) {
		t.Parallel()
		psql, err := exec.LookPath("psql")
		if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql"); err != nil && found != nil {
			psql, err = found[0], nil
		}
		if err != nil {
			t.Fatal("psql is not installed: apt-get install postgresql-client, or brew install libpq")
		}
		want, db := dbtest.Pool(t, dbtest.Empty()), dbtest.Database(t, dbtest.Empty())
		upTo(t, want, next...)
		file := filepath.Join(t.TempDir(), "kagzi.sql")
		if err := os.WriteFile(file, []byte(script(t, 0, 0, next...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file, db.DSN).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		wantSame(t, db.Pool, want)
	})
	sql, err := migrations.SQL(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, create, _ := strings.Cut(sql, "CREATE TABLE kagzi.schema_migrations")
	create, _, _ = strings.Cut("CREATE TABLE kagzi.schema_migrations"+create, "    END IF")
	for name, planted := range map[string]string{
		"OfThisProgram": "", "IntoAnEmptySchema": `CREATE SCHEMA kagzi;`,
		"WithItsBookkeepingAlone": `CREATE SCHEMA kagzi;` + create,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty())
			if err := send(t.Context(), db, planted+"\n"); err != nil {
				t.Fatal(err)
			}
			if err := send(t.Context(), db, sql); err != nil {
				t.Fatal(err)
			}
			wantApplied(t, db.Pool)
			up(t, db.Pool)
			wantApplied(t, db.Pool)
		})
	}
}

func wantSame(t *testing.T, got, want *pgxpool.Pool) {
	t.Helper()
	g, w := strings.Split(scan[string](t, got, everything), "\n"),
		strings.Split(scan[string](t, want, everything), "\n")
	if strings.Join(g, "\n") == strings.Join(w, "\n") {
		return
	}
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("the databases differ from line %d on:\n%s\n\n%s", i, strings.Join(g[i:], "\n"),
				strings.Join(w[i:], "\n"))
		}
	}
}

// A script at the wrong time changes nothing.
func TestScriptIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plant    func(*testing.T, *dbtest.DB)
		from, to int64
		says     string
	}{
		"Twice": {
			func(t *testing.T, db *dbtest.DB) { upTo(t, db.Pool, addColumn) }, this, this + 1,
			fmt.Sprintf("from version %d to version %[2]d, and the schema has version %[2]d: make the script from "+
				"that version", this, this+1),
		},
		"TooEarly": {
			func(t *testing.T, db *dbtest.DB) { up(t, db.Pool) }, this + 1, 0,
			fmt.Sprintf("from version %d to version %d, and the schema has version %d", this+1, this+2, this),
		},
		"NotEmpty": {
			func(t *testing.T, db *dbtest.DB) { up(t, db.Pool) }, 0, 0,
			fmt.Sprintf("from version 0 to version 1, and the schema has version %d: make the script from that "+
				"version", this),
		},
		"WhileMigrated": {
			func(t *testing.T, db *dbtest.DB) { up(t, db.Pool); holdLock(t, db) }, this, 0,
			"another process is migrating",
		},
		"InUse": {func(t *testing.T, db *dbtest.DB) {
			upTo(t, db.Pool, addColumn, addIndex)
			execute(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types,
				status, build, hostname, lease_timeout, stale_after)
				VALUES (gen_random_uuid(), 'ns', '{q}', '{}', 'ONLINE', 'v0.1.0', 'host-7', '5 minutes', '30 minutes')`)
		}, this + 2, 0, "workers of such programs are running: 1, for example build 'v0.1.0'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty())
			tt.plant(t, db)
			before := scan[string](t, db.Pool, everything)
			if err := send(t.Context(), db, script(t, tt.from, tt.to, addColumn, addIndex, dropColumn)); err == nil ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v does not say %q", err, tt.says)
			}
			if after := scan[string](t, db.Pool, everything); after != before {
				t.Errorf("the schema was\n%s\nand is\n%s", before, after)
			}
		})
	}
	for name, tt := range map[string]struct {
		from, to int64
		says     string
	}{
		"Negative": {-1, 0, "negative"},
		"FromAfter": {this + 2, 0, said("versions up to %d: leave the schema as it is if the program was "+
			"rolled back", 1)},
		"ToAfter":   {this, this + 2, said("versions up to %d: upgrade", 1)},
		"Backwards": {this + 1, this, "only go forward"},
	} {
		if sql, err := migrations.SQLOf(dbtest.NextMigrations(addColumn), tt.from, tt.to); sql != "" || err == nil ||
			!strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %q, %v", name, sql, err)
		}
	}
	if sql := script(t, this+1, this+1, addColumn); sql != "" {
		t.Errorf("from a version to itself: %q", sql)
	}
}
