package store

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
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
// Another run of the key has lost its worker: the claim reads whether the key is paused before it is refused.
func TestNoKeyHasTwoRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	taken := start(t, s, newRun(func(r *NewRun) { r.Key.Name = "b" }))[0]
	if _, err := s.Claims.Claim(t.Context(), keyedRequest(1)); err != nil {
		t.Fatal(err)
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 s' WHERE run_id = $1`, taken)
	exec(t, s.pool, `DELETE FROM kagzi.run_keys`)
	waits := start(t, s, newRun(func(r *NewRun) { r.Key.Name = "b" }))[0]
	other := begin(t, s)
	exec(t, other, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'a', $1, 'infinity')`, s.namespace)
	req := keyedRequest(9)
	req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}, {Key: Key{Name: "b"}}}
	meetsLock(t, s, func(ctx context.Context) {
		got, err := s.Claims.Claim(ctx, req)
		for pg.Locked(err) { // it waits for a tenth of a second
			got, err = s.Claims.Claim(ctx, req)
		}
		if ids := runIDs(got.Runs); err != nil || !slices.Contains(ids, taken) || !slices.Contains(ids, waits) {
			t.Errorf("claimed %v, %v; want %s and %s", ids, err, taken, waits)
		}
	}, func() {
		exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, version, fresh, available_at)
			VALUES ('queue', 'b', $1, 1, false, 'infinity')`, s.namespace)
		rollback(t, other)
	})
	rows := dbtest.QueryOne[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE run_key = 'b'`)
	if rows != 1 {
		t.Errorf("the key has %d rows, want 1", rows)
	}
}
