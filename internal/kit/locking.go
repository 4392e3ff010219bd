package kit

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CallersTx is a transaction of a caller that stays open until the test ends, unless it is ended before.
func CallersTx(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// CallersTx is the function of this name for the kit's database.
func (k *Kit) CallersTx() pgx.Tx {
	k.T.Helper()
	return CallersTx(k.T, k.Pool)
}

// Locking is a caller's transaction that has locked what the statement selects.
func Locking(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx := CallersTx(t, pool)
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

const (
	LockRun     = `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`
	LockRuns    = `SELECT FROM kagzi.workflow_runs FOR UPDATE`
	LockWorkers = `SELECT FROM kagzi.workers FOR UPDATE`
)

// CommitTx commits tx.
func CommitTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// RollbackTx rolls tx back.
func RollbackTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Unreachable is a pool of a database that is not there: what is refused before any SQL does not notice.
func Unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
