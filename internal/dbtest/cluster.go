package dbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clusterVariable is the environment variable that names the coordinator of a Citus cluster, as a URL of a database
// that knows the cluster's nodes. The tests then make their databases on all nodes, with distributed tables.
const clusterVariable = "KAGZI_TEST_CITUS_URL"

// OnCitus reports whether the tests use a Citus cluster.
func OnCitus() bool { return os.Getenv(clusterVariable) != "" }

// A node is a server of a cluster. The coordinator is group 0.
type node struct {
	host  string
	port  int
	group int
}

// openCluster makes s the server of a cluster's coordinator.
func (s *server) openCluster(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("%s: %w", clusterVariable, err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, `SELECT nodename, nodeport, groupid FROM pg_dist_node WHERE isactive ORDER BY groupid`)
	s.nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n node, err error) {
		return n, row.Scan(&n.host, &n.port, &n.group)
	})
	if err == nil && (len(s.nodes) < 2 || s.nodes[0].group != 0) {
		err = fmt.Errorf("%s: the database knows no coordinator and nodes: call citus_set_coordinator_host and "+
			"citus_add_node in it", clusterVariable)
	}
	s.dsn, s.stop = dsn, func() error { return nil }
	return err
}

// everywhere executes statements about databases on all servers: the coordinator is the last one.
func (s *server) everywhere(ctx context.Context, statements ...string) error {
	for _, n := range slices.Backward(s.nodes) {
		if n.group == 0 {
			break
		}
		if err := execOn(ctx, n.dsn(s.dsn), statements...); err != nil {
			return err
		}
	}
	return execOn(ctx, s.dsn, statements...)
}

// dsn returns the URL of the node for that of the coordinator.
func (n node) dsn(coordinator string) string {
	u, err := url.Parse(coordinator)
	if err != nil {
		return coordinator // it was used before
	}
	u.Host = net.JoinHostPort(n.host, strconv.Itoa(n.port))
	return u.String()
}

// joinNodes makes the template known to all nodes.
func (s *server) joinNodes(ctx context.Context) (err error) {
	for _, n := range slices.Backward(s.nodes) {
		dsn := withDatabase(n.dsn(s.dsn), s.template)
		if n.group == 0 {
			dsn = withDatabase(s.dsn, s.template)
		}
		err = errors.Join(err, execOn(ctx, dsn, "CREATE EXTENSION citus"))
	}
	if err != nil {
		return err
	}
	join := []string{fmt.Sprintf("SELECT citus_set_coordinator_host('%s', %d)", s.nodes[0].host, s.nodes[0].port)}
	for _, n := range s.nodes[1:] {
		join = append(join, fmt.Sprintf("SELECT citus_add_node('%s', %d)", n.host, n.port))
	}
	return execOn(ctx, withDatabase(s.dsn, s.template), join...)
}

