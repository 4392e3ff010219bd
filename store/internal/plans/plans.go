// Package plans checks the plans of statements in tests.
package plans

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Plan is the result of EXPLAIN.
type Plan struct {
	Node
	Text string // as people read it
}

// A Node is a step of a plan.
type Node struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	IndexCond string  `json:"Index Cond"`
	Rows      float64 `json:"Actual Rows"`
	Removed   float64 `json:"Rows Removed by Filter"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Plans     []Node  `json:"Plans"`
}

// Each calls f for the node and all nodes below it.
func (n *Node) Each(f func(*Node)) {
	f(n)
	for i := range n.Plans {
		n.Plans[i].Each(f)
	}
}

// Reads reports whether the node, or one below it, reads the relation.
func (n *Node) Reads(relation string) (yes bool) {
	n.Each(func(n *Node) { yes = yes || n.Relation == relation })
	return yes
}

// Buffers is how many pages were touched.
func (p *Plan) Buffers() int { return p.Hit + p.Read }

// MaxRows is how many rows one scan of the relation read at most.
func (p *Plan) MaxRows(relation string) (rows float64) {
	p.Each(func(n *Node) {
		if n.Relation == relation && strings.HasSuffix(n.Type, "Scan") {
			rows = max(rows, n.Rows+n.Removed)
		}
	})
	return rows
}

// Explain returns the plan of sql for args.
func Explain(t *testing.T, db pg.DB, how, sql string, args ...any) *Plan {
	t.Helper()
	dbtest.NotOnCitus(t, "the test reads the plan of one server's statement")
	text := one[string](t, db, how+" "+sql, args...)
	var out []struct{ Plan Node }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	p := &Plan{Node: out[0].Plan}
	p.Text = p.outline("    ")
	return p
}

// outline returns the plan in the form that people read.
func (n *Node) outline(indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s %s %s\n", indent, n.Type, n.Relation, n.Index, n.IndexCond)
	for i := range n.Plans {
		b.WriteString(n.Plans[i].outline(indent + "  "))
	}
	return b.String()
}

// Indexes that statements of both packages use.
const (
	ClaimIndex = "workflow_runs_claim"
	RunsKey    = "workflow_runs_pkey"
	StepsKey   = "step_runs_pkey"
	SignalsKey = "signals_pkey"
	DueIndex   = "schedules_due"
	NamesIndex = "schedules_name"
	KeyedIndex = "workflow_runs_keyed"
	SlotsIndex = "workflow_runs_slots"
	KeysKey    = "run_keys_pkey"
	QueuesKey  = "queues_pkey"
	PausesKey  = "pauses_pkey"
)

// A Statement is one whose plan is checked, with the indexes that it may use and the columns that the search of
// Each must have conditions on.
type Statement struct {
	Name    string
	SQL     string
	Args    []any
	Indexes map[string][]string
}

// Of returns a statement.
func Of(name, sql string, args []any, indexes map[string][]string) Statement {
	return Statement{Name: name, SQL: sql, Args: args, Indexes: indexes}
}

// Both returns the indexes of a and b. An index of both has the columns of a.
func Both(a, b map[string][]string) map[string][]string {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// watched are the tables that may not be read without an index.
var watched = []string{
	"workflow_runs", "step_runs", "schedules", "run_keys", "queues", "start_windows", "start_items", "pauses",
	"consumers", "subscriptions",
}

// Wrong returns the parts of the plan that differ from want.
func (p *Plan) Wrong(want Statement) (wrong []string) {
	sorts := strings.HasPrefix(want.Name, "claimRuns") || strings.HasPrefix(want.Name, "claimLimited") ||
		want.Name == "missedRuns"
	p.Each(func(n *Node) {
		columns, ok := want.Indexes[n.Index]
		switch {
		case n.Type == "ModifyTable", n.Type == "Bitmap Heap Scan", n.Type == "Tid Scan":
			// of the former two, the child node counts; the last reads a row by its place
		case n.Index != "" && !ok, n.Index == "" && slices.Contains(watched, n.Relation):
			wrong = append(wrong, fmt.Sprintf("%s of %s by %q", n.Type, n.Relation, n.Index))
		case n.Index != "":
			for _, c := range columns {
				if !strings.Contains(n.IndexCond, c) {
					wrong = append(wrong, fmt.Sprintf("%s by %s with condition %s, without %s", n.Type, n.Index,
						n.IndexCond, c))
				}
			}
		case n.Type == "Sort" && sorts && n.Reads("workflow_runs"):
			wrong = append(wrong, "the claim sorts")
		}
	})
	return wrong
}

// LoadRuns inserts runs as a busy year does: half of them sleep, in the part of the index that workers read, and half
// have ended.
const LoadRuns = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		locked_by, lease, finished_at, external_id, input, run_key, key_scope)
	SELECT ('01900000' || lpad(to_hex(g), 8, '0') || '7000800000000000')::text::uuid, 'test', 'queue', 'type', 1,
		CASE WHEN g % 2 = 0 THEN 'SLEEPING' ELSE 'COMPLETED' END,
		CASE WHEN g % 2 = 0 THEN now() + interval '1 day' + g * interval '1 ms' END,
		NULL, NULL, CASE WHEN g % 2 = 1 THEN now() END, CASE WHEN g % 50 < 2 THEN 'id-' || g END, '\x7b7d',
		CASE WHEN g % 20 = 4 THEN 'key-' || g % 1000 END, CASE WHEN g % 20 = 4 THEN 'queue' END
	FROM generate_series(1, $1::int) AS g`

