package doctor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// examine returns the advice about pool's database.
func examine(t *testing.T, pool *pgxpool.Pool) []doctor.Advice {
	t.Helper()
	found, err := doctor.Examine(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantAdvice fails the test unless there is an advice on the topic with the severity whose line has all of the texts.
func wantAdvice(t *testing.T, found []doctor.Advice, topic string, severity doctor.Severity, texts ...string) {
	t.Helper()
	if !hasAdvice(found, topic, severity, texts...) {
		t.Errorf("no %s about %s with %q in:", severity, topic, texts)
		for _, a := range found {
			t.Log(a)
		}
	}
}

// hasAdvice reports whether there is an advice on the topic with the severity whose line has all of the texts.
func hasAdvice(found []doctor.Advice, topic string, severity doctor.Severity, texts ...string) bool {
	return slices.ContainsFunc(found, func(a doctor.Advice) bool {
		has := a.Topic == topic && a.Severity == severity
		for _, text := range texts {
			has = has && strings.Contains(a.String(), text)
		}
		return has
	})
}

var topics = []string{
	"server", "schema", "indexes", "durability", "settings", "pooler", "pool", "clock", "snapshots",
	"idle transactions",
	"autovacuum", "tables", "distribution", "notifications",
}

func TestExamineFindsHealth(t *testing.T) {
	t.Parallel()
	found := examine(t, dbtest.Pool(t))
	for _, topic := range topics {
		if topic != "durability" { // the test's server has none
			wantAdvice(t, found, topic, doctor.Fine)
		}
	}
	severities := []doctor.Severity{doctor.Problem, doctor.Warning, doctor.Unseen, doctor.Fine}
	rank := func(a doctor.Advice) int { return slices.Index(severities, a.Severity) }
	if !slices.IsSortedFunc(found, func(a, b doctor.Advice) int { return rank(a) - rank(b) }) {
		t.Errorf("the worst is not first: %v", found)
	}
}

func TestExamineFindsTrouble(t *testing.T) {
	t.Parallel()
	with := func(change func(*pgxpool.Config)) func(*testing.T, *dbtest.DB) *pgxpool.Pool {
		return func(t *testing.T, db *dbtest.DB) *pgxpool.Pool { return dbtest.OpenPool(t, db.DSN, change) }
	}
	statement := func(sql string) func(*testing.T, *dbtest.DB) *pgxpool.Pool {
		return func(t *testing.T, db *dbtest.DB) *pgxpool.Pool {
			dbtest.Exec(t, db.Pool, sql)
			return db.Pool
		}
	}
	// A newer program has an index that this one does not know, and lacks one that it does: neither is a fault.
	const expanded = `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 1);
		CREATE INDEX theirs ON kagzi.workflow_runs (started_at); DROP INDEX kagzi.workflow_runs_metadata`
	for _, tt := range []struct {
		name     string
		plant    func(*testing.T, *dbtest.DB) *pgxpool.Pool
		topic    string
		severity doctor.Severity
		texts    []string
	}{
		{
			"ReadOnly", with(dbtest.Setting("default_transaction_read_only", "on")), "server", doctor.Problem,
			[]string{"RESET default_transaction_read_only"},
		},
		{"NewerSchema", statement(`INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program)
			VALUES (99, true, 98)`), "schema", doctor.Problem, []string{"Upgrade"}},
		{
			"NewerSchemaThatFits", statement(expanded), "schema", doctor.Fine,
			[]string{"Version 99, with which this program", "works too"},
		},
		{"IndexesOfANewerSchema", statement(expanded), "indexes", doctor.Fine, []string{"newer program"}},
		{"NoRights", with(dbtest.Setting("role", "pg_monitor")), "schema", doctor.Problem, []string{"GRANT USAGE"}},
		{"Fsync", statement(`SELECT 1`), "durability", doctor.Problem, []string{"ALTER SYSTEM SET fsync = on"}},
		{
			"SynchronousCommit", with(dbtest.Setting("synchronous_commit", "off")), "durability", doctor.Warning,
			[]string{"SET synchronous_commit = on"},
		},
		{
			"StatementTimeout", with(dbtest.Setting("statement_timeout", "9s")), "settings", doctor.Warning,
			[]string{"statement_timeout is 9s", "ALTER ROLE"},
		},
		{
			"LockTimeout", with(dbtest.Setting("lock_timeout", "500")), "settings", doctor.Warning,
			[]string{"lock_timeout is 500ms"},
		},
		{
			"IdleSessionTimeout", with(dbtest.Setting("idle_session_timeout", "1h")), "settings", doctor.Warning,
			[]string{"idle_session_timeout"},
		},
		{
			"Isolation", with(dbtest.Setting("default_transaction_isolation", "serializable")), "settings",
			doctor.Warning,
			[]string{"'read committed'"},
		},
		{"TinyPool", with(dbtest.Conns(1)), "pool", doctor.Problem, []string{"1 connection,", "pool_max_conns"}},
		{"SmallPool", with(dbtest.Conns(2)), "pool", doctor.Warning, []string{"transactional steps run one at a time"}},
		{"HugePool", with(dbtest.Conns(5000)), "pool", doctor.Warning, []string{"max_connections"}},
		{
			"DroppedIndex", statement(`DROP INDEX kagzi.workflow_runs_claim`), "indexes", doctor.Problem,
			[]string{"workflow_runs_claim is missing"},
		},
		{
			"InvalidIndex", statement(`UPDATE pg_index SET indisvalid = false
			WHERE indexrelid =
			'kagzi.workflow_runs_claim'::regclass`), "indexes", doctor.Problem,
			[]string{"REINDEX INDEX CONCURRENTLY kagzi.workflow_runs_claim"},
		},
		{
			"OtherIndex", statement(`CREATE INDEX mine ON kagzi.workflow_runs (started_at)`), "indexes", doctor.Warning,
			[]string{"kagzi.mine"},
		},
		{
			"AutovacuumOff", statement(`ALTER TABLE kagzi.step_runs SET (autovacuum_enabled = off)`), "autovacuum",
			doctor.Problem,
			[]string{"RESET (autovacuum_enabled)", "kagzi.step_runs"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantAdvice(t, examine(t, tt.plant(t, dbtest.Database(t))), tt.topic, tt.severity, tt.texts...)
		})
	}
	t.Run("NoSchema", func(t *testing.T) {
		t.Parallel()
		found := examine(t, dbtest.Pool(t, dbtest.Empty()))
		wantAdvice(t, found, "schema", doctor.Problem, "Call kagzi.Migrate.")
		wantAdvice(t, found, "indexes", doctor.Fine)
	})
	t.Run("NoRightsAtAll", func(t *testing.T) {
		t.Parallel()
		found := examine(t, dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Setting("role", "pg_monitor")))
		wantAdvice(t, found, "schema", doctor.Problem, `User "pg_monitor" lacks USAGE on schema kagzi and SELECT`,
			`→ GRANT USAGE ON SCHEMA kagzi TO "pg_monitor"; GRANT SELECT, `)
		for _, topic := range []string{"tables", "indexes"} {
			wantAdvice(t, found, topic, doctor.Unseen, `→ GRANT USAGE ON SCHEMA kagzi TO "pg_monitor";`)
			if hasAdvice(found, topic, doctor.Fine) {
				t.Errorf("%s are fine", topic)
			}
		}
	})
	t.Run("NoDatabase", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		pool.Close()
		if _, err := doctor.Examine(t.Context(), pool); err == nil {
			t.Error("no error from a closed pool")
		}
		if _, err := doctor.Examine(t.Context(), nil); err == nil {
			t.Error("no error without a pool")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := doctor.Examine(ctx, dbtest.Pool(t)); !errors.Is(err, context.Canceled) ||
			!strings.HasPrefix(err.Error(), "kagzi: doctor: ") {
			t.Errorf("error %v of a cancelled context", err)
		}
	})
}

func TestExamineFindsDeadRows(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.signals SET (autovacuum_enabled = off)`)
	// A session reports what it did when it ends, at the latest.
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id) SELECT gen_random_uuid(), 'x', g,
			'default', g FROM generate_series(1, 60000) AS g`,
		`DELETE FROM kagzi.signals WHERE sequence <= 30000`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The server gathers such reports a little later.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !hasAdvice(examine(t, db.Pool), "tables", doctor.Warning, " dead rows",
		"VACUUM (ANALYZE, VERBOSE) kagzi.signals") {
		if ctx.Err() != nil {
			t.Fatal("the dead rows are not found")
		}
	}
}

func TestExamineBehindPooler(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	wantAdvice(t, examine(t, dbtest.OpenPool(t, dbtest.Pooler(t, db), dbtest.Conns(4))), "pooler", doctor.Warning,
		"transaction mode", "default_query_exec_mode=exec")
}

// A user without rights beyond Kagzi's tables learns everything that it may see.
func TestExamineOfPlainUser(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	role := strings.Replace(db.Name, "kagzi_test_", "kagzi_plain_", 1)
	dbtest.Exec(t, db.Pool, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		dbtest.Exec(t, db.Pool, `DROP OWNED BY `+role+`; DROP ROLE `+role, pgx.QueryExecModeSimpleProtocol)
	})
	dbtest.Exec(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role+`; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE
		ON ALL TABLES IN SCHEMA kagzi TO `+role+`; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO `+role,
		pgx.QueryExecModeSimpleProtocol)
	other, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	found := examine(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
	for _, topic := range topics {
		switch topic {
		case "durability":
		case "snapshots", "idle transactions":
			wantAdvice(t, found, topic, doctor.Unseen, "GRANT pg_read_all_stats TO", role)
		default:
			wantAdvice(t, found, topic, doctor.Fine)
		}
	}
}

// Of distributed tables the nodes are asked: those of the server itself are empty.
func TestExamineOnCitus(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the test only pretends that there is Citus")
	db := dbtest.Database(t, dbtest.AsOwner(), dbtest.Unchecked())
	wantAdvice(t, examine(t, db.Pool), "distribution", doctor.Fine, "no Citus")
	dbtest.PretendCitus(t, db)
	wantAdvice(t, examine(t, db.Pool), "distribution", doctor.Fine, "are not distributed")

	dbtest.Exec(t, db.Pool, `SELECT create_distributed_table('kagzi.workflow_runs', 'namespace_id')`)
	wantAdvice(t, examine(t, db.Pool), "distribution", doctor.Problem, "kagzi.consumers",
		"→ Stop the workers, and call migrations.Distribute.")

	if _, err := migrations.Distribute(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	found := examine(t, db.Pool)
	wantAdvice(t, found, "distribution", doctor.Fine, "distributed by namespace")
	wantAdvice(t, found, "distribution", doctor.Unseen, "of this server alone")
	wantAdvice(t, found, "tables", doctor.Fine, "2 nodes")

	dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'LOST')`)
	wantAdvice(t, examine(t, db.Pool), "distribution", doctor.Warning, "kagzi.worker_events",
		"→ Call migrations.Distribute.")

	dbtest.Exec(t, db.Pool, `DROP FUNCTION pg_catalog.run_command_on_all_nodes`)
	wantAdvice(t, examine(t, db.Pool), "tables", doctor.Unseen, "the nodes cannot be asked")
}
