package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// The claim of a queue with limits counts its runs, so only one at a time may do so. The condition is that of
// claimLimited.
const lockQueue = `
SELECT c.task_queue FROM kagzi.queues c
WHERE c.task_queue = $2 AND c.namespace_id = $1 AND (c.max_running > 0 OR c.rate_interval > 0)
FOR UPDATE`

// The statement locks and returns the keys that claimKeys is to look at, in order:
//   - the first keys in the line, of queue and groups together;
//   - the keys of the oldest changes, and those that the worker hands on (entering): see doc_keys.go. If the line has
//     enough keys for the claim, those that the worker hands on are put at its end without a look.
//
// It waits for no lock on a key: another claim looks at the key, and the changes stay. It waits only for a claim that
// inserts the same key, in order, before it changes rows (>= 0): two do not wait for each other. The bounds of
// deleted spare it reading all changes.
const lockKeys = `
WITH changes AS MATERIALIZED (
	SELECT x.key_scope, x.run_key, x.change_id, x.due_at
	FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT x.key_scope, x.run_key, x.change_id, x.due_at
		FROM kagzi.key_changes x
		WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.change_id >= $7
		ORDER BY x.change_id LIMIT $8
	) x
), line AS MATERIALIZED (
	SELECT x.key_scope, x.run_key, x.available_at, x.consumes, x.version
	FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT x.key_scope, x.run_key, x.available_at, x.consumers_at IS NOT NULL AS consumes, x.version
		FROM kagzi.run_keys x
		WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.available_at < 'infinity'
			AND x.available_at BETWEEN timestamptz 'epoch' + $6::bigint * interval '1 microsecond' AND now()
		ORDER BY x.available_at LIMIT $3 FOR UPDATE SKIP LOCKED
	) x
	ORDER BY x.available_at LIMIT $3
), entering AS MATERIALIZED (
	SELECT u.key_scope, u.run_key, CASE WHEN min(u.freed) = 1 AND (SELECT count(*) FROM line) >= $3 THEN now()
		ELSE 'infinity' END AS place, min(u.due_at) AS due_at
	FROM (
		SELECT changes.key_scope, changes.run_key, 0 AS freed, changes.due_at FROM changes
		UNION ALL
		SELECT h.key_scope, h.run_key, 1, CASE WHEN h.ended THEN timestamptz 'infinity' ELSE '-infinity' END
		FROM unnest($4::text[], $5::text[], $9::bool[]) AS h (key_scope, run_key, ended)
	) u
	GROUP BY 1, 2
), locked AS MATERIALIZED (
	SELECT entering.key_scope, entering.run_key, f.waits, entering.place, f.consumes, entering.due_at,
		f.waits_from > entering.due_at AS behind, f.version
	FROM entering
	CROSS JOIN LATERAL (
		SELECT x.available_at > now() AS waits, x.consumers_at IS NOT NULL AS consumes, x.waits_from, x.version
		FROM kagzi.run_keys x
		WHERE x.key_scope = entering.key_scope AND x.run_key = entering.run_key AND x.namespace_id = $1
			AND x.version >= (SELECT max(n.version) FROM kagzi.run_keys n WHERE n.key_scope = entering.key_scope
				AND n.run_key = entering.run_key AND n.namespace_id = $1)
		ORDER BY x.version DESC LIMIT 1
		FOR UPDATE SKIP LOCKED
	) f
), created AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, available_at)
	SELECT entering.key_scope, entering.run_key, $1, entering.place
	FROM entering
	WHERE (entering.key_scope, entering.run_key) NOT IN (SELECT k.key_scope, k.run_key FROM locked k) AND (
		SELECT max(x.version) FROM kagzi.run_keys x WHERE x.key_scope = entering.key_scope
			AND x.run_key = entering.run_key AND x.namespace_id = $1) IS NULL
	ORDER BY 1, 2
	ON CONFLICT (key_scope, run_key, namespace_id, version) DO NOTHING
	RETURNING key_scope, run_key, available_at = 'infinity' AS looks
), lowered AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, version, available_at, waits_from)
	SELECT locked.key_scope, locked.run_key, $1, locked.version, locked.place, locked.due_at
	FROM locked
	WHERE (SELECT count(*) FROM line) >= 0 AND (SELECT count(*) FROM created) >= 0
		AND (locked.waits AND locked.place < 'infinity' OR locked.behind)
	ORDER BY 1, 2
	ON CONFLICT (key_scope, run_key, namespace_id, version) DO UPDATE SET
		available_at = LEAST(x.available_at, excluded.available_at), waits_from = LEAST(x.waits_from,
			excluded.waits_from)
), entered AS MATERIALIZED (
	SELECT k.key_scope, k.run_key, k.waits AND k.place = 'infinity' AS looks, k.consumes, k.version FROM locked k
	UNION ALL
	SELECT created.key_scope, created.run_key, created.looks, false, -1 FROM created
), deleted AS (
	DELETE FROM kagzi.key_changes x
	WHERE x.key_scope = ANY (ARRAY[$2::text, '']) AND x.namespace_id = $1
		AND x.change_id BETWEEN (SELECT min(c.change_id) FROM changes c) AND (SELECT max(c.change_id) FROM changes c)
		AND x.change_id = ANY (ARRAY (SELECT changes.change_id FROM changes JOIN entered
			ON entered.key_scope = changes.key_scope AND entered.run_key = changes.run_key))
)
SELECT line.key_scope, line.run_key, line.available_at, true, line.consumes, line.version, 0::bigint FROM line
UNION ALL
SELECT entered.key_scope, entered.run_key, NULL, entered.looks, entered.consumes, entered.version, 0 FROM entered
UNION ALL
SELECT NULL, NULL, NULL, false, false, count(*), coalesce(max(changes.change_id), 0) FROM changes
ORDER BY 3`

