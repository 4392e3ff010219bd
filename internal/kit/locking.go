package kit

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// CallersTx opens a transaction of a caller of Kagzi. It is rolled back when the test ends, if it is still open.
func (k *Kit) CallersTx() pgx.Tx {
	k.T.Helper()
	return dbtest.Begin(k.T, k.Pool)
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

// Unreachable returns a pool of a database that does not exist, for calls that must fail before they send SQL.
func Unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
