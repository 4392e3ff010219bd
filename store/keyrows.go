package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

const lockKey = `
SELECT x.run_key FROM kagzi.run_keys x WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1 FOR UPDATE`

const insertKey = `
INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
SELECT $1, $2, $3, 'infinity'
WHERE (SELECT count(*) FROM kagzi.run_keys x WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1) = 0
ON CONFLICT DO NOTHING`

// A keyWithoutRow reports that a key has no row in kagzi.run_keys, as before its first claim, and once it is pruned.
type keyWithoutRow struct{ scope, key string }

func (e *keyWithoutRow) Error() string {
	return fmt.Sprintf("key %q of %q has no row in kagzi.run_keys", e.key, e.scope)
}

// withKeyRow calls f, and again after a keyWithoutRow, once the key has a row. It inserts the row in a transaction of
// its own: claims wait for a row that another transaction has inserted, and a caller's may stay open for long. They
// wait for no row that f has locked.
func (s *conn) withKeyRow(ctx context.Context, f func() error) (err error) {
	for range 10 { // it may be pruned again
		err = f()
		missing, ok := errors.AsType[*keyWithoutRow](err)
		if !ok {
			break
		}
		if err := pg.Do(ctx, func(ctx context.Context) error {
			return pg.Ask(ctx, s.pool, insertKey, []any{s.namespace, missing.scope, missing.key}, nil)
		}); err != nil {
			return err
		}
	}
	return err
}

// lockKeyRow locks the row of a key: claims of others leave the key alone until tx ends. It returns a keyWithoutRow if
// there is none.
func (s *conn) lockKeyRow(ctx context.Context, tx pgx.Tx, scope, key string) error {
	locked, err := pg.Changed(ctx, tx, lockKey, s.namespace, scope, key)
	if err == nil && !locked {
		err = &keyWithoutRow{scope, key}
	}
	return err
}