// lockedKeys is the answer of lockKeys.
type lockedKeys struct {
	Keys
	scopes, names []string           // of the keys to look at
	versions      []int64            // of their rows
	consuming     []string           // those of the names that have consumers, which are groups
	inserted      [2][]string        // the scopes and names of keys whose rows the statement has inserted
	all           map[[2]string]bool // by scope and name; false: not to be looked at
}

func (l *lockedKeys) read(rows pgx.Rows) error {
	l.all = map[[2]string]bool{}
	var scope, name *string
	var place time.Time
	var looks, consumes bool
	var number, last int64 // the version of the key's row, or how many changes
	_, err := pgx.ForEachRow(rows, []any{&scope, &name, pg.UTC(&place), &looks, &consumes, &number, &last},
		func() error {
			if scope == nil {
				l.Read, l.LastChange = int(number), last
				return nil
			}
			if !place.IsZero() {
				l.Looked, l.Last = l.Looked+1, place
			}
			if number < 0 {
				l.inserted[0], l.inserted[1] = append(l.inserted[0], *scope), append(l.inserted[1], *name)
				number = 0
			}
			k := [2]string{*scope, *name}
			if looks && !l.all[k] {
				l.scopes, l.names = append(l.scopes, *scope), append(l.names, *name)
				l.versions = append(l.versions, number)
				if consumes {
					l.consuming = append(l.consuming, *name)
				}
			}
			l.all[k] = l.all[k] || looks
			return nil
		})
	return err
}

// missing returns those of the keys that were not locked.
func (l *lockedKeys) missing(keys []FreedKey, queue string) (missing []FreedKey) {
	for _, k := range keys {
		if _, ok := l.all[[2]string{k.scope(queue), k.Name}]; !ok && k.Key != (Key{}) {
			missing = append(missing, k)
		}
	}
	return missing
}

// keyArrays returns the keys as arrays, without the zero key.
func keyArrays(keys []FreedKey, queue string) (scopes, names []string, ended []bool) {
	for _, k := range keys {
		if k.Key != (Key{}) {
			scopes, names, ended = append(scopes, k.scope(queue)), append(names, k.Name), append(ended, k.Ended)
		}
	}
	return scopes, names, ended
}

// LeaveChanges lets other workers look at keys of which this one has given up slots.
func (s Claims) LeaveChanges(ctx context.Context, queue string, freed []FreedKey) error {
	scopes, keys, ended := keyArrays(freed, queue)
	if keys == nil {
		return nil
	}
	return pg.Wrap("hand on slots", pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, leaveChanges, []any{s.namespace, scopes, keys, ended}, nil)
	}))
}
