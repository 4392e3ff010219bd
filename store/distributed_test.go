package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// The statements run on tables that Citus has distributed by namespace_id. No Citus is available to the tests, so they
// check its rules on the parse trees that Postgres makes of the statements. docs/distributed.md has the rules.

// notDistributed are the statements that need not run on distributed tables, and why.
var notDistributed = map[string]string{
	"activeQueues":           "ownQueues takes its place where tables may be distributed",
	"dueRuns":                "it and the others of DueNamespaces read all namespaces, which is refused on Citus",
	"dueLines":               "of DueNamespaces",
	"changedKeys":            "of DueNamespaces",
	"overdueRuns":            "of DueNamespaces",
	"unbegunRuns":            "of DueNamespaces",
	"waitingSteps":           "of DueNamespaces",
	"followingRuns":          "of DueNamespaces",
	"duties":                 "of DueNamespaces",
	"completedNamespaces":    "it and the others of Namespaces read all namespaces, which is refused on Citus",
	"stoppedNamespaces":      "of Namespaces",
	"waitingNamespaces":      "of Namespaces",
	"claimableNamespaces":    "of Namespaces",
	"otherNamespaces":        "of Namespaces",
	"expiredOfAll":           "of the sweep, which runs beside DueNamespaces",
	"routes":                 "ownRoutes takes its place",
	"newestRuns":             "ownNewestRuns takes its place",
	"partHolder":             "spreadPartHolder takes its place",
	"spreadPartHolder":       "partitions have events of all namespaces, so each server searches its own",
	"topicsWithoutConsumers": "ownTopicsWithoutConsumers takes its place",
	"topicStates":            "ownTopicStates takes its place",
}

