package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

// A StandingKey is a key all of whose slots have been held by the same runs for long, while others wait behind them.
type StandingKey struct {
	store.Key
	Queue    string // of its first waiting run
	Waiting  int    // due runs that wait for a slot; see More
	More     bool   // counting stopped
	Standing time.Duration
	Holder   KeyHolder
}

// A KeyHolder is the run that has held a slot of a key for longest.
type KeyHolder struct {
	RunID      uuid.UUID
	ExternalID string
	Type       string
	Status     string
	WaitingOn  waits.List
}

// The runs that hold a slot of the key c.
const slotHolders = `(
			SELECT x.run_id, x.external_id, x.workflow_type, x.status, x.waiting_on, x.started_at, x.slot, x.lease
			FROM (
				SELECT * FROM kagzi.workflow_runs
				WHERE c.key_scope = '' AND run_key = c.run_key AND namespace_id = $1 AND ` + clause.HoldsGroup + `
				LIMIT 1
			) x
			UNION ALL
			SELECT x.run_id, x.external_id, x.workflow_type, x.status, x.waiting_on, x.started_at, x.slot, x.lease
			FROM (
				SELECT * FROM kagzi.workflow_runs
				WHERE c.key_scope <> '' AND task_queue = c.key_scope AND namespace_id = $1 AND run_key = c.run_key
					AND ` + clause.Holds + ` AND key_scope <> ''
				LIMIT coalesce(c.max_running, 0)
			) x
		)`

// The statement finds each key with waiting runs by one search. Each scope gets the same share of the keys, so none
// hides those of another.
const keysWithWaiting = `
WITH RECURSIVE ` + clause.WaitingScopes + `
SELECT s.key_scope, t.run_key
FROM (SELECT key_scope FROM scopes LIMIT $2) s
CROSS JOIN LATERAL ` + waitingKeys + ` LIMIT GREATEST($2 / (SELECT count(*) FROM scopes), 1)
) t
LIMIT $2`

// Of its keys, the statement leaves out those that have a place in the line, or are paused. A slot that is given up
// while its run sleeps (1) has been held since the run's start only under its first lease, whose last bit says so: see
// leaseOf. Otherwise the statement does not know since when, and leaves the key out.
const standingKeys = `
WITH ` + clause.PausesOfRuns + `, unpaused AS MATERIALIZED (
	SELECT keys.key_scope, keys.run_key, LEAST(CASE WHEN keys.key_scope = '' THEN 1
		ELSE coalesce(x.max_running, q.key_max_running) END, $4::int) AS max_running
	` + unpausedKeys + ` AND coalesce(x.available_at = 'infinity', true)
), stuck AS MATERIALIZED (
	SELECT c.key_scope, c.run_key, h.*
	FROM unpaused c
	CROSS JOIN LATERAL (
		SELECT count(*) AS held, bool_and(x.slot = 2 OR get_byte(uuid_send(x.lease), 15) & 1 = 1) AS known,
			max(x.started_at) AS last,
			(pg_catalog.array_agg(x.run_id ORDER BY x.started_at))[1] AS run_id
		FROM ` + slotHolders + ` x
	) h
	WHERE h.held >= c.max_running AND h.known AND h.last < now() - $5::bigint * interval '1 microsecond'
)
SELECT stuck.key_scope, stuck.run_key, stuck.run_id, d.task_queue,
	(extract(epoch FROM now() - GREATEST(d.since, stuck.last)) * 1000000)::bigint
FROM stuck
CROSS JOIN LATERAL (
	SELECT min(n.available_at) AS since, (pg_catalog.array_agg(n.task_queue ORDER BY n.available_at))[1] AS task_queue
	FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT x.available_at, x.task_queue
		FROM kagzi.workflow_runs x
		WHERE x.key_scope = stuck.key_scope AND x.namespace_id = $1 AND x.run_key = stuck.run_key
			AND x.priority = p.priority
			AND ` + clause.Waits + ` AND x.outcome IS NULL AND x.available_at <= now() AND ` + clause.Unstopped + `
		ORDER BY x.available_at
		LIMIT 1
	) n
) d
WHERE d.since < now() - $5::bigint * interval '1 microsecond'
ORDER BY GREATEST(d.since, stuck.last)
LIMIT $6`

