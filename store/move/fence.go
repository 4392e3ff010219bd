package move

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A table of the schema that has rows of namespaces.
type table struct {
	name    string
	columns []string // without those that number the rows: each database has its own numbers
}

// quoted returns the table's name for a statement.
func (t table) quoted() string { return pgx.Identifier{"kagzi", t.name}.Sanitize() }

const readTables = `
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attidentity = '')
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY c.relname
HAVING bool_or(a.attname = 'namespace_id')
ORDER BY c.relname`

func tablesOf(ctx context.Context, db pg.DB) (all []table, err error) {
	rows, err := db.Query(ctx, readTables)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.name, &t.columns)
	})
}

// ALTER TABLE takes no parameters, so the names are settings of the transaction. The copy passes the fence of an
// earlier move by a setting. The comment of a fence is the ID of the move, with hasLeft behind it once the rows have
// been copied.
const (
	hasLeft = " has left"

	setFence = `
SELECT set_config('kagzi.table', $1, true), set_config('kagzi.fence', $2, true), set_config('kagzi.fenced', $3, true),
	set_config('kagzi.move', $4, true), set_config('lock_timeout', '2s', true),
	set_config('statement_timeout', '0', true)`

	fenceTable = `
DO $$
BEGIN
	EXECUTE format('ALTER TABLE kagzi.%1$I ADD CONSTRAINT %2$I CHECK (namespace_id <> %3$L
		OR coalesce(current_setting(''kagzi.arriving'', true), '''') = %3$L) NOT VALID',
		current_setting('kagzi.table'), current_setting('kagzi.fence'), current_setting('kagzi.fenced'));
END $$`

	commentFence = `
DO $$
BEGIN
	EXECUTE format('COMMENT ON CONSTRAINT %I ON kagzi.%I IS %L', current_setting('kagzi.fence'),
		current_setting('kagzi.table'), current_setting('kagzi.move'));
END $$`

	unfenceTable = `
DO $$
BEGIN
	EXECUTE format('ALTER TABLE kagzi.%I DROP CONSTRAINT %I', current_setting('kagzi.table'),
		current_setting('kagzi.fence'));
END $$`

	readFenced = `
SELECT t.relname::text
FROM pg_catalog.pg_constraint c
JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
WHERE c.conname = $1 AND c.connamespace = 'kagzi'::regnamespace`

	readMove = `
SELECT coalesce(pg_catalog.obj_description(c.oid, 'pg_constraint'), '')
FROM pg_catalog.pg_constraint c
WHERE c.conname = $1 AND c.conrelid = 'kagzi.workflow_runs'::regclass`

	// The copy leaves an entry with the ID of the move.
	findEntry = `
SELECT EXISTS (SELECT FROM kagzi.audit_log a WHERE a.entry_id = $2::text::uuid AND a.namespace_id = $1)`

	writeEntry = `
INSERT INTO kagzi.audit_log (entry_id, namespace_id, occurred_at, action, kind, name, reason, actor)
VALUES ($2::text::uuid, $1, now(), 'MOVED', 'all', '', 'the namespace has come from another database',
	'namespaces.Move')`
)

// fenced returns the tables that refuse rows of the namespace.
func fenced(ctx context.Context, conn *pgx.Conn, namespace string) (map[string]bool, error) {
	rows, err := conn.Query(ctx, readFenced, pg.FenceOf(namespace))
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all, err
}

// fence makes all tables refuse rows of the namespace; with on false, it makes them take such rows again. The tables
// are locked one after the other, each for a moment, once nothing else uses them.
func fence(ctx context.Context, conn *pgx.Conn, namespace string, on bool) error {
	tables, err := tablesOf(ctx, conn)
	if err != nil {
		return err
	}
	have, err := fenced(ctx, conn, namespace)
	if err != nil {
		return err
	}
	statements := []string{fenceTable, commentFence}
	if !on {
		statements = []string{unfenceTable}
	}
	id := uuid.Must(uuid.NewV7()).String()
	for _, t := range tables {
		if have[t.name] == on {
			continue
		}
		if err := patiently(ctx, conn, func(tx pgx.Tx) error {
			return alter(ctx, tx, statements, t.name, namespace, id)
		}); err != nil {
			return err
		}
	}
	return nil
}

// alter executes statements about the fence of a table. comment is that of the fence.
func alter(ctx context.Context, tx pgx.Tx, statements []string, table, namespace, comment string) error {
	if _, err := tx.Exec(ctx, setFence, table, pg.FenceOf(namespace), namespace, comment); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long a transaction may keep a move from a table.
const patience = time.Minute

// patiently calls f in a transaction, and again as long as it fails because of a lock. It waits between the calls,
// longer each time: a statement that waits for the lock of a table makes all others wait behind it. The lock's timeout
// is longer than deadlock_timeout, after which Postgres ends an autovacuum that is in the way.
func patiently(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	begun := time.Now()
	for pause := time.Second; ; pause += time.Second {
		err := pgx.BeginFunc(ctx, conn, f)
		if !pg.Locked(err) && !pg.Repeatable(err) || time.Since(begun) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
