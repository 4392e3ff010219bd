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

// While a claim waits, others insert one of its keys and change the row: the unique index lets it insert a second one.
func TestNoKeyHasTwoRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	start(t, s, newRun(func(r *NewRun) { r.Key.Name = "b" }))
	other := begin(t, s)
	exec(t, other, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'a', $1, 'infinity')`, s.namespace)
	claimed := make(chan error, 1)
	req := keyedRequest(9)
	req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}, {Key: Key{Name: "b"}}}
	var got Claim
	go func() {
		var err error
		got, err = s.Claims.Claim(t.Context(), req)
		claimed <- err
	}()
	await.True(t, "the claim waits for a", func() bool { return dbtest.LockWaiters(t, s.pool) == 1 })
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, version, fresh, available_at)
		VALUES ('queue', 'b', $1, 1, false, 'infinity')`, s.namespace)
	rollback(t, other)
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	rows := dbtest.QueryOne[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE run_key = 'b'`)
	if rows != 1 || len(got.Runs) != 1 {
		t.Errorf("%d rows, want 1; claimed %v", rows, got.Runs)
	}
}