func TestEveryStatementBearsDistribution(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	dbtest.PretendCitus(t, db)
	read, c := understood(t, db), readCatalog(t, db.Pool)
	all := statements(t)
	for name, sql := range all {
		if strings.Contains(sql, "'force_generic_plan'") && !strings.Contains(sql, "'citus.version'") {
			t.Errorf("%s: a generic plan cannot name a shard: where current_setting('citus.version', true) is set, "+
				"set force_custom_plan instead", name)
		}
		if notDistributed[name] != "" {
			continue
		}
		for _, wrong := range c.wrong(read(sql)) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
	for _, wrong := range c.wrongSpread(read(all["spreadPartHolder"])) {
		t.Errorf("spreadPartHolder: %s", wrong)
	}
	for name := range notDistributed {
		if len(c.wrong(read(all[name]))) == 0 {
			t.Errorf("%s follows the rules: remove it from notDistributed", name)
		}
	}
}

// Citus executes a CTE that changes rows as a statement of its own, which makes the whole many times slower. So the
// statements that most runs need have none.
func TestHotStatementsAreOneTask(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	read, all := understood(t, db), statements(t)
	changing := func(name string) (parts []string) {
		for _, c := range read(all[name]).list("cteList") {
			if c.node("ctequery").text("commandType") != cmdSelect {
				parts = append(parts, c.text("ctename"))
			}
		}
		return parts
	}
	for _, name := range []string{
		"claimRuns", "insertPendingWithoutKeys", "insertRunsWithoutKeys", "insertResults", "recordSteps",
		"completeRuns",
	} {
		if parts := changing(name); all[name] == "" || parts != nil {
			t.Errorf("the parts %v of %s change rows: let the last part of the statement be the only one", parts, name)
		}
	}
	if parts := changing("insertRuns"); !slices.Equal(parts, []string{"inserted", "changes"}) {
		t.Errorf("INVALID: of insertRuns, %v change rows", parts)
	}
}

// For each rule, statements that break it are found, and statements that follow it are not.
func TestDistributionRules(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	read, c := understood(t, db), readCatalog(t, db.Pool)
	const (
		runs   = "UPDATE kagzi.workflow_runs r SET "
		mine   = " WHERE r.run_id = $2 AND r.namespace_id = $1"
		micro  = "$3::bigint * interval '1 microsecond'"
		locked = "WITH l AS MATERIALIZED (SELECT q.run_id, now() AS now FROM kagzi.workflow_runs q WHERE q.run_id " +
			"= $2 AND q.namespace_id = $1 FOR UPDATE) "
		ofLocked = " FROM l WHERE r.run_id = l.run_id AND r.namespace_id = $1"
	)
	for _, tt := range []struct{ name, sql, want string }{
		{
			"a volatile function is set", runs + `available_at = clock_timestamp()` + mine,
			"SET available_at: clock_timestamp() is volatile",
		},
		{"a volatile function deep in what is set", runs + `attempts = CASE WHEN random() > 0.5 THEN 1 ELSE 2 END` +
			mine, "SET attempts: random() is volatile"},
		{"a volatile function in a condition", `DELETE FROM kagzi.workflow_runs r` + mine +
			` AND r.available_at < clock_timestamp()`, "WHERE: clock_timestamp() is volatile"},
		{"a volatile function in a CTE's UPDATE", `WITH u AS (` + runs + `lease = gen_random_uuid()` + mine +
			` RETURNING r.run_id) SELECT u.run_id FROM u`, "SET lease: gen_random_uuid() is volatile"},
		{"a volatile function that a sub-select brings", runs + `available_at = t.now
			FROM (SELECT clock_timestamp() AS now) t` + mine, "SET available_at: clock_timestamp() is volatile"},
		{
			"an interval is added to a column", runs + `available_at = r.available_at + interval '1 second'` + mine,
			"SET available_at: timestamptz_pl_interval() is stable, and its argument a column",
		},
		{
			"an interval is added to a CTE's column", locked + runs + `available_at = l.now + ` + micro + ofLocked,
			"SET available_at: timestamptz_pl_interval() is stable, and its argument a column",
		},
		{
			"an interval is taken from a column in a condition", runs + `status = 'PENDING'` + mine +
				` AND r.available_at - interval '1 second' < $3`,
			"WHERE: timestamptz_mi_interval() is stable, and its argument a column",
		},
		{
			"a time becomes text", runs + `error = r.available_at::text` + mine,
			"SET error: timestamptz_out() is stable, and its argument a column",
		},
		{
			"a UUID is appended to a text", runs + `error = $3::text || r.parent_run_id` + mine,
			"SET error: textanycat() is stable, and its argument a column",
		},
		{"an interval in CASE", runs + `available_at = CASE WHEN r.attempts = 0 THEN timestamptz 'epoch' + ` + micro +
			` END` + mine, "SET available_at: timestamptz_pl_interval() is stable and stands in CASE"},
		{
			"now() in CASE", runs + `finished_at = CASE WHEN $3::bool THEN now() END` + mine,
			"SET finished_at: now() is stable and stands in CASE",
		},
		{
			"now() in coalesce", runs + `started_at = coalesce(r.started_at, now())` + mine,
			"SET started_at: now() is stable and stands in coalesce",
		},
		{"now() in CASE, by a sub-select", `
			UPDATE kagzi.workers w SET release_at = t.next
			FROM (SELECT v.worker_id, CASE WHEN v.stopped_at IS NULL THEN NULL ELSE now() END AS next
				FROM kagzi.workers v WHERE v.worker_id = $2 AND v.namespace_id = $1) t
			WHERE w.worker_id = t.worker_id
				AND w.namespace_id = $1`, "SET release_at: now() is stable and stands in CASE"},
		{"now() is returned", runs + `attempts = 1` + mine + ` RETURNING now()`, "RETURNING: now() is stable"},
		{"an interval is returned, from a sub-select", runs + `attempts = 1` + mine +
			` RETURNING (SELECT max(w.started_at + interval '1 second') FROM kagzi.workers w
				WHERE w.namespace_id = $1)`, "RETURNING: timestamptz_pl_interval() is stable"},
		{
			"an insert returns it", `INSERT INTO kagzi.signals (run_id, namespace_id) VALUES ($2, $1) RETURNING now()`,
			"RETURNING: now() is stable",
		},
		{"a conflict sets it", `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
			VALUES ($2, '', 1, $1, '')
			ON CONFLICT (run_id, name, sequence, namespace_id)
				DO UPDATE SET received_at = now()`, "DO UPDATE SET received_at: now() is stable"},

		{
			"no namespace", `SELECT r.status FROM kagzi.workflow_runs r WHERE r.run_id = $1`,
			"kagzi.workflow_runs r is not filtered by r.namespace_id = $n",
		},
		{"the namespace of another table", `SELECT 1 FROM kagzi.workflow_runs r JOIN kagzi.signals p
			ON p.run_id = r.run_id AND p.namespace_id = r.namespace_id
			WHERE r.namespace_id = $1`, "kagzi.signals p is not filtered"},
		{"the namespace under OR", `SELECT 1 FROM kagzi.workflow_runs r WHERE r.namespace_id = $1
			OR r.status = 'PENDING'`, "kagzi.workflow_runs r is not filtered"},
		{
			"an update without", `UPDATE kagzi.workers w SET status = 'OFFLINE' WHERE w.worker_id = $1`,
			"kagzi.workers w is not filtered",
		},
		{"a sub-select without", runs + `attempts = 1` + mine + ` AND EXISTS (SELECT FROM kagzi.step_runs s
			WHERE s.run_id = r.run_id)`, "kagzi.step_runs s is not filtered"},
		{"a recursive CTE without", statements(t)["activeQueues"], "kagzi.workflow_runs r is not filtered"},
		{"an insert of another column", `INSERT INTO kagzi.signals (run_id, namespace_id) SELECT r.run_id,
			r.status FROM kagzi.workflow_runs r WHERE r.run_id = $2
			AND r.namespace_id = $1`, "INSERT INTO kagzi.signals does not set namespace_id to $n"},
		{"an insert of any namespace", `INSERT INTO kagzi.signals (run_id, namespace_id) SELECT r.run_id,
			r.namespace_id FROM kagzi.workflow_runs r WHERE r.run_id = $1`, "kagzi.workflow_runs r is not filtered"},
		{"the server's connections", `SELECT 1 FROM kagzi.workers w LEFT JOIN pg_stat_activity a
			ON a.pid = w.backend_pid WHERE w.namespace_id = $1`, "pg_stat_activity is of the server that has the rows"},
		{"the server's start", `SELECT w.server_start = pg_postmaster_start_time() FROM kagzi.workers w
			WHERE w.namespace_id = $1`, "pg_postmaster_start_time is of the server"},
		{"the server's process", runs + `attempts = pg_backend_pid()` + mine, "pg_backend_pid is of the server"},

		{
			"a ctid", `WITH l AS MATERIALIZED (SELECT q.ctid AS place FROM kagzi.workflow_runs q WHERE q.run_id = $2
			AND q.namespace_id = $1) ` + runs + `attempts = 1 FROM l WHERE r.ctid = l.place AND r.namespace_id = $1`,
			"WHERE: a row is found by its ctid",
		},
		{
			"a recursive CTE beside an insert",
			`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT n.i + 1 FROM n WHERE n.i < 9),
			k AS (INSERT INTO kagzi.signals (run_id, namespace_id) SELECT $2, $1 FROM n) SELECT 1`,
			"WITH RECURSIVE stands in a statement that changes rows",
		},
		{"a column of type void", `WITH l AS MATERIALIZED (SELECT pg_advisory_xact_lock(1) AS locked) SELECT count(*)
			FROM l CROSS JOIN kagzi.signals s WHERE s.namespace_id = $1`, "locked has the type void"},
		{"a CTE in a conflict", `WITH l AS MATERIALIZED (SELECT $3::int AS n)
			INSERT INTO kagzi.signals AS s (run_id, name, sequence, namespace_id, signal_id) VALUES ($2, '', 1, $1, '')
			ON CONFLICT (run_id, name, sequence, namespace_id) DO UPDATE SET sequence = excluded.sequence
			WHERE s.sequence < (SELECT l.n FROM l)`, "ON CONFLICT has a sub-select"},
		{"an argument in a conflict", `INSERT INTO kagzi.signals AS s (run_id, name, sequence, namespace_id, signal_id)
			SELECT u.run_id, '', 1, $1, '' FROM unnest($2::uuid[]) AS u (run_id)
			ON CONFLICT (run_id, name, sequence, namespace_id) DO UPDATE SET sequence = excluded.sequence
			WHERE NOT $3::bool`, "ON CONFLICT has an argument"},

		{"times are computed in a CTE", `
			WITH l AS MATERIALIZED (SELECT q.run_id,
				clock_timestamp() + ` + micro + ` AS until FROM kagzi.workflow_runs q WHERE q.run_id = $2
					AND q.namespace_id = $1 FOR UPDATE)
			UPDATE kagzi.workflow_runs r SET available_at = CASE WHEN r.status = 'RUNNING'
				THEN l.until END` + ofLocked + ` RETURNING r.run_id, r.available_at <= l.until`, ""},
		{"an interval over arguments alone", runs + `available_at = GREATEST(r.available_at, timestamptz 'epoch' + ` +
			micro + `), finished_at = now()` + mine, ""},
		{"the namespace in a join's condition", `SELECT 1 FROM kagzi.workflow_runs r LEFT JOIN kagzi.signals p
			ON p.run_id = r.run_id AND p.namespace_id = $1 WHERE $1 = r.namespace_id`, ""},
		{"an insert of the row's namespace", `INSERT INTO kagzi.signals (run_id, namespace_id)
			SELECT l.run_id, l.namespace_id FROM unnest($2::uuid[]) AS u (run_id) CROSS JOIN LATERAL (
				SELECT r.run_id, r.namespace_id FROM kagzi.workflow_runs r
				WHERE r.run_id = u.run_id AND r.namespace_id = $1 FOR SHARE) l`, ""},
		{"an insert of the namespace", `WITH u AS (SELECT $2::uuid AS run_id) INSERT INTO kagzi.signals (run_id,
			namespace_id) SELECT u.run_id, $1 FROM u`, ""},
		{"the server's state alone", `SELECT a.pid, pg_postmaster_start_time() FROM pg_stat_activity a`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := c.wrong(read(tt.sql))
			if tt.want == "" && len(got) > 0 {
				t.Errorf("wrong %q, want nothing", got)
			}
			if tt.want != "" &&
				!slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, tt.want) }) {
				t.Errorf("wrong %q, want %q", got, tt.want)
			}
		})
	}
}

