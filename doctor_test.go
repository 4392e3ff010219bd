package kagzi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// diagnose is what Doctor says of pool's database.
func diagnose(t *testing.T, pool *pgxpool.Pool) []Advice {
	t.Helper()
	found, err := Doctor(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantAdvice fails the test unless there is an advice on the topic with the severity whose line has all of the texts.
func wantAdvice(t *testing.T, found []Advice, topic string, severity Severity, texts ...string) {
	t.Helper()
	if !hasAdvice(found, topic, severity, texts...) {
		t.Errorf("no %s about %s with %q in:", severity, topic, texts)
		for _, a := range found {
			t.Log(a)
		}
	}
}

func hasAdvice(found []Advice, topic string, severity Severity, texts ...string) bool {
	return slices.ContainsFunc(found, func(a Advice) bool {
		has := a.Topic == topic && a.Severity == severity
		for _, text := range texts {
			has = has && strings.Contains(a.String(), text)
		}
		return has
	})
}

var topics = []string{
	"server", "schema", "indexes", "durability", "settings", "pooler", "pool", "clock", "snapshots", "idle transactions",
	"autovacuum", "tables", "distribution", "notifications",
}

func TestDoctorFindsHealth(t *testing.T) {
	t.Parallel()
	found := diagnose(t, dbtest.Pool(t))
	for _, topic := range topics {
		if topic != "durability" { // the test's server has none
			wantAdvice(t, found, topic, SeverityFine)
		}
	}
	rank := func(a Advice) int { return slices.Index(severities, a.Severity) }
	if !slices.IsSortedFunc(found, func(a, b Advice) int { return rank(a) - rank(b) }) {
		t.Errorf("the worst is not first: %v", found)
	}
}

func TestDoctorFindsTrouble(t *testing.T) {
	t.Parallel()
	parameter := func(name, value string) func(*testing.T, *dbtest.DB) *pgxpool.Pool {
		return func(t *testing.T, db *dbtest.DB) *pgxpool.Pool { return poolWith(t, db.DSN, name, value) }
	}
	statement := func(sql string) func(*testing.T, *dbtest.DB) *pgxpool.Pool {
		return func(t *testing.T, db *dbtest.DB) *pgxpool.Pool {
			execSQL(t, db.Pool, sql)
			return db.Pool
		}
	}
	sized := func(n int32) func(*testing.T, *dbtest.DB) *pgxpool.Pool {
		return func(t *testing.T, db *dbtest.DB) *pgxpool.Pool { return openPool(t, db.DSN, n) }
	}
	// What it has and this program does not know is no fault.
	const expanded = `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 1);
		CREATE INDEX theirs ON kagzi.workflow_runs (started_at); DROP INDEX kagzi.workflow_runs_metadata`
	for _, tt := range []struct {
		name     string
		plant    func(*testing.T, *dbtest.DB) *pgxpool.Pool
		topic    string
		severity Severity
		texts    []string
	}{
		{"ReadOnly", parameter("default_transaction_read_only", "on"), "server", SeverityProblem, []string{"RESET default_transaction_read_only"}},
		{"NewerSchema", statement(`INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 98)`), "schema", SeverityProblem, []string{"Upgrade"}},
		{"NewerSchemaThatFits", statement(expanded), "schema", SeverityFine, []string{"Version 99, with which this program", "works too"}},
		{"IndexesOfANewerSchema", statement(expanded), "indexes", SeverityFine, []string{"newer program"}},
		{"NoRights", parameter("role", "pg_monitor"), "schema", SeverityProblem, []string{"GRANT USAGE"}},
		{"Fsync", statement(`SELECT 1`), "durability", SeverityProblem, []string{"ALTER SYSTEM SET fsync = on"}},
		{"SynchronousCommit", parameter("synchronous_commit", "off"), "durability", SeverityWarning, []string{"SET synchronous_commit = on"}},
		{"StatementTimeout", parameter("statement_timeout", "9s"), "settings", SeverityWarning, []string{"statement_timeout is 9s", "ALTER ROLE"}},
		{"LockTimeout", parameter("lock_timeout", "500"), "settings", SeverityWarning, []string{"lock_timeout is 500ms"}},
		{"IdleSessionTimeout", parameter("idle_session_timeout", "1h"), "settings", SeverityWarning, []string{"idle_session_timeout"}},
		{"Isolation", parameter("default_transaction_isolation", "serializable"), "settings", SeverityWarning, []string{"'read committed'"}},
		{"TinyPool", sized(1), "pool", SeverityProblem, []string{"1 connection,", "pool_max_conns"}},
		{"SmallPool", sized(2), "pool", SeverityWarning, []string{"one transactional step"}},
		{"HugePool", sized(5000), "pool", SeverityWarning, []string{"max_connections"}},
		{"DroppedIndex", statement(`DROP INDEX kagzi.workflow_runs_claim`), "indexes", SeverityProblem, []string{"workflow_runs_claim is missing"}},
		{"InvalidIndex", statement(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'kagzi.workflow_runs_claim'::regclass`), "indexes", SeverityProblem, []string{"REINDEX INDEX CONCURRENTLY kagzi.workflow_runs_claim"}},
		{"OtherIndex", statement(`CREATE INDEX mine ON kagzi.workflow_runs (started_at)`), "indexes", SeverityWarning, []string{"kagzi.mine"}},
		{"AutovacuumOff", statement(`ALTER TABLE kagzi.step_runs SET (autovacuum_enabled = off)`), "autovacuum", SeverityProblem, []string{"RESET (autovacuum_enabled)", "kagzi.step_runs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantAdvice(t, diagnose(t, tt.plant(t, dbtest.Database(t))), tt.topic, tt.severity, tt.texts...)
		})
	}
	t.Run("NoSchema", func(t *testing.T) {
		t.Parallel()
		found := diagnose(t, dbtest.Pool(t, dbtest.Empty()))
		wantAdvice(t, found, "schema", SeverityProblem, "Call kagzi.Migrate.")
		wantAdvice(t, found, "indexes", SeverityFine)
	})
	t.Run("NoRightsAtAll", func(t *testing.T) {
		t.Parallel()
		found := diagnose(t, poolWith(t, dbtest.Database(t).DSN, "role", "pg_monitor"))
		wantAdvice(t, found, "schema", SeverityProblem, `User "pg_monitor" lacks USAGE on schema kagzi and SELECT`, `→ GRANT USAGE ON SCHEMA kagzi TO "pg_monitor"; GRANT SELECT, `)
		for _, topic := range []string{"tables", "indexes"} {
			wantAdvice(t, found, topic, SeverityUnseen, `→ GRANT USAGE ON SCHEMA kagzi TO "pg_monitor";`)
			if hasAdvice(found, topic, SeverityFine) {
				t.Errorf("%s are fine", topic)
			}
		}
	})
	t.Run("NoDatabase", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t)
		pool.Close()
		if _, err := Doctor(t.Context(), pool); err == nil {
			t.Error("no error from a closed pool")
		}
		if _, err := Doctor(t.Context(), nil); err == nil {
			t.Error("no error without a pool")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Doctor(ctx, dbtest.Pool(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v of a cancelled context", err)
		}
	})
}

func TestDoctorFindsDeadRows(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	execSQL(t, db.Pool, `ALTER TABLE kagzi.signals SET (autovacuum_enabled = off)`)
	// A session reports what it did when it ends, at the latest.
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id) SELECT gen_random_uuid(), 'x', g, 'default', g FROM generate_series(1, 60000) AS g`,
		`DELETE FROM kagzi.signals WHERE sequence <= 30000`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the dead rows are found", func() bool {
		return hasAdvice(diagnose(t, db.Pool), "tables", SeverityWarning, " dead rows", "VACUUM (ANALYZE, VERBOSE) kagzi.signals")
	})
}

func TestDoctorBehindPooler(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	wantAdvice(t, diagnose(t, openPool(t, startPooler(t, db), 4)), "pooler", SeverityWarning, "transaction mode", "default_query_exec_mode=exec")
}

// A user without rights beyond Kagzi's tables gets an answer to all that he may see.
func TestDoctorOfPlainUser(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	role := strings.Replace(db.Name, "kagzi_test_", "kagzi_plain_", 1)
	execSQL(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		execSQL(t, db.Pool, `DROP OWNED BY `+role+`; DROP ROLE `+role, pgx.QueryExecModeSimpleProtocol)
	})
	execSQL(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role+`; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO `+role, pgx.QueryExecModeSimpleProtocol)
	other, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	found := diagnose(t, poolWith(t, db.DSN, "role", role))
	for _, topic := range topics {
		switch topic {
		case "durability":
		case "snapshots", "idle transactions":
			wantAdvice(t, found, topic, SeverityUnseen, "GRANT pg_read_all_stats TO", role)
		default:
			wantAdvice(t, found, topic, SeverityFine)
		}
	}
}

func TestDoctorJudges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		look     func(*doctor)
		topic    string
		severity Severity
		texts    []string
	}{
		{"Idle", func(d *doctor) {
			d.session(store.Session{PID: 7, User: "app", App: "shop", Open: time.Hour, Idle: time.Minute, Query: "SELECT\n1"})
		}, "idle transactions", SeverityWarning, []string{"pg_terminate_backend(7)", `"app" (shop)`, "60 seconds", "SELECT; 1"}},
		{"IdleForHours", func(d *doctor) { d.session(store.Session{Idle: 2 * time.Hour}) }, "idle transactions", SeverityProblem, []string{"2 hours"}},
		{"Snapshot", func(d *doctor) { d.session(store.Session{PID: 7, Open: 10 * time.Minute, XIDAge: 5}) }, "snapshots", SeverityWarning, []string{"10 minutes", "5 transactions"}},
		{"SnapshotOfHours", func(d *doctor) { d.session(store.Session{Open: 3 * time.Hour, XIDAge: 5}) }, "snapshots", SeverityProblem, nil},
		{"Standby", func(d *doctor) { d.session(store.Session{State: "walsender", XIDAge: 2_000_000}) }, "snapshots", SeverityWarning, []string{"hot_standby_feedback"}},
		{"HiddenSnapshot", func(d *doctor) { d.session(store.Session{PID: 7, XIDAge: 2_000_000}) }, "snapshots", SeverityWarning, []string{"pg_terminate_backend(7)"}},
		{"Prepared", func(d *doctor) { d.prepared(store.Prepared{GID: "it's", Age: time.Hour}) }, "snapshots", SeverityProblem, []string{"ROLLBACK PREPARED 'it''s'", "60 minutes"}},
		{"Slot", func(d *doctor) { d.slot(store.Slot{Name: "old", XIDAge: 2_000_000}) }, "snapshots", SeverityWarning, []string{"pg_drop_replication_slot('old')", "2000000 transactions"}},
		{"SlotWithLog", func(d *doctor) { d.slot(store.Slot{Name: "old", WALBytes: 20 << 30}) }, "snapshots", SeverityWarning, []string{"20 GiB"}},
		{"Clock", func(d *doctor) { d.clockIs(-3*time.Second, time.Millisecond) }, "clock", SeverityWarning, []string{"3s behind", "NTP"}},
		{"ClockByASlowLine", func(d *doctor) { d.clockIs(2*time.Second, 4*time.Second) }, "clock", SeverityFine, []string{"2s ahead of this process's, give or take 2s"}},
		{"ClocksAgree", func(d *doctor) { d.clockIs(-time.Microsecond, 9*time.Microsecond) }, "clock", SeverityFine, []string{"clock and this process's agree."}},
		{"ClocksAgreeAbout", func(d *doctor) { d.clockIs(0, 2*time.Millisecond) }, "clock", SeverityFine, []string{"agree, give or take 1ms."}},
		{"OldServer", func(d *doctor) { d.server = store.Server{Version: 130001, VersionText: "13.1"}; d.aboutServer() }, "server", SeverityProblem, []string{"Postgres 14 to 18", "13.1"}},
		{"NewServer", func(d *doctor) { d.server = store.Server{Version: 190001, VersionText: "19.1"}; d.aboutServer() }, "server", SeverityWarning, []string{"19.1"}},
		{"Standby server", func(d *doctor) { d.server = store.Server{Version: 150001, Standby: true}; d.aboutServer() }, "server", SeverityProblem, []string{"target_session_attrs"}},
	} {
		d := &doctor{}
		tt.look(d)
		if len(d.found) != 1 {
			t.Errorf("%s: %v", tt.name, d.found)
		}
		wantAdvice(t, d.found, tt.topic, tt.severity, tt.texts...)
	}
	for _, s := range []store.Session{
		{Open: 4 * time.Minute, XIDAge: 5}, {Open: time.Hour}, {Idle: 29 * time.Second, Open: time.Minute}, {State: "walsender", XIDAge: 1000},
	} {
		d := &doctor{}
		if d.session(s); len(d.found) != 0 {
			t.Errorf("%+v: %v", s, d.found)
		}
	}
	d := &doctor{}
	d.prepared(store.Prepared{Age: time.Minute})
	d.slot(store.Slot{Active: true, WALBytes: 20 << 30})
	d.slot(store.Slot{WALBytes: 1 << 20, XIDAge: 1000})
	if len(d.found) != 0 {
		t.Errorf("found %v", d.found)
	}
}
