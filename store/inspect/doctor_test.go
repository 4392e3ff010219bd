package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
)

// Indexes lists all indexes of the schema: if a migration adds one, add it there, too.
func TestIndexesAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	s := open(t)
	states, err := IndexStates(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Indexes {
		if !states[name] {
			t.Errorf("%s is not in the schema", name)
		}
		delete(states, name)
	}
	for name := range states {
		t.Errorf("%s is missing from Indexes", name)
	}
	if !slices.IsSorted(Indexes) {
		t.Error("Indexes is not sorted")
	}
}

func TestOpenSessions(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	idle := dbtest.Connect(t, db.DSN)
	exec(t, idle, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	exec(t, idle, `SELECT 'where it stopped'`)
	sessions, hidden, err := OpenSessions(t.Context(), db.Pool)
	if err != nil || hidden != 0 || len(sessions) != 1 {
		t.Fatalf("%+v, %d hidden, %v", sessions, hidden, err)
	}
	got := sessions[0]
	if uint32(got.PID) != idle.PgConn().PID() || got.State != "idle in transaction" || got.Open <= 0 || got.Idle <= 0 ||
		got.Idle > got.Open || !strings.Contains(got.Query, "where it stopped") {
		t.Errorf("session %+v", got)
	}
	// An old snapshot keeps the row versions of transactions that ended since.
	exec(t, idle, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'test', 'STARTED')`)
	exec(t, db.Pool, `SELECT pg_current_xact_id()`)
	if sessions, _, err = OpenSessions(t.Context(), db.Pool); err != nil || len(sessions) != 1 ||
		sessions[0].XIDAge < 1 {
		t.Errorf("%+v, %v", sessions, err)
	}

	poor := dbtest.Connect(t, db.DSN)
	role := "kagzi_poor_" + strings.ReplaceAll(db.Name, "kagzi_test_", "")
	exec(t, poor, `CREATE ROLE `+role)
	defer exec(t, db.Pool, `DROP ROLE `+role)
	exec(t, poor, `SET ROLE `+role)
	// A user without rights sees that a session keeps row versions, but not since when.
	if sessions, hidden, err = OpenSessions(t.Context(), poor); err != nil || hidden < 2 || len(sessions) != 1 ||
		sessions[0].XIDAge < 1 || sessions[0].Open != 0 || strings.Contains(sessions[0].Query, "INSERT") {
		t.Errorf("without rights: %+v, %d hidden, %v", sessions, hidden, err)
	}
	exec(t, poor, `RESET ROLE`)
	exec(t, idle, `ROLLBACK`, pgx.QueryExecModeSimpleProtocol)
}

// The test has a server of its own, because both features need settings and belong to the whole server.
func TestPreparedTransactionsAndSlots(t *testing.T) {
	t.Parallel()
	server, err := localpg.Config{Settings: map[string]string{
		"max_prepared_transactions": "2", "wal_level": "logical",
		"max_replication_slots": "4", "max_wal_senders": "2",
	}}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	conn := dbtest.Connect(t, server.SocketDSN())
	exec(t, conn, `CREATE TABLE kept (n int)`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `INSERT INTO kept VALUES (1)`)
	exec(t, conn, `PREPARE TRANSACTION 'it''s'`)
	prepared, err := PreparedTransactions(t.Context(), conn)
	if err != nil || len(prepared) != 1 || prepared[0].GID != "it's" || prepared[0].Age <= 0 {
		t.Errorf("prepared %+v, %v", prepared, err)
	}
	exec(t, conn, `ROLLBACK PREPARED 'it''s'`)
	exec(t, conn, `SELECT pg_create_physical_replication_slot('one', true)`)
	exec(t, conn, `INSERT INTO kept SELECT generate_series(1, 1000)`)
	found, err := Slots(t.Context(), conn)
	if err != nil || len(found) != 1 || found[0].Name != "one" || found[0].Active || found[0].WALBytes <= 0 {
		t.Errorf("slots %+v, %v", found, err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := open(t)
	tx := begin(t, s)
	exec(t, tx, `SET LOCAL statement_timeout = '90s'`)
	got, err := Settings(t.Context(), tx, "statement_timeout", "lock_timeout", "fsync", "no_such_setting")
	if err != nil {
		t.Fatal(err)
	}
	if got["statement_timeout"].Time.Seconds() != 90 || got["lock_timeout"].Time != 0 || got["fsync"].Value == "" ||
		got["no_such_setting"].Value != "" {
		t.Errorf("settings %+v", got)
	}
}

// The shards of a table on a node are added up, and a node that does not answer says why.
func TestNodes(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	dbtest.PretendCitus(t, db)
	exec(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status,
		lease_timeout, stale_after)
		VALUES (gen_random_uuid(), 'a', '{q}', '{}', 'OFFLINE', '1 minute', '1 minute')`)
	nodes, err := Nodes(t.Context(), db.Pool)
	if err != nil || len(nodes) != 2 || nodes[0].Name != "coordinator:5432" || nodes[1].Name != "node:5433" {
		t.Fatalf("nodes %+v, error %v", nodes, err)
	}
	for _, n := range nodes {
		has := slices.ContainsFunc(n.Tables, func(t Table) bool {
			return t.Name == "workers" && t.Bytes > 0 && t.Autovacuum
		})
		if !has || len(n.Tables) < 8 || n.Error != "" {
			t.Errorf("%+v", n)
		}
	}
	tables, err := shards(`[{"name": "signals_102008", "live": 3, "dead": 4, "bytes": 10, "since": 7,
			"autovacuum": true, "analyzed": true},
		{"name": "workers", "autovacuum": true},
		{"name": "signals_102009", "live": 5, "dead": 6, "vacuums": 2, "bytes": 20, "expected": 9, "since": 8,
			"autovacuum": false}]`)
	want := []Table{
		{
			Name: "signals", Live: 8, Dead: 10, Vacuums: 2, SinceVacuum: 8 * time.Microsecond, Bytes: 30,
			ExpectedBytes: 9,
		},
		{Name: "workers", Autovacuum: true, Analyzed: true},
	}
	if err != nil || !slices.Equal(tables, want) {
		t.Errorf("tables %+v, error %v, want %+v", tables, err, want)
	}
	exec(t, db.Pool, `SET allow_system_table_mods = on; ALTER VIEW pg_catalog.pg_stats RENAME TO gone`,
		pgx.QueryExecModeSimpleProtocol)
	if nodes, err = Nodes(t.Context(), db.Pool); err != nil || len(nodes) != 2 || nodes[1].Tables != nil ||
		nodes[1].Error == "" {
		t.Errorf("nodes %+v, error %v", nodes, err)
	}
}