// A statement that each server runs on its own rows has no correlated sub-select over a function.
func TestSpreadRules(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	read, c := understood(t, db), readCatalog(t, db.Pool)
	const of = `SELECT s.consumer FROM kagzi.subscriptions s WHERE EXISTS (SELECT 1 FROM `
	for _, tt := range []struct {
		name, sql string
		wrong     bool
	}{
		{"a function over a column", of + `unnest(s.consumed) AS g (gap))`, true},
		{"a column beside a function", of + `unnest($1::int[]) AS u (n) WHERE u.n = s.position)`, true},
		{"a column below a function", of + `generate_series(1, $1::int) AS u (n) WHERE EXISTS (SELECT 1
			FROM kagzi.events x WHERE x.position = u.n AND x.topic = s.topic))`, true},
		{"a table", of + `kagzi.events x WHERE x.topic = s.topic AND NOT s.consumed @> x.position)`, false},
		{"a function alone", of + `unnest($1::int[]) AS u (n) WHERE u.n > 7)`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := c.wrongSpread(read(tt.sql)); (len(got) > 0) != tt.wrong {
				t.Errorf("wrong %q, want any: %t", got, tt.wrong)
			}
		})
	}
}

// Each table can be distributed by namespace_id.
func TestEveryTableBearsDistribution(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for _, wrong := range tablesWrong(t, db.Pool) {
		t.Error(wrong)
	}
	exec(t, db.Pool, `
		CREATE TABLE kagzi.bare (id int PRIMARY KEY);
		CREATE TABLE kagzi.child (id int, namespace_id text NOT NULL, run_id uuid, PRIMARY KEY (id, namespace_id),
			FOREIGN KEY (run_id, namespace_id) REFERENCES kagzi.workflow_runs (run_id, namespace_id));
		CREATE UNIQUE INDEX child_run ON kagzi.child (run_id)`, pgx.QueryExecModeSimpleProtocol)
	got := tablesWrong(t, db.Pool)
	want := []string{
		"kagzi.bare has no column namespace_id", "kagzi.bare is unique without namespace_id by kagzi.bare_pkey",
		"kagzi.child has child_run_id_namespace_id_fkey, a foreign key",
		"kagzi.child is unique without namespace_id by kagzi.child_run",
	}
	for i, w := range want {
		if len(got) != len(want) || !strings.HasPrefix(got[i], w) {
			t.Fatalf("planted, found %q, want %q", got, want)
		}
	}
}