const loadSteps = `
	INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
		first_attempt, started_at, finished_at)
	SELECT run_id, 'step', 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1, now(), now() FROM kagzi.workflow_runs
		LIMIT 300000`

const loadSchedules = `
	INSERT INTO kagzi.schedules (schedule_id, namespace_id, name, cron_expr, max_catchup, timing, paused, cursor_at,
		next_at, task_queue, workflow_type, priority)
	SELECT run_id, namespace_id, 'schedule ' || run_id, '0 12 * * *', 0, '{}', false, now(), now() + interval '1 day',
		'queue', 'type', 3
	FROM kagzi.workflow_runs LIMIT 10000`

const loadKeys = `
	INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
	SELECT DISTINCT key_scope, run_key, namespace_id, timestamptz 'infinity' FROM kagzi.workflow_runs
		WHERE run_key IS NOT NULL`

const loadMessages = `
	INSERT INTO kagzi.signals (run_id, namespace_id, name, sequence, signal_id)
	SELECT run_id, namespace_id, 'signal', 1, run_id FROM kagzi.workflow_runs`

const loadWindows = `
	WITH windows AS (
		INSERT INTO kagzi.start_windows (window_id, namespace_id, policy, workflow_type, start_key, run_id, closes_at)
		SELECT run_id, namespace_id, 'batch', 'type', run_id, run_id, now() + interval '1 day' FROM kagzi.workflow_runs
			LIMIT 10000
	)
	INSERT INTO kagzi.start_items (run_id, place, namespace_id, item_id, input)
	SELECT run_id, 0, namespace_id, run_id, '{}' FROM kagzi.workflow_runs LIMIT 10000`

const loadConsumers = `
	WITH inserted AS (
		INSERT INTO kagzi.consumers (consumer, namespace_id, run_key, task_queue, priority, least_wake, most_wake,
			pause_on_failure)
		SELECT 'consumer-' || g, 'test', 'consumer-' || g, 'queue', 2, interval '1 s', interval '1 day', true
			FROM generate_series(1, 10000) AS g
		RETURNING consumer
	)
	INSERT INTO kagzi.subscriptions (topic, consumer, namespace_id, run_key, task_queue, subscribed, position,
		looked_at)
	SELECT 'topic', i.consumer, 'test', i.consumer, 'queue', true, 0, 0 FROM inserted i`

const loadWaits = `
	WITH waits AS (
		INSERT INTO kagzi.event_waits (topic, event_id, run_id, step, step_hash, namespace_id)
		SELECT 'topic', run_id, run_id, 'step', run_id, namespace_id FROM kagzi.workflow_runs LIMIT 10000
	)
	INSERT INTO kagzi.awaited_events (namespace_id, publication, topic, event_id)
	SELECT namespace_id, run_id, 'topic', run_id FROM kagzi.workflow_runs LIMIT 10000`

