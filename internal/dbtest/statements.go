package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Exec executes a statement as the owner of the tables.
func Exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	for _, sql := range Instead(t, Owner(t, pool), sql) {
		_, err := Owner(t, pool).Exec(context.Background(), sql, args...)
		if err != nil {
			err = ExecOnShards(context.Background(), Owner(t, pool), err, sql, args...)
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// QueryOne returns the only value that a query of the owner yields.
func QueryOne[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, _ := Owner(t, pool).Query(context.Background(), sql, args...) // the error comes with the rows
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Begin opens a transaction. It is rolled back when the test ends, if it is still open.
func Begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// BeginWith is Begin, and executes a statement in the transaction, such as one that locks rows.
func BeginWith(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx := Begin(t, pool)
	for _, sql := range Instead(t, tx, sql) {
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return tx
}
