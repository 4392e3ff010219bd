package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
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
	WaitingOn  string
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

// The statement finds each key with waiting runs by one search, up to $2 keys, and leaves out those that have a place
// in the line, or are paused. A slot that is given up while its run sleeps (1) has been held since the run's start only
// under its first lease, whose last bit says so: see leaseOf. Otherwise the statement does not know since when, and
// leaves the key out.
const standingKeys = `
WITH RECURSIVE ` + clause.PausesOfRuns + `, ` + waitingScopes + `, keys AS MATERIALIZED (
	SELECT s.key_scope, t.run_key
	FROM scopes s
	CROSS JOIN LATERAL ` + waitingKeys + `
	) t
	LIMIT $2
), unpaused AS MATERIALIZED (
	SELECT keys.key_scope, keys.run_key, LEAST(CASE WHEN keys.key_scope = '' THEN 1
		ELSE coalesce(x.max_running, q.key_max_running) END, $3::int) AS max_running
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
	WHERE h.held >= c.max_running AND h.known AND h.last < now() - $4::bigint * interval '1 microsecond'
), standing AS MATERIALIZED (
	SELECT stuck.*, d.task_queue, GREATEST(d.since, stuck.last) AS since
	FROM stuck
	CROSS JOIN LATERAL (
		SELECT min(n.available_at) AS since, (pg_catalog.array_agg(n.task_queue ORDER BY n.available_at))[1]
			AS task_queue
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
	WHERE d.since < now() - $4::bigint * interval '1 microsecond'
	ORDER BY GREATEST(d.since, stuck.last)
	LIMIT $6
)
SELECT standing.key_scope = '', standing.run_key, standing.task_queue, d.due, d.most >= $5,
	(extract(epoch FROM now() - standing.since) * 1000000)::bigint,
	r.run_id, coalesce(r.external_id, ''), r.workflow_type, r.status, coalesce(r.waiting_on, '')
FROM standing
CROSS JOIN LATERAL (
	SELECT sum(n.due)::bigint AS due, max(n.due) AS most
	FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT count(*) AS due
		FROM (
			SELECT FROM kagzi.workflow_runs x
			WHERE x.key_scope = standing.key_scope AND x.namespace_id = $1 AND x.run_key = standing.run_key
				AND x.priority = p.priority
				AND ` + clause.Waits + ` AND x.outcome IS NULL AND x.available_at <= now() AND ` + clause.Unstopped + `
			LIMIT $5
		) x
	) n
) d
CROSS JOIN LATERAL (
	SELECT q.run_id, q.external_id, q.workflow_type, q.status, q.waiting_on
	FROM kagzi.workflow_runs q WHERE q.run_id = standing.run_id AND q.namespace_id = $1 OFFSET 0
) r
ORDER BY standing.since`

const (
	maxStandingKeys = 500 // keys with waiting runs that standingKeys looks at
	runsBehind      = 100 // waiting runs of one key and priority that it counts
)

// StandingKeys returns the keys that have stood still for so long, up to n, those first that have stood for longest. Of
// all keys with waiting runs it looks at the first 500.
func (s *Health) StandingKeys(ctx context.Context, db pg.DB, late time.Duration, n int) (out []StandingKey, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		args := []any{s.namespace, maxStandingKeys, maxSlotsCounted, pg.Micros(late), runsBehind, n}
		return pg.Ask(ctx, db, standingKeys, args, pg.Collect(&out, func(row pgx.CollectableRow) (k StandingKey,
			err error,
		) {
			var standing int64
			h := &k.Holder
			err = row.Scan(&k.Group, &k.Name, &k.Queue, &k.Waiting, &k.More, &standing, pg.UUIDTo(&h.RunID),
				&h.ExternalID, &h.Type, &h.Status, &h.WaitingOn)
			k.Standing = time.Duration(standing) * time.Microsecond
			return k, err
		}))
	})
	return out, pg.Wrap("find keys that stand still", err)
}