// The statement counts the due runs that wait behind each of its keys, and describes the run that holds the slot.
const runsBehindKeys = `
WITH ` + clause.PausesOfRuns + `
SELECT u.place, d.due, d.most >= $5, coalesce(r.external_id, ''), r.workflow_type, r.status, r.waiting_on
FROM unnest($2::text[], $3::text[], $4::uuid[]) WITH ORDINALITY AS u (key_scope, run_key, run_id, place)
CROSS JOIN LATERAL (
	SELECT sum(n.due)::bigint AS due, max(n.due) AS most
	FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT count(*) AS due
		FROM (
			SELECT FROM kagzi.workflow_runs x
			WHERE x.key_scope = u.key_scope AND x.namespace_id = $1 AND x.run_key = u.run_key
				AND x.priority = p.priority
				AND ` + clause.Waits + ` AND x.outcome IS NULL AND x.available_at <= now() AND ` + clause.Unstopped + `
			LIMIT $5
		) x
	) n
) d
CROSS JOIN LATERAL (
	SELECT q.external_id, q.workflow_type, q.status, q.waiting_on
	FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r
WHERE d.due > 0`

const (
	maxStandingKeys = 500 // keys with waiting runs that StandingKeys looks at
	runsBehind      = 100 // waiting runs of one key and priority that runsBehindKeys counts
)

// standing are the rows of standingKeys, and the columns that runsBehindKeys is given.
type standing struct {
	foundKeys
	holders []uuid.UUID
	keys    []StandingKey
}

func (f *standing) read(rows pgx.Rows) error {
	var k StandingKey
	var scope string
	var micros int64
	_, err := pgx.ForEachRow(rows, []any{&scope, &k.Name, pg.UUIDTo(&k.Holder.RunID), &k.Queue, &micros}, func() error {
		k.Group, k.Standing = scope == "", time.Duration(micros)*time.Microsecond
		f.add(scope, k.Name)
		f.holders, f.keys = append(f.holders, k.Holder.RunID), append(f.keys, k)
		return nil
	})
	return err
}

// readBehind adds the rows of runsBehindKeys. A key without one stands no longer.
func (f *standing) readBehind(rows pgx.Rows) error {
	var place int
	var n StandingKey
	h := &n.Holder
	_, err := pgx.ForEachRow(rows, []any{
		&place, &n.Waiting, &n.More, &h.ExternalID, &h.Type, &h.Status, &h.WaitingOn,
	}, func() error {
		k := &f.keys[place-1]
		h.RunID = k.Holder.RunID
		k.Waiting, k.More, k.Holder = n.Waiting, n.More, *h
		return nil
	})
	f.keys = slices.DeleteFunc(f.keys, func(k StandingKey) bool { return k.Waiting == 0 })
	return err
}

// StandingKeys returns the keys that have stood still for so long, up to n, those first that have stood for longest. Of
// all keys with waiting runs it looks at 500: as many of each queue, and of groups.
func (s *Health) StandingKeys(ctx context.Context, db pg.DB, late time.Duration, n int) (out []StandingKey, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var keys foundKeys
		var found standing
		err := pg.Ask(ctx, db, keysWithWaiting, []any{s.namespace, maxStandingKeys}, keys.read)
		if err == nil && keys.names != nil {
			err = pg.Ask(ctx, db, standingKeys, []any{
				s.namespace, keys.scopes, keys.names, maxSlotsCounted, pg.Micros(late), n,
			}, found.read)
		}
		if err == nil && found.names != nil {
			err = pg.Ask(ctx, db, runsBehindKeys, []any{
				s.namespace, found.scopes, found.names, found.holders, runsBehind,
			}, found.readBehind)
		}
		out = found.keys
		return err
	})
	return out, pg.Wrap("find keys that stand still", err)
}
