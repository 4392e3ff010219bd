package inspect

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// scalingPage returns the query for KEDA and the rights that it needs, as docs/monitoring.md has them.
func scalingPage(t *testing.T) (query, rights string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^        query: \\|\n((?:          .*\n)+)```$").FindSubmatch(text)
	grants := regexp.MustCompile("(?m)^```sql\n(CREATE ROLE keda (?:.*\n)+?)```$").FindSubmatch(text)
	if found == nil || grants == nil {
		t.Fatal("the page has no query or no rights")
	}
	return strings.ReplaceAll("\n"+string(found[1]), "\n          ", "\n"), string(grants[1])
}

// scalingRuns are runs of which some count.
var scalingRuns = []struct {
	what, namespace, queue, typ, status, at, key string
	runs, counted                                int
	change                                       string
}{
	{what: "due", typ: "b", status: store.Pending, at: "-1 hour", runs: 3, counted: 3},
	{
		what: "due by priority", typ: "a", status: store.Pending, at: "-1 hour",
		runs: 4, counted: 4, change: `priority = 1`,
	},
	{what: "awake", typ: "c", status: store.Sleeping, at: "-1 second", runs: 2, counted: 2},
	{what: "running", typ: "b", status: store.Running, at: "4 minutes", runs: 5, counted: 5},
	{what: "lost", typ: "d", status: store.Running, at: "-1 minute", runs: 1, counted: 1},
	{what: "asleep", typ: "b", status: store.Sleeping, at: "2 minutes", runs: 7},
	{
		what: "asleep for a signal", typ: "only asleep", status: store.Sleeping, at: "1 day",
		runs: 7, change: `available_at = 'infinity'`,
	},
	{what: "delayed", typ: "b", status: store.Pending, at: "1 minute", runs: 7},
	{
		what: "ended", typ: "e", status: store.Completed, at: "-1 hour",
		runs: 7, change: `available_at = NULL, finished_at = now()`,
	},
	{
		what: "paused", typ: "p", status: store.Pending, at: "-1 hour",
		runs: 7, change: `paused_at = now()`,
	},
	{what: "waiting for its key", typ: "k", status: store.Pending, at: "-1 hour", key: "x", runs: 7},
	{
		what: "running with its key", typ: "l", status: store.Running, at: "4 minutes", key: "x",
		runs: 2, counted: 2, change: `slot = 1`,
	},
	{
		what: "due with a slot", typ: "m", status: store.Sleeping, at: "-1 hour", key: "y",
		runs: 1, counted: 1, change: `slot = 2`,
	},
	{what: "of another queue", queue: "other", typ: "b", status: store.Pending, at: "-1 hour", runs: 7},
	{
		what: "of another namespace", namespace: "other", typ: "b", status: store.Pending, at: "-1 hour",
		runs: 7,
	},
	{
		what: "more than the bound", typ: "z", status: store.Pending, at: "-1 hour",
		runs: 1100, counted: 1000,
	},
}

// The query counts what is due or under way in the queue, whatever else there is, with the rights of the page alone.
func TestScalingQuery(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	query, rights := scalingPage(t)
	s := newBoth(db.Pool, "default")
	role := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	t.Cleanup(func() { // t's context has ended
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := dbtest.Owner(t, db.Pool).Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	dbtest.Exec(t, db.Pool, strings.ReplaceAll(rights, "keda", role))
	wanted := func() int {
		t.Helper()
		tx := dbtest.Begin(t, dbtest.Owner(t, db.Pool))
		exec(t, tx, `SET LOCAL ROLE `+role)
		n := one[int](t, tx, query)
		if err := tx.Rollback(t.Context()); err != nil { // gives its connection back
			t.Fatal(err)
		}
		return n
	}
	if n := wanted(); n != 0 {
		t.Errorf("an empty queue wants %d", n)
	}
	for _, x := range scalingRuns {
		before := wanted()
		if x.namespace == "" {
			x.namespace = "default"
		}
		if x.queue == "" {
			x.queue = "shop"
		}
		loadStats(t, s, x.namespace, x.queue, "new", x.status, x.at, x.key, x.runs)
		if x.change != "" {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET `+x.change+` WHERE workflow_type = 'new'`)
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET workflow_type = $1 WHERE workflow_type = 'new'`, x.typ)
		if n := wanted() - before; n != x.counted {
			t.Errorf("%d runs that are %s count %d times, want %d", x.runs, x.what, n, x.counted)
		}
	}
	before := wanted()
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at, paused_at) VALUES
		('shop', 'due', 'default', now(), NULL), ('shop', 'due, too', 'default', now() - interval '1 day', NULL),
		('shop', 'later', 'default', now() + interval '1 hour', NULL), ('shop', 'full', 'default', 'infinity', NULL),
		('shop', 'paused', 'default', now(), now()), ('other', 'due', 'default', now(), NULL),
		('shop', 'due', 'other', now(), NULL)`)
	exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) VALUES
		('shop', 'default', 'due'), ('shop', 'default', 'changed'), ('shop', 'default', 'changed'),
		('other', 'default', 'changed, too'), ('shop', 'other', 'changed, too')`)
	if n := wanted() - before; n != 3 {
		t.Errorf("three keys to look at count %d times", n)
	}
}

// KEDA sends the query every few seconds, in a session that has the server's settings: it searches indexes, whatever
// the planner knows of the tables.
func TestScalingQuerySearches(t *testing.T) {
	t.Parallel()
	pool := dbtest.Database(t, dbtest.Unchecked()).Pool
	query, _ := scalingPage(t)
	const tables = `kagzi.workflow_runs, kagzi.run_keys, kagzi.key_changes`
	plans.AsNew(t, pool, tables)
	exec(t, pool, `VACUUM ANALYZE `+tables)
	exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at,
			finished_at)
		SELECT gen_random_uuid(), 'default', 'shop', 'workflow-' || g % 10, s.status, s.at, s.ended
		FROM generate_series(1, 50000) AS g CROSS JOIN (VALUES ('SLEEPING', now() + interval '1 day', NULL),
			('COMPLETED', NULL, now())) AS s (status, at, ended)`)
	exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'default', 'shop', 'workflow-' || g % 10, 'PENDING', now()
		FROM generate_series(1, 50) AS g`)
	exec(t, pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		SELECT 'shop', 'key-' || g, 'default', 'infinity' FROM generate_series(1, 20000) AS g`)
	exec(t, pool, `INSERT INTO kagzi.key_changes (key_scope, run_key, namespace_id)
		SELECT CASE WHEN g % 1000 = 0 THEN 'shop' ELSE 'another' END, 'key-' || g, 'default'
		FROM generate_series(1, 20000) AS g`)
	want := plans.Of("scaling", query, nil, map[string][]string{
		plans.ClaimIndex: {"task_queue", "namespace_id", "workflow_type"},
		"run_keys_line":  {"key_scope", "namespace_id"}, "key_changes_pkey": {"key_scope", "namespace_id"},
	})
	for _, state := range []struct {
		name    string
		prepare func()
	}{
		{"stale statistics", func() {}},
		{"missing statistics", func() { plans.ForgetStatistics(t, pool) }},
		{"fresh statistics", func() { exec(t, pool, `ANALYZE `+tables) }},
		{"vacuumed", func() { exec(t, pool, `VACUUM ANALYZE `+tables) }},
	} {
		state.prepare()
		if n := one[int](t, pool, query); n != 50+20 {
			t.Errorf("%s: %d slots are wanted", state.name, n)
		}
		p := plans.Explain(t, pool, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)", query)
		wrong := p.Wrong(want)
		if most := p.MaxRows("workflow_runs"); most > 50 {
			wrong = append(wrong, fmt.Sprintf("a scan reads %v runs", most))
		}
		if p.Buffers() > 1000 {
			wrong = append(wrong, fmt.Sprintf("%d pages", p.Buffers()))
		}
		if len(wrong) > 0 {
			t.Errorf("%s: %s\n%s", state.name, strings.Join(wrong, "; "), p.Text)
		}
	}
}
