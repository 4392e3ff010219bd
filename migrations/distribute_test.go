package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// calls returns the calls of Citus's functions since the last call of calls.
func calls(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `WITH gone AS (DELETE FROM citus_calls RETURNING n, call) SELECT call FROM gone
		ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofAll are the tables with rows of all namespaces, by name.
var ofAll = []string{"kagzi.event_keepers", "kagzi.event_parts", "kagzi.schema_migrations"}

// ours are the tables that have a namespace, by name, apart from the first.
func ours(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			AND a.attname = 'namespace_id'
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND c.relname <> 'workflow_runs' ORDER BY c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 6 {
		t.Fatalf("INVALID: tables %q, error %v", tables, err)
	}
	return tables
}

func distribute(t *testing.T, pool *pgxpool.Pool) []migrations.Distributed {
	t.Helper()
	done, err := migrations.Distribute(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// The tests check the calls of Citus's functions, their arguments and their order. They do not check Citus itself.
func TestDistribute(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked(), dbtest.AsOwner())
	dbtest.PretendCitus(t, db)
	execute(t, db.Pool, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'LOST')`)

	want := []string{"create_distributed_table(kagzi.workflow_runs, namespace_id, colocate_with => none)"}
	for _, table := range ours(t, db.Pool) {
		want = append(want, "create_distributed_table("+table+", namespace_id, colocate_with => kagzi.workflow_runs)")
		if table == "kagzi.worker_events" { // that alone has rows
			want = append(want, "truncate_local_data_after_distributing_table(kagzi.worker_events)")
		}
	}
	for _, table := range ofAll {
		want = append(want, "create_reference_table("+table+")")
	}

	done := distribute(t, db.Pool)
	got := calls(t, db.Pool)
	if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] ||
		!slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(done) != len(ours(t, db.Pool))+1+len(ofAll) {
		t.Errorf("done %+v", done)
	}
	for _, d := range done {
		ours := !slices.Contains(ofAll, d.Table)
		if !d.Changed || (d.Column == "namespace_id") != ours ||
			(d.RemovedBytes > 0) != (d.Table == "kagzi.worker_events") {
			t.Errorf("%+v", d)
		}
	}

	l, err := migrations.LayoutOf(t.Context(), db.Pool)
	if err != nil || !l.Citus || len(l.Done) != len(done) || len(l.Left)+len(l.LeftRows) > 0 {
		t.Errorf("layout %+v, error %v", l, err)
	}
	for _, d := range distribute(t, db.Pool) {
		if d.Changed || d.RemovedBytes != 0 {
			t.Errorf("the second time: %+v", d)
		}
	}
	if got := calls(t, db.Pool); len(got) != 0 {
		t.Errorf("the second time called %q", got)
	}

	// Now add a table of a later migration, a shard, and rows that a process left behind when it died halfway.
	execute(t, db.Pool, `
		CREATE TABLE kagzi.later (id int, namespace_id text COLLATE "C" NOT NULL, PRIMARY KEY (id, namespace_id));
		CREATE TABLE kagzi.workflow_runs_102008 (LIKE kagzi.workflow_runs);
		INSERT INTO pg_dist_shard VALUES ('kagzi.workflow_runs', 102008)`)
	execute(t, db.Pool, `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		VALUES (gen_random_uuid(), '', 1, 'a', '')`)
	if l, err = migrations.LayoutOf(t.Context(), db.Pool); err != nil ||
		!slices.Equal(l.Left, []string{"kagzi.later"}) || !slices.Equal(l.LeftRows, []string{"kagzi.signals"}) {
		t.Errorf("layout %+v, error %v", l, err)
	}
	distribute(t, db.Pool)
	want = []string{
		"create_distributed_table(kagzi.later, namespace_id, colocate_with => kagzi.workflow_runs)",
		"truncate_local_data_after_distributing_table(kagzi.signals)",
	}
	got = calls(t, db.Pool)
	if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] ||
		!slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("called %q, want %q", got, want)
	}
}