// closeTemplate ends the sessions of the template, and lets in no others: Citus has one of its own in each database,
// and a database with sessions cannot be copied.
func (s *server) closeTemplate(ctx context.Context) error {
	return s.everywhere(ctx, "ALTER DATABASE "+s.template+" ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+s.template+"'")
}

const lockWaiters = `SELECT count(*)::int FROM pg_stat_activity
	WHERE datname = current_database() AND wait_event_type = 'Lock'`

// LockWaiters returns how many statements in the pool's database wait for a lock. On Citus they wait on the nodes.
func LockWaiters(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	if !OnCitus() {
		return QueryOne[int](t, pool, lockWaiters)
	}
	return QueryOne[int](t, pool, `SELECT coalesce(sum(result::int), 0)::int FROM run_command_on_all_nodes($1)`,
		lockWaiters)
}

// awaitLockWaiter looks every two milliseconds: some statements wait for a lock only for a tenth of a second.
const awaitLockWaiter = `
	DO $$ BEGIN
		FOR i IN 1 .. 30000 LOOP
			PERFORM pg_stat_clear_snapshot();
			IF EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
				THEN RETURN; END IF;
			PERFORM pg_sleep(0.002);
		END LOOP;
		RAISE 'no statement waits for a lock';
	END $$`

// AwaitLockWaiter returns once a statement in the pool's database waits for a lock. On Citus it looks on all nodes.
func AwaitLockWaiter(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if !OnCitus() {
		Exec(t, pool, awaitLockWaiter)
		return
	}
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := make(chan error, len(s.nodes))
	for _, n := range s.nodes {
		go func() { found <- execOn(ctx, n.dsn(pool.Config().ConnString()), awaitLockWaiter) }()
	}
	for range s.nodes {
		if err = <-found; err == nil {
			break
		}
	}
	cancel()
	if err != nil {
		t.Fatal(err)
	}
}

// The tables of the schema kagzi, copied to this session's temporary ones.
const copyTables = `
DO $$
DECLARE t text;
BEGIN
	FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'kagzi'::regnamespace AND relkind IN ('r', 'p')
		AND NOT relispartition
	LOOP
		EXECUTE format('CREATE TEMP TABLE %I ON COMMIT DROP AS TABLE kagzi.%I', t, t);
	END LOOP;
END $$`

// onCopy returns the checks for a copy of the tables on one server: they join runs of all namespaces, which Citus does
// not do.
func onCopy(ctx context.Context, tx pgx.Tx, checks []check) ([]check, error) {
	_, err := tx.Exec(ctx, copyTables)
	for i, c := range checks {
		checks[i].query = strings.ReplaceAll(c.query, "kagzi.", "pg_temp.")
	}
	return checks, err
}

// The shards of the distributed tables, and the copies of a reference table: of each server a group.
const shardsOfTables = `
SELECT coalesce(p.shardminvalue, 'on ' || q.groupid), p.logicalrelid::text, p.shardid, n.nodename, n.nodeport
FROM pg_dist_shard p
JOIN pg_dist_placement q USING (shardid)
JOIN pg_dist_node n USING (groupid)`

// A shardGroup has one shard of each table, all on one node.
type shardGroup struct {
	on     node
	tables map[string]string // the name of each table's shard
}

// ExecOnShards executes a statement about tables of Kagzi, which Citus has refused with that error, on each of their
// shards by itself: of statements for all of them it takes no function that is not immutable. It returns the error if
// the reason is another one.
func ExecOnShards(ctx context.Context, pool *pgxpool.Pool, refused error, sql string, args ...any) error {
	var e *pgconn.PgError
	if !OnCitus() || !errors.As(refused, &e) || e.Code != "0A000" {
		return refused
	}
	groups := map[string]*shardGroup{}
	var shard int
	var begins, table string
	var on node
	rows, _ := pool.Query(ctx, shardsOfTables)
	_, err := pgx.ForEachRow(rows, []any{&begins, &table, &shard, &on.host, &on.port}, func() error {
		if groups[begins] == nil {
			groups[begins] = &shardGroup{on: on, tables: map[string]string{}}
		}
		groups[begins].tables[table] = fmt.Sprintf("%s_%d", table, shard)
		return nil
	})
	for _, g := range groups {
		if err != nil {
			break
		}
		if !g.has(sql) {
			continue
		}
		err = g.exec(ctx, pool.Config().ConnString(), sql, args)
	}
	return err
}

var tableName = regexp.MustCompile(`kagzi\.\w+`)

// has reports whether the group has a shard of each table in the statement.
func (g *shardGroup) has(sql string) bool {
	return !slices.ContainsFunc(tableName.FindAllString(sql, -1),
		func(table string) bool { return g.tables[table] == "" })
}

func (g *shardGroup) exec(ctx context.Context, coordinator, sql string, args []any) error {
	conn, err := pgx.Connect(ctx, g.on.dsn(coordinator))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, tableName.ReplaceAllStringFunc(sql, func(table string) string {
		return cmp.Or(g.tables[table], table)
	}), args...)
	return err
}

// NotOnCitus ends a test that cannot run on a cluster, for a reason that lies in the test. On a server alone it does
// nothing: there no test is left out.
func NotOnCitus(t testing.TB, why string) {
	t.Helper()
	if OnCitus() {
		t.Skip("not on Citus: " + why)
	}
}

// notForCitus says why a test that executes a statement with that text cannot run on a cluster.
var notForCitus = []struct{ text, why string }{
	{"CREATE TRIGGER", "the test adds a trigger"},
	{"LOCK TABLE", "the test locks a table, which has shards on other servers"},
	{"ALTER TABLE", "the test changes a table, which Citus does less freely"},
	{"DROP INDEX", "the test changes an index, which Citus does less freely"},
}

// rowLock finds a statement of a test that locks rows of one of our tables, in all namespaces.
var rowLock = regexp.MustCompile(`(?s)^\s*SELECT\s+FROM (kagzi\.\w+)( WHERE .*?)?\s+FOR (UPDATE|SHARE)( \w+)*\s*$`)

// Instead returns the statements of a test's own that do on a cluster what sql does: rows are locked in one namespace
// at a time. It ends the test if there are none. On a server alone it returns sql.
func Instead(t testing.TB, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, sql string,
) (statements []string) {
	t.Helper()
	if !OnCitus() {
		return []string{sql}
	}
	for _, n := range notForCitus {
		if strings.Contains(sql, n.text) {
			NotOnCitus(t, n.why)
		}
	}
	found := rowLock.FindStringSubmatch(sql)
	if found == nil || strings.Contains(sql, "namespace_id") {
		return []string{sql}
	}
	// the error comes with the rows
	rows, _ := db.Query(context.Background(), "SELECT DISTINCT namespace_id FROM "+found[1])
	namespaces, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces {
		where := " WHERE namespace_id = '" + namespace + "'"
		if found[2] != "" {
			where += " AND" + strings.TrimPrefix(found[2], " WHERE")
		}
		statements = append(statements, strings.Replace(sql, found[1]+found[2], found[1]+where, 1))
	}
	return statements
}
