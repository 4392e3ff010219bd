package move

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
)

// A table of the schema that has rows of namespaces.
type table struct {
	name    string
	columns []string // without those that number the rows: each database has its own numbers
}

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

// ALTER TABLE takes no parameters, so the names are settings of the transaction.
const (
	setFence = `
SELECT set_config('kagzi.table', $1, true), set_config('kagzi.fence', $2, true), set_config('kagzi.fenced', $3, true),
	set_config('lock_timeout', '2s', true), set_config('statement_timeout', '0', true)`

	fenceTable = `
DO $$
BEGIN
	EXECUTE format('ALTER TABLE kagzi.%I ADD CONSTRAINT %I CHECK (namespace_id <> %L) NOT VALID',
		current_setting('kagzi.table'), current_setting('kagzi.fence'), current_setting('kagzi.fenced'));
END $$`

	unfenceTable = `
DO $$
BEGIN
	EXECUTE format('ALTER TABLE kagzi.%I DROP CONSTRAINT %I', current_setting('kagzi.table'),
		current_setting('kagzi.fence'));
END $$`

	readFenced = `
SELECT c.conrelid::regclass::text
FROM pg_catalog.pg_constraint c
WHERE c.conname = $1 AND c.connamespace = 'kagzi'::regnamespace`
)

// fenceOf returns the name of the constraints that refuse a namespace.
func fenceOf(namespace string) string {
	sum := md5.Sum([]byte(namespace))
	return pg.FencePrefix + hex.EncodeToString(sum[:])
}

// fenced returns the tables that refuse rows of the namespace.
func fenced(ctx context.Context, pool *pgxpool.Pool, namespace string) (map[string]bool, error) {
	rows, err := pool.Query(ctx, readFenced, fenceOf(namespace))
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
func fence(ctx context.Context, pool *pgxpool.Pool, namespace string, on bool) error {
	tables, err := tablesOf(ctx, pool)
	if err != nil {
		return err
	}
	have, err := fenced(ctx, pool, namespace)
	if err != nil {
		return err
	}
	statement := fenceTable
	if !on {
		statement = unfenceTable
	}
	for _, t := range tables {
		if have["kagzi."+t.name] == on {
			continue
		}
		if err := alter(ctx, pool, statement, t.name, namespace); err != nil {
			return err
		}
	}
	return nil
}

// alter executes a statement about a table and the fence of a namespace.
func alter(ctx context.Context, pool *pgxpool.Pool, statement, table, namespace string) error {
	return patiently(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setFence, table, fenceOf(namespace), namespace); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement)
		return err
	})
}

// patience is how long a transaction may keep a move from a table.
const patience = time.Minute

// patiently calls f in a transaction, and again as long as it fails because of a lock. It waits between the calls: a
// statement that waits for the lock of a table makes all others wait behind it. The lock's timeout is longer than
// deadlock_timeout, after which Postgres ends an autovacuum that is in the way.
func patiently(ctx context.Context, pool *pgxpool.Pool, f func(pgx.Tx) error) error {
	for begun := time.Now(); ; {
		err := pgx.BeginFunc(ctx, pool, f)
		if !pg.Locked(err) || time.Since(begun) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}
