package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

const (
	// Locks the rows of the keys $3 of the scope $2, in their order. Claims leave the keys alone until the transaction
	// ends.
	lockKeyRows = `
SELECT x.run_key
FROM unnest($3::text[]) AS u (run_key)
CROSS JOIN LATERAL (
	SELECT x.run_key FROM kagzi.run_keys x
	WHERE x.key_scope = $2 AND x.run_key = u.run_key AND x.namespace_id = $1
	ORDER BY x.version DESC LIMIT 1
	FOR UPDATE
) x`

	insertKeyRows = `
INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
SELECT DISTINCT $1, $2, u.run_key, timestamptz 'infinity'
FROM unnest($3::text[]) AS u (run_key)
WHERE (
	SELECT count(*) FROM kagzi.run_keys x WHERE x.key_scope = $2 AND x.run_key = u.run_key AND x.namespace_id = $1
) = 0
ORDER BY u.run_key
ON CONFLICT DO NOTHING`

	// Fails if one of the keys $2, $3, whose rows the transaction has inserted before, has another row: see isSecondRow
	// and doc_keys.go.
	refuseSecondRows = `
INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, version, available_at)
SELECT u.key_scope, u.run_key, $1, 0, timestamptz 'infinity'
FROM unnest($2::text[], $3::text[]) AS u (key_scope, run_key)
WHERE (
	SELECT count(*) FROM kagzi.run_keys x
	WHERE x.key_scope = u.key_scope AND x.run_key = u.run_key AND x.namespace_id = $1
) > 1`
)

// isSecondRow reports whether err is that of refuseSecondRows: the transaction is to be repeated. Citus adds the number
// of a shard to the names.
func isSecondRow(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Code == "23505" && (strings.HasPrefix(refusal.ConstraintName, "run_keys_pkey") ||
		refusal.ConstraintName == "" && strings.Contains(refusal.Message, `"run_keys_pkey_`))
}

// A keyWithoutRow reports keys that have no row in kagzi.run_keys, as before their first claim, and once they are
// pruned.
type keyWithoutRow struct {
	scope string
	keys  []string
}

func (e *keyWithoutRow) Error() string {
	return fmt.Sprintf("keys %q of %q have no row in kagzi.run_keys", e.keys, e.scope)
}

// withKeyRow calls f, and again after a keyWithoutRow, once the keys have rows. It inserts the rows in a transaction of
// its own: claims wait for a row that another transaction has inserted, and a caller's may stay open for long. They
// wait for no row that f has locked.
func (s *conn) withKeyRow(ctx context.Context, f func() error) (err error) {
	for range 10 { // it may be pruned again
		err = f()
		missing, ok := errors.AsType[*keyWithoutRow](err)
		if !ok {
			break
		}
		scopes := slices.Repeat([]string{missing.scope}, len(missing.keys))
		if err := pg.Do(ctx, func(ctx context.Context) error {
			b := &pgx.Batch{}
			b.Queue(insertKeyRows, s.namespace, missing.scope, missing.keys)
			b.Queue(refuseSecondRows, s.namespace, scopes, missing.keys)
			return pg.Exchange(ctx, s.pool, pg.Untimed, b)
		}); err != nil && !isSecondRow(err) {
			return err
		}
	}
	return err
}

// lockKeyRow locks the rows of keys: claims of others leave the keys alone until tx ends. It returns a keyWithoutRow if
// some have none.
func (s *conn) lockKeyRow(ctx context.Context, tx pgx.Tx, scope string, keys ...string) error {
	var locked []string
	keys = slices.Sorted(slices.Values(keys))
	err := pg.Ask(ctx, tx, lockKeyRows, []any{s.namespace, scope, keys}, pg.Collect(&locked, pgx.RowTo[string]))
	missing := slices.DeleteFunc(keys, func(k string) bool { return slices.Contains(locked, k) })
	if err == nil && len(missing) > 0 {
		err = &keyWithoutRow{scope, missing}
	}
	return err
}
