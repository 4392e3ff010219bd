package kagzi

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// callersTx is a transaction of a caller that stays open until the test ends, unless it is ended before.
func callersTx(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (k *kit) callersTx() pgx.Tx {
	k.t.Helper()
	return callersTx(k.t, k.pool)
}

// locking is a caller's transaction that has locked what the statement selects.
func locking(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx := callersTx(t, pool)
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

const (
	lockRun     = `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`
	lockRuns    = `SELECT FROM kagzi.workflow_runs FOR UPDATE`
	lockWorkers = `SELECT FROM kagzi.workers FOR UPDATE`
)

func commitTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func rollbackTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// unreachable is a pool of a database that is not there: what is refused before any SQL does not notice.
func unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
