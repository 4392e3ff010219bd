package driver

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// Bases are the databases of a round, past all proxies: one, or two between which namespaces move.
type bases struct {
	pool   *pgxpool.Pool // of the first
	second *pgxpool.Pool // nil: there is none
	routes *fleet.Routes // nil if there is one
}

// openBases connects to the databases. It creates the second, if there is to be one.
func openBases(ctx context.Context, dsn, dir string, both bool) (b bases, err error) {
	if b.pool, err = pgxpool.New(ctx, dsn); err != nil || !both {
		return b, err
	}
	if _, err := b.pool.Exec(ctx, "CREATE DATABASE "+fleet.Databases[1]); err != nil {
		return b, err
	}
	if b.second, err = pgxpool.New(ctx, fleet.DSNs(dsn)[1]); err != nil {
		return b, err
	}
	b.routes, err = fleet.NewRoutes(dir)
	return b, err
}

func (b bases) close() {
	for _, pool := range b.all() {
		pool.Close()
	}
}

// all returns the pools, in the order of fleet.Databases.
func (b bases) all() []*pgxpool.Pool {
	if b.second == nil {
		return []*pgxpool.Pool{b.pool}
	}
	return []*pgxpool.Pool{b.pool, b.second}
}

// namespaces returns those that the round has.
func (b bases) namespaces() []string {
	if b.second == nil {
		return fleet.Namespaces[:1]
	}
	return fleet.Namespaces
}

// A move changes no run: the audit leaves out what movers do, so that the changes of a run in both databases are one
// history.
const auditMovers = `
CREATE OR REPLACE TRIGGER kagzi_audit AFTER INSERT OR UPDATE OR DELETE ON kagzi.workflow_runs
	FOR EACH ROW WHEN (current_setting('application_name') NOT LIKE 'mover%') EXECUTE FUNCTION kagzi_audit.record();
CREATE OR REPLACE TRIGGER kagzi_audit AFTER INSERT OR UPDATE OR DELETE ON kagzi.step_runs
	FOR EACH ROW WHEN (current_setting('application_name') NOT LIKE 'mover%') EXECUTE FUNCTION kagzi_audit.record();`

func leaveOutMovers(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, auditMovers)
	return err
}

// leftBehind returns how many rows of a namespace a database has, by table; empty if it has none.
func (b bases) leftBehind(ctx context.Context, namespace string, database int) (string, error) {
	pool := b.all()[database]
	rows, _ := pool.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND a.attname = 'namespace_id'`) // CollectRows returns its error
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var found []string
	for _, table := range tables {
		var n int
		if err == nil {
			err = pool.QueryRow(ctx, "SELECT count(*) FROM kagzi."+pgx.Identifier{table}.Sanitize()+
				" WHERE namespace_id = $1", namespace).Scan(&n)
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d rows of %s", n, table))
		}
	}
	return strings.Join(found, ", "), err
}

// gather brings all namespaces, and all evidence, into the first database. It returns what is in another database than
// its namespace, and why a namespace cannot be brought.
func (r *round) gather(ctx context.Context) (found []string, err error) {
	for _, namespace := range r.namespaces() {
		at := r.routes.Of(namespace)
		left, err := r.leftBehind(ctx, namespace, 1-at)
		if err != nil {
			return nil, err
		}
		if left != "" {
			found = append(found, fmt.Sprintf("%s is in the %s database: %s are in the other one", namespace,
				fleet.Databases[at], left))
		}
		if at != 0 {
			if err := r.world.Bring(ctx, r.site.Admin, namespace); err != nil {
				found = append(found, fmt.Sprintf("%s cannot be brought to the first database: %v", namespace, err))
			}
		}
	}
	return found, r.merge(ctx)
}

// copied are the tables of evidence, but for the accounts, and their columns without the numbers of the rows.
var copied = map[string]string{
	"chaos.effects": "run_id, step_id, from_account, to_account, amount",
	"chaos.items":   "item, run_id",
	"kagzi_audit.changes": "at, txid, relation, operation, run_id, step_id, attempt, old_status, new_status, " +
		"old_lease, new_lease, old, new, application",
}

// Both databases have the clock of their server. The changes of a run are never of the same moment.
const renumber = `
CREATE TABLE kagzi_audit.merged AS TABLE kagzi_audit.changes;
TRUNCATE kagzi_audit.changes;
INSERT INTO kagzi_audit.changes OVERRIDING SYSTEM VALUE
SELECT row_number() OVER (ORDER BY m.at, m.change_id), m.at, m.txid, m.relation, m.operation, m.run_id, m.step_id,
	m.attempt, m.old_status, m.new_status, m.old_lease, m.new_lease, m.old, m.new, m.application
FROM kagzi_audit.merged m`

// merge copies the evidence of the second database into the first.
func (b bases) merge(ctx context.Context) error {
	for table, columns := range copied {
		rows, _ := b.second.Query(ctx, "SELECT "+columns+" FROM "+table+" ORDER BY 1") // CollectRows returns its error
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err == nil {
			_, err = b.pool.CopyFrom(ctx, strings.Split(table, "."), strings.Split(columns, ", "),
				pgx.CopyFromRows(all))
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", table, err)
		}
	}
	rows, _ := b.second.Query(ctx, `SELECT name, balance - $1 FROM chaos.accounts`, load.Balance)
	var name string
	var balance int64
	changes := map[string]int64{}
	_, err := pgx.ForEachRow(rows, []any{&name, &balance}, func() error { changes[name] = balance; return nil })
	for name, change := range changes {
		if err == nil {
			_, err = b.pool.Exec(ctx, `UPDATE chaos.accounts SET balance = balance + $2 WHERE name = $1`, name, change)
		}
	}
	if err == nil {
		_, err = b.pool.Exec(ctx, renumber)
	}
	return err
}
