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

const shardsOfTables = `
SELECT p.shardminvalue::int, p.logicalrelid::text, p.shardid, n.nodename, n.nodeport
FROM pg_dist_shard p
JOIN pg_dist_placement q USING (shardid)
JOIN pg_dist_node n USING (groupid)
WHERE p.shardminvalue IS NOT NULL`

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
	groups := map[int]*shardGroup{}
	var begins, shard int
	var table string
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
		err = g.exec(ctx, pool.Config().ConnString(), sql, args)
	}
	return err
}

var tableName = regexp.MustCompile(`kagzi\.\w+`)

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
