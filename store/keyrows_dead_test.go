package store

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// While an old snapshot may see all versions of a key's row, claims read the newest one alone, also if another claim
// has locked it. The test counts reads, not time.
func TestClaimsReadNoDeadVersionsOfAKey(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	subscribe(t, s, &Consumer{Name: "type", Key: "group", Queue: "queue", Priority: 3})
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'a', $1, 'infinity')`, s.namespace)
	old := begin(t, s)
	exec(t, old, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	exec(t, old, `SELECT count(*) FROM kagzi.run_keys`)
	exec(t, s.pool, `DO $$ BEGIN
		FOR i IN 1 .. 3000 LOOP
			UPDATE kagzi.run_keys SET version = version + 1;
			COMMIT;
		END LOOP;
	END $$`)
	read := func(tx pgx.Tx, sql string, args ...any) int {
		return plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, sql, args...).Buffers()
	}
	scopes, names := []string{"queue", ""}, []string{"a", "group"}
	locked := &lockedKeys{scopes: scopes, names: names, versions: []int64{3000, 3000}}
	lock := []any{s.namespace, "queue", 9, scopes, names, 0, 0, 500, []bool{false, false}}
	tx, other := begin(t, s), begin(t, s)
	for _, tx := range []pgx.Tx{tx, other} {
		exec(t, tx, pg.Prologue, pg.Relaxed.PrologueArgs(t.Context())...)
		exec(t, tx, `SET LOCAL statement_timeout = 0`) // the machine may be slow
		exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	}
	_, start := s.Consumers.consumersLook(nil, false)
	b := &pgx.Batch{}
	start(b, []string{"group"})
	starts := b.QueuedQueries[0]
	for _, tt := range []struct {
		name string
		read int
	}{
		{"lockKeys", read(tx, lockKeys, lock...)},
		{"startConsumers", read(tx, starts.SQL, starts.Arguments...)},
		{"claimKeys", read(tx, claimKeys, s.Claims.keyedArgs(keyedRequest(9), locked)...)},
		{"lockKeys beside another claim", read(other, lockKeys, lock...)},
	} {
		if tt.read > 100 {
			t.Errorf("%s read %d buffers", tt.name, tt.read)
		}
	}
}
