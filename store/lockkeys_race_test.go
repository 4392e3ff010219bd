package store

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// Two claims meet new keys of which a third has inserted one meanwhile: they do not wait for each other.
func TestClaimsThatInsertKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	lock := func(tx pgx.Tx, keys ...string) chan error {
		freed := make([]FreedKey, len(keys))
		for i, name := range keys {
			freed[i].Name = name
		}
		scopes, names, ended := keyArrays(freed, "queue")
		locked := make(chan error, 1)
		go func() {
			_, err := tx.Exec(t.Context(), lockKeys, s.namespace, "queue", 9, scopes, names, 0, 0, 500, ended)
			locked <- err
		}()
		return locked
	}
	waiters := func(n int) {
		t.Helper()
		await.True(t, "claims wait", func() bool { return dbtest.LockWaiters(t, s.pool) == n })
	}
	third, first, second := begin(t, s), begin(t, s), begin(t, s)
	if err := <-lock(third, "b"); err != nil {
		t.Fatal(err)
	}
	firstLocks := lock(first, "a", "b", "c") // has inserted a, and waits for b
	waiters(1)
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'c', $1, 'infinity')`, s.namespace)
	secondLocks := lock(second, "a", "c") // has locked c, and waits for a
	waiters(2)
	rollback(t, third)
	if err := <-firstLocks; err != nil {
		t.Error(err)
	}
	rollback(t, first)
	if err := <-secondLocks; err != nil {
		t.Error(err)
	}
}