// AsNew empties tables, and makes the planner know nothing of them. An earlier test may have left indexes that are
// empty but not small, and statistics. An autovacuum that comes beside a transaction that inserts many rows counts
// their pages, and no rows: until the next one, which is due at once, the planner takes the tables for empty.
func AsNew(t *testing.T, pool *pgxpool.Pool, tables string) {
	t.Helper()
	for table := range strings.SplitSeq(tables, ", ") {
		exec(t, pool, `ALTER TABLE `+table+` SET (autovacuum_enabled = off)`)
		t.Cleanup(func() { // other tests may get the database; t's context has ended
			if _, err := pool.Exec(context.Background(), `ALTER TABLE `+table+
				` RESET (autovacuum_enabled)`); err != nil {
				t.Error(err)
			}
		})
	}
	exec(t, pool, `TRUNCATE `+tables)
	ForgetStatistics(t, pool)
}

// ForgetStatistics makes the planner know nothing of the tables.
func ForgetStatistics(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class
		WHERE relnamespace = 'kagzi'::regnamespace)`)
	exec(t, pool, `UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = 'kagzi'::regnamespace
		AND relkind = 'r'`)
}

// tables are those that Check fills, as TRUNCATE and ANALYZE name them.
const tables = `kagzi.workflow_runs, kagzi.step_runs, kagzi.schedules, kagzi.signals, kagzi.run_events, ` +
	`kagzi.audit_log, kagzi.run_keys, kagzi.key_changes, kagzi.queues, kagzi.start_windows, kagzi.start_items, ` +
	`kagzi.pauses, kagzi.consumers, kagzi.subscriptions, kagzi.event_waits, kagzi.awaited_events`

// Check checks the plans of statements while the tables are small and large, with statistics and without.
func Check(t *testing.T, statements func(pool *pgxpool.Pool, ids []uuid.UUID) []Statement) {
	t.Helper()
	dbtest.NotOnCitus(t, "the test reads the plans of one server's statements")
	db := dbtest.Database(t, dbtest.Unchecked())
	pool := db.Pool
	for part := range clause.EventParts {
		exec(t, pool, fmt.Sprintf(`ALTER TABLE kagzi.events_%d SET (autovacuum_enabled = off)`, part))
	}
	exec(t, pool, `TRUNCATE kagzi.events`)
	AsNew(t, pool, tables)
	check := func(state string, lists ...[]Statement) { checkNow(t, db, state, lists...) }

	// Plans made while the tables are empty or small stay in use until autovacuum or an operator analyzes.
	fake := make([]uuid.UUID, 20)
	for i := range fake {
		fake[i] = uuid.New()
	}
	if campaign.Long {
		check("new tables", statements(pool, fake))
	}
	exec(t, pool, `VACUUM ANALYZE `+tables)
	if campaign.Long {
		check("empty tables", statements(pool, fake))
	}

	// The planner's statistics now say that the tables are empty.
	load(t, pool, campaign.Size(100_000, 300_000))
	ids := func(n int) []uuid.UUID {
		return one[[]uuid.UUID](t, pool, `SELECT array_agg(l.run_id) FROM (
			SELECT run_id FROM kagzi.step_runs OFFSET 1000 LIMIT $1) l`, n)
	}
	few, most := statements(pool, ids(20)), statements(pool, ids(1000))
	check("stale statistics", few, most)
	exec(t, pool, `ANALYZE `+tables)
	check("fresh statistics", few, most)
	ForgetStatistics(t, pool)
	check("missing statistics", few, most)
	if !campaign.Long {
		return
	}

	// If autovacuum runs while no run is active, the indexes of active runs look empty.
	exec(t, pool, `TRUNCATE `+tables)
	load(t, pool, 200_000)
	exec(t, pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()`)
	exec(t, pool, `VACUUM ANALYZE `+tables)
	few = statements(pool, ids(20))
	check("all runs over", few, statements(pool, ids(1000)))

	for _, n := range []int{5, 100, 1000, 30000} {
		exec(t, pool, `TRUNCATE `+tables)
		ForgetStatistics(t, pool)
		load(t, pool, n)
		check(fmt.Sprintf("%d runs, never analyzed", n), few)
		exec(t, pool, `VACUUM ANALYZE `+tables)
		check(fmt.Sprintf("%d runs", n), few)
	}
}

