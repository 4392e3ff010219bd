package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Ask sends one statement and calls read with its rows; see Exchange.
func Ask(ctx context.Context, db DB, sql string, args []any, read func(pgx.Rows) error) error {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	return Exchange(ctx, db, Untimed, b, read)
}

// AskOne is ask for a single value. It returns pgx.ErrNoRows if there is no row.
func AskOne[T any](ctx context.Context, db DB, sql string, args ...any) (v T, err error) {
	err = Ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		v, err = pgx.CollectOneRow(rows, pgx.RowTo[T])
		return err
	})
	return v, err
}

// AskRow is ask for one row, scanned into dest. It returns pgx.ErrNoRows if there is none.
func AskRow(ctx context.Context, db DB, sql string, args []any, dest ...any) error {
	return Ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		_, err := pgx.CollectOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
			return struct{}{}, row.Scan(dest...)
		})
		return err
	})
}

// Collect returns a function that reads all rows into out.
func Collect[T any](out *[]T, row pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*out, err = pgx.CollectRows(rows, row)
		return err
	}
}

// Changed sends one statement and reports whether it changed a row.
func Changed(ctx context.Context, db DB, sql string, args ...any) (did bool, err error) {
	err = Ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		rows.Close()
		did = rows.CommandTag().RowsAffected() > 0
		return rows.Err()
	})
	return did, err
}

// planForArguments undoes the settings of applySettings for other statements of a caller's transaction. restoreSettings
// follows.
const planForArguments = `
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true),
	set_config('cpu_index_tuple_cost', '0.005', true)`

// AskPlanned is ask for a statement whose arguments decide which index is best.
func AskPlanned(ctx context.Context, db DB, statement string, args []any, read func(pgx.Rows) error) error {
	b := &pgx.Batch{}
	reads := []func(pgx.Rows) error{read}
	if _, of := db.(pgx.Tx); of {
		b.Queue(planForArguments)
		reads = []func(pgx.Rows) error{nil, read}
	}
	b.Queue(statement, args...)
	return Exchange(ctx, db, Listing, b, reads...)
}
