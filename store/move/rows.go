package move

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The name of the table is a setting of the transaction, and the answer too.
const (
	setTable = `
SELECT set_config('kagzi.table', $1, true), set_config('kagzi.namespace', $2, true),
	set_config('statement_timeout', '0', true), set_config('row_security', 'off', true)`

	findRow = `
DO $$
DECLARE
	found bool;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT FROM kagzi.%I x WHERE x.namespace_id = $1)', current_setting('kagzi.table'))
		INTO found USING current_setting('kagzi.namespace');
	PERFORM set_config('kagzi.found', found::text, true);
END $$`

	readFound = `SELECT current_setting('kagzi.found')::bool`

	removeRows = `
DO $$
DECLARE
	removed bigint;
BEGIN
	EXECUTE format('DELETE FROM kagzi.%I x WHERE x.namespace_id = $1', current_setting('kagzi.table'))
		USING current_setting('kagzi.namespace');
	GET DIAGNOSTICS removed = ROW_COUNT;
	PERFORM set_config('kagzi.removed', removed::text, true);
END $$`

	readRemoved = `SELECT current_setting('kagzi.removed')::bigint`

	removeKeeper = `DELETE FROM kagzi.event_keepers k WHERE k.keeper = $1`
)

// about calls f in a transaction with the settings for a table.
func about(ctx context.Context, conn *pgx.Conn, table, namespace string, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setTable, table, namespace); err != nil {
			return err
		}
		return f(tx)
	})
}

// hasRows reports whether the database has rows of the namespace.
func hasRows(ctx context.Context, conn *pgx.Conn, namespace string) (found bool, err error) {
	tables, err := tablesOf(ctx, conn)
	for _, t := range tables {
		if err != nil || found {
			break
		}
		if t.name == "step_runs" { // the largest table, which has none without a run
			continue
		}
		err = about(ctx, conn, t.name, namespace, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, findRow); err != nil {
				return err
			}
			return tx.QueryRow(ctx, readFound).Scan(&found)
		})
	}
	return found, err
}

// deleteRows deletes the rows of a namespace from a table. It deletes none if there are more than were copied.
func deleteRows(ctx context.Context, conn *pgx.Conn, table, namespace string, copied Counts) error {
	return about(ctx, conn, table, namespace, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, removeRows); err != nil {
			return err
		}
		var removed int64
		if err := tx.QueryRow(ctx, readRemoved).Scan(&removed); err != nil {
			return err
		}
		if copied != nil && removed > copied[table] {
			return fmt.Errorf("kagzi.%s has %d rows of the namespace, of which only %d were copied: none of them is "+
				"deleted; report this as a bug", table, removed, copied[table])
		}
		return nil
	})
}