// load fills the tables with so many runs and their rows.
func load(t *testing.T, pool *pgxpool.Pool, runs int) {
	t.Helper()
	exec(t, pool, LoadRuns, runs)
	for _, sql := range []string{
		loadSteps, loadSchedules, loadMessages, loadKeys, loadWindows, loadConsumers,
		loadWaits,
	} {
		exec(t, pool, sql)
	}
}

// checkNow checks the plans of the statements of each list, and the kept plans of the first.
func checkNow(t *testing.T, db *dbtest.DB, state string, lists ...[]Statement) {
	t.Helper()
	conn := dbtest.Connect(t, db.DSN)
	for _, p := range lists[0] {
		exec(t, conn, `PREPARE `+p.Name+` AS `+p.SQL, pgx.QueryExecModeSimpleProtocol)
		execute := "EXECUTE " + p.Name + literals(t, conn, p)
		got := Explain(t, Prepared(t, conn), "EXPLAIN (FORMAT JSON)", execute, pgx.QueryExecModeSimpleProtocol)
		kept := one[bool](t, conn, `SELECT generic_plans > 0 FROM pg_prepared_statements WHERE name = $1`,
			strings.ToLower(p.Name))
		if wrong := got.Wrong(p); kept && len(wrong) > 0 {
			t.Errorf("%s, kept plan of %s: %s\n%s", state, p.Name, strings.Join(wrong, "; "), got.Text)
		}
		if !kept && len(lists) > 1 {
			t.Errorf("%s: %s is planned at every call", state, p.Name)
		}
	}
	for _, list := range lists {
		for _, p := range list {
			got := Explain(t, Prepared(t, conn), "EXPLAIN (FORMAT JSON)", p.SQL, p.Args...)
			if wrong := got.Wrong(p); len(lists) > 1 && len(wrong) > 0 {
				t.Errorf("%s, plan of %s for its arguments: %s\n%s", state, p.Name,
					strings.Join(wrong, "; "), got.Text)
			}
		}
	}
	exec(t, conn, `ROLLBACK`)
	if t.Failed() {
		t.Fatal("the planner's statistics: ", one[string](t, db.Pool, `SELECT string_agg(concat_ws(' ', relname,
			relpages, reltuples, pg_relation_size(oid) / 8192), ', ')
			FROM pg_class WHERE relnamespace = 'kagzi'::regnamespace AND relkind IN ('r', 'i')`))
	}
}

// Prepared begins a transaction as the store does for the statements that it sends, or begins it anew.
func Prepared(t *testing.T, conn *pgx.Conn) *pgx.Conn {
	t.Helper()
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, pg.ApplySettings)
	return conn
}

// literals returns the arguments of p as a list for EXECUTE.
func literals(t *testing.T, conn *pgx.Conn, p Statement) string {
	t.Helper()
	d, err := conn.Prepare(t.Context(), p.Name+"_described", p.SQL)
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]string, len(p.Args))
	for i, arg := range p.Args {
		text, err := conn.TypeMap().Encode(d.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			t.Fatalf("%s: $%d: %v", p.Name, i+1, err)
		}
		if parts[i] = "NULL"; text != nil {
			parts[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// WantAll fails unless all statements of the package in the folder that read or write the big tables are checked, or
// are among others, which another test checks.
func WantAll(t *testing.T, statements map[string]string, checked []Statement, others ...string) {
	t.Helper()
	for _, p := range checked {
		others = append(others, p.Name)
	}
	for name, sql := range statements {
		if big := strings.Contains(sql, "kagzi.workflow_") || strings.Contains(sql, "kagzi.step_runs") ||
			strings.Contains(sql, "kagzi.signals") ||
			strings.Contains(sql, "kagzi.schedules"); big && !slices.Contains(others, name) {
			t.Errorf("the plan of %s is not checked", name)
		}
	}
}

// ofOwner returns the owner's pool for a pool, because these statements are the test's own. Transactions stay as they
// are.
func ofOwner(t *testing.T, db pg.DB) pg.DB {
	if pool, ok := db.(*pgxpool.Pool); ok {
		return dbtest.Owner(t, pool)
	}
	return db
}

func exec(t *testing.T, db pg.DB, sql string, args ...any) {
	t.Helper()
	if _, err := ofOwner(t, db).Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func one[T any](t *testing.T, db pg.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := ofOwner(t, db).QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