func TestDistributeTellsWhatItDid(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked(), dbtest.AsOwner())
	dbtest.PretendCitus(t, db)
	execute(t, db.Pool, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'LOST')`)
	for _, want := range [][]string{
		{
			"kagzi.workflow_runs: distributed by namespace_id", "kagzi.worker_events: distributed by namespace_id; " +
				"removed 8 kB of rows from this server, which are on the nodes",
			"kagzi.schema_migrations: on every node",
		},
		{"kagzi.workflow_runs: distributed by namespace_id, as before", "kagzi.worker_events: distributed by " +
			"namespace_id, as before", "kagzi.schema_migrations: on every node, as before"},
	} {
		tables, err := migrations.Distribute(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, table := range tables {
			lines = append(lines, table.String())
		}
		for _, line := range want {
			// an earlier test may have left empty pages in a table
			if text := "\n" + strings.Join(lines, "\n") + "\n"; !strings.Contains(text, "\n"+line) {
				t.Errorf("no line %q in:%s", line, text)
			}
		}
	}
}

func TestDistributeWithoutAPool(t *testing.T) {
	t.Parallel()
	if _, err := migrations.Distribute(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "pgxpool.New") {
		t.Errorf("error %v", err)
	}
}

func TestDistributeRefuses(t *testing.T) {
	t.Parallel()
	t.Run("without Citus", func(t *testing.T) {
		t.Parallel()
		dbtest.NotOnCitus(t, "the database has Citus")
		if done, err := migrations.Distribute(t.Context(), dbtest.Pool(t)); !errors.Is(err, migrations.ErrNoCitus) ||
			len(done) != 0 {
			t.Errorf("%v, error %v", done, err)
		}
	})
	t.Run("without tables", func(t *testing.T) {
		t.Parallel()
		dbtest.NotOnCitus(t, "the test only pretends that there is Citus")
		db := dbtest.Database(t, dbtest.Empty())
		dbtest.PretendCitus(t, db)
		if _, err := migrations.Distribute(t.Context(), db.Pool); !errors.Is(err, migrations.ErrMissing) ||
			!strings.HasPrefix(err.Error(), "kagzi: distribute: schema missing") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("another column", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Unchecked(), dbtest.AsOwner())
		dbtest.PretendCitus(t, db)
		execute(t, db.Pool, `SELECT create_distributed_table('kagzi.signals', 'run_id')`)
		wantRefusal(t, db.Pool, "kagzi.signals: it is distributed by run_id", "undistribute_table('kagzi.signals')")
	})
	t.Run("beside others", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Unchecked(), dbtest.AsOwner())
		dbtest.PretendCitus(t, db)
		execute(t, db.Pool, `SELECT create_distributed_table('kagzi.signals', 'namespace_id', colocate_with => 'none')`)
		wantRefusal(t, db.Pool, "kagzi.signals: it is not colocated",
			"update_distributed_table_colocation('kagzi.signals', colocate_with => 'kagzi.workflow_runs')")
		execute(t, db.Pool, `UPDATE pg_dist_partition SET colocationid = (SELECT colocationid FROM pg_dist_partition
			WHERE logicalrelid = 'kagzi.workflow_runs'::regclass)`)
		distribute(t, db.Pool) // finishes the rest
	})
	t.Run("a user who owns nothing", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.Unchecked(), dbtest.AsOwner())
		dbtest.PretendCitus(t, db)
		role := "kagzi_" + uuid.NewString()[:8]
		execute(t, db.Pool, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
		t.Cleanup(func() { dropRole(t, db.DSN, role) })
		execute(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
		execute(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO `+role+
			`; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO `+role)
		cfg := db.Pool.Config()
		cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "secret"
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		wantRefusal(t, pool, "kagzi: distribute: kagzi.workflow_runs: this user may not",
			"must be owner of table workflow_runs")

		execute(t, db.Pool, `REVOKE USAGE ON SCHEMA kagzi FROM `+role)
		wantRefusal(t, pool, fmt.Sprintf("kagzi: distribute: user %q may not change the tables of schema kagzi, "+
			"which belong to", role), "call Distribute as", "GRANT")
	})
}

func dropRole(t *testing.T, dsn, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Error(err)
	}
}

func wantRefusal(t *testing.T, pool *pgxpool.Pool, texts ...string) {
	t.Helper()
	_, err := migrations.Distribute(t.Context(), pool)
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
	}
}