// tablesWrong returns the reasons why our tables cannot be distributed by namespace_id; none if they can.
func tablesWrong(t *testing.T, db pg.DB) (wrong []string) {
	t.Helper()
	var what string
	eachRow(t, db, `
		SELECT 'kagzi.' || c.relname || ' ' || w.what
		FROM pg_class c
		CROSS JOIN LATERAL (
			SELECT 'has no column namespace_id that is text and NOT NULL: add one, and put it in every key'
			WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'namespace_id'
				AND a.attnotnull AND a.atttypid = 'text'::regtype)
			UNION ALL
			SELECT 'is unique without namespace_id by ' || i.indexrelid::regclass || ': add the column to its end'
			FROM pg_index i
			WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion)
				AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'namespace_id'
					AND a.attnum = ANY (i.indkey))
			UNION ALL
			SELECT 'has ' || o.conname ||
				', a foreign key, which locks the other row at every write: have the statement check instead'
			FROM pg_constraint o
			WHERE o.conrelid = c.oid AND o.contype = 'f'
		) w (what)
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p')
			AND c.relname NOT IN ('schema_migrations', 'event_parts', 'event_keepers') AND NOT c.relispartition
		ORDER BY 1`, []any{&what}, func() { wrong = append(wrong, what) })
	return wrong
}
