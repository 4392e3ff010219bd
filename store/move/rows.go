package move

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// A scan of a large table may take long, and must not leave out rows.
	setScan = `SELECT set_config('statement_timeout', '0', true), set_config('row_security', 'off', true)`

	removeKeeper = `DELETE FROM kagzi.event_keepers k WHERE k.keeper = $1`
)

// scan calls f in a transaction that may read or delete for a long time.
func scan(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setScan); err != nil {
			return err
		}
		return f(tx)
	})
}

// hasRows reports whether the database has rows of the namespace.
func hasRows(ctx context.Context, conn *pgx.Conn, namespace string) (found bool, err error) {
	tables, err := tablesOf(ctx, conn)
	if err != nil {
		return false, err
	}
	return found, scan(ctx, conn, func(tx pgx.Tx) error {
		for _, t := range tables {
			if t.name == "step_runs" { // the largest table, which has none without a run
				continue
			}
			statement := `SELECT EXISTS (SELECT FROM ` + t.quoted() + ` x WHERE x.namespace_id = $1)`
			if err := tx.QueryRow(ctx, statement, namespace).Scan(&found); err != nil || found {
				return err
			}
		}
		return nil
	})
}

// deleteRows deletes the rows of a namespace from a table. It deletes none if there are more than were copied.
func deleteRows(ctx context.Context, conn *pgx.Conn, t table, namespace string, copied Counts) error {
	return scan(ctx, conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM `+t.quoted()+` x WHERE x.namespace_id = $1`, namespace)
		if removed := tag.RowsAffected(); err == nil && copied != nil && removed > copied[t.name] {
			return fmt.Errorf("kagzi.%s has %d rows of the namespace, of which only %d were copied: none of them is "+
				"deleted; report this as a bug", t.name, removed, copied[t.name])
		}
		return err
	})
}
