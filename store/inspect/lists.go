package inspect

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Filter chooses runs. A zero field does not restrict the choice.
type Filter struct {
	Status     []string
	Type       string
	Queue      string
	ExternalID string
	Parent     uuid.UUID
	Schedule   uuid.UUID
	Key        store.Key // with its Queue if that is set, else of any queue
	Metadata   json.RawMessage
	Kind       string
	WaitingOn  string // one of the waits in the run's waiting_on, or the first word of one
	Since      time.Time
	Until      time.Time
	EndedSince time.Time
	EndedUntil time.Time
	Paused     bool        // runs that are active and paused themselves
	ErrorText  string      // runs whose error has this text, whatever the case
	IDs        []uuid.UUID // empty: all
	// MinRecoveries chooses runs with as many recoveries or more, also those that are over.
	MinRecoveries int
	After         uuid.UUID // the last run of the previous page: only older runs follow
	Limit         int
	Payloads      bool // List reads inputs and outputs
}

// The conditions of the indexes by which runs are listed. Each run fits one of them, or moves. The columns are those of
// the only table of the select around them. See the package's comment, Lists.
const (
	isCompleted = `finished_at IS NOT NULL AND status = 'COMPLETED' AND attempts >= 0`
	isStopped   = `finished_at IS NOT NULL AND status IN ('FAILED', 'CANCELLED') AND attempts >= 0`
	rests       = `(status = 'SLEEPING' OR paused_at IS NOT NULL OR status = 'PENDING' AND (run_key IS NOT NULL
		OR CASE WHEN available_at = 'infinity' THEN true ELSE available_at - created_at > interval '1 second' END))`
	isWaiting = `finished_at IS NULL AND ` + rests + ` AND attempts >= 0`

	// moves is the condition of the others: runs that are RUNNING, or were due at once. They are in the claim's index,
	// and are due or have a lease that ends soon.
	moves = `finished_at IS NULL AND NOT ` + rests
)

// inNamespace also has the namespace in the collation that it has in the indexes of lists.
const inNamespace = `r.namespace_id = $1 AND r.namespace_id = $1 COLLATE "POSIX"`

// The statements are planned at each call for their arguments (see pg.Listing), so an empty argument costs nothing.
const chosen = `r.namespace_id = $1
	AND (cardinality($2::text[]) = 0 OR r.status = ANY ($2::text[]))
	AND ($3::text = '' OR r.workflow_type = $3::text)
	AND ($4::text = '' OR r.task_queue = $4::text)
	AND ($5::text = '' OR r.external_id = $5::text)
	AND ($6::uuid = '00000000-0000-0000-0000-000000000000' OR r.parent_run_id = $6::uuid)
	AND ($7::text = '' OR r.metadata @> NULLIF($7::text, '')::jsonb)
	AND ($8::bigint = 0 OR r.created_at >= timestamptz 'epoch' + $8::bigint * interval '1 microsecond')
	AND ($9::bigint = 0 OR r.created_at < timestamptz 'epoch' + $9::bigint * interval '1 microsecond')
	AND ($10::uuid = '00000000-0000-0000-0000-000000000000' OR r.run_id < $10::uuid)
	AND ($11::uuid = '00000000-0000-0000-0000-000000000000' OR r.schedule_id = $11::uuid)
	AND ($12::text = '' OR r.run_key = $12::text AND (r.key_scope = '') = $13::bool)
	AND ($14::text = '' OR r.error_kind = $14::text)
	AND ($15::text = '' OR strpos('; ' || r.waiting_on || ';', $15::text) > 0
		OR strpos('; ' || r.waiting_on || ';', $16::text) > 0)
	AND ($17::bigint = 0 OR r.finished_at >= timestamptz 'epoch' + $17::bigint * interval '1 microsecond')
	AND ($18::bigint = 0 OR r.finished_at < timestamptz 'epoch' + $18::bigint * interval '1 microsecond')
	AND (NOT $19::bool OR r.paused_at IS NOT NULL AND r.finished_at IS NULL)
	AND ($20::text = '' OR strpos(lower(r.error), lower($20::text)) > 0)
	AND (cardinality($21::uuid[]) = 0 OR r.run_id = ANY ($21::uuid[]))
	AND ($22::bigint = 0 OR r.recoveries >= $22::bigint AND r.recoveries > 0 AND r.attempts >= 0)`

func (s *Lists) chosenArgs(f Filter) []any {
	statuses := f.Status
	if statuses == nil {
		statuses = []string{}
	}
	ids := make([]string, len(f.IDs))
	for i, id := range f.IDs {
		ids[i] = id.String()
	}
	word, whole := "", ""
	if f.WaitingOn != "" {
		word, whole = "; "+f.WaitingOn+" ", "; "+f.WaitingOn+";"
	}
	if strings.Contains(f.WaitingOn, " ") {
		word = whole
	}
	return []any{
		s.namespace, statuses, f.Type, f.Queue, f.ExternalID, f.Parent.String(), string(f.Metadata), pg.Epoch(f.Since),
		pg.Epoch(f.Until),
		f.After.String(), f.Schedule.String(), f.Key.Name, f.Key.Group, f.Kind, word, whole, pg.Epoch(f.EndedSince),
		pg.Epoch(f.EndedUntil), f.Paused,
		f.ErrorText, ids, f.MinRecoveries,
	}
}

const listedColumns = clause.RunColumns + `, CASE WHEN $24::bool THEN ` + clause.StoredInput +
	` END, CASE WHEN $24::bool THEN r.output END`

// ofListed ends the CTE chosen and reads its runs. It leaves the planner no join to choose.
const ofListed = `)
SELECT ` + listedColumns + `
FROM chosen
CROSS JOIN LATERAL (SELECT q.* FROM kagzi.workflow_runs q WHERE q.run_id = chosen.run_id
	AND q.namespace_id = $1 OFFSET 0) r
ORDER BY r.run_id DESC
LIMIT $23::int`

// The planner chooses between an index for the filter's fields and a walk down the key.
const listRuns = `
SELECT ` + listedColumns + `
FROM kagzi.workflow_runs r
WHERE ` + chosen + `
ORDER BY r.run_id DESC
LIMIT $23::int`

// Runs that an index finds by one of the filter's fields: they are few, and are all read. A walk down the key would be
// slower.
const listFew = `
WITH chosen AS MATERIALIZED (
	SELECT r.run_id FROM kagzi.workflow_runs r WHERE ` + chosen + `
` + ofListed

// The runs of an external ID are in two indexes.
const listByID = `
WITH chosen AS MATERIALIZED (
	SELECT r.run_id
	FROM kagzi.workflow_runs r
	WHERE r.external_id = $5::text AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND ` + chosen + `
	UNION ALL
	SELECT r.run_id
	FROM kagzi.workflow_runs r
	WHERE r.external_id = $5::text AND r.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND ` + chosen + `
` + ofListed

// The pairs of queue and workflow in an index are found by one search for each. The index's condition stands between
// these texts.
const (
	firstPair = `(
		WITH RECURSIVE pairs (task_queue, workflow_type) AS (
			(
				SELECT r.task_queue, r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` + inNamespace + ` AND `
	nextPair = `
				ORDER BY r.task_queue, r.workflow_type
				LIMIT 1
			)
			UNION ALL
			SELECT n.task_queue, n.workflow_type
			FROM pairs
			CROSS JOIN LATERAL (
				SELECT r.task_queue, r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` + inNamespace + ` AND (r.task_queue, r.workflow_type) > (pairs.task_queue, pairs.workflow_type)
					AND `
	endPairs = `
				ORDER BY r.task_queue, r.workflow_type
				LIMIT 1
			) n
		)`
	lastPair = endPairs + `
		SELECT pairs.task_queue, pairs.workflow_type FROM pairs WHERE $4::text IN ('', pairs.task_queue)
			AND $3::text IN ('', pairs.workflow_type)
	) t
	CROSS JOIN LATERAL (
		SELECT r.run_id
		FROM kagzi.workflow_runs r
		WHERE ` + inNamespace + ` AND r.task_queue = t.task_queue AND r.workflow_type = t.workflow_type
			AND r.run_id >= $25::uuid AND r.run_id <= $26::uuid AND ` + chosen + ` AND `
	newestOfPair = `
		ORDER BY r.run_id DESC
		LIMIT $23::int
	) k`

	ofStatus = ` AND r.status = u.status`
)

// Merges the newest runs of each queue and workflow in each of three indexes with those that move, of which there are
// few. $25 and $26 are the run IDs of the times given. A run that completed has no kind and no error, and one that is
// over waits for nothing but its deletion. See the package's comment, Lists.
const listParts = `
WITH RECURSIVE queues (task_queue) AS (` + allQueues + `
), ` + partsOfList

// ownListParts is listParts for tables that are distributed: see ownQueues.
const ownListParts = `
WITH RECURSIVE queues (task_queue) AS (` + queuesOfNamespace + `
), ` + partsOfList

// The queues and workflows of the runs that move are found by the same statement: a run that begins to move meanwhile
// may be the only one of its queue.
const partsOfList = `chosen AS MATERIALIZED (
	SELECT k.run_id
	FROM ` + firstPair + isCompleted + nextPair + isCompleted + lastPair + isCompleted + newestOfPair + `
	WHERE (cardinality($2::text[]) = 0 OR 'COMPLETED' = ANY ($2::text[])) AND $14::text = ''
		AND $15::text IN ('', '; ` + clause.BeingDeleted + ` ') AND $20::text = ''
	UNION ALL
	SELECT k.run_id
	FROM (VALUES ('FAILED'), ('CANCELLED')) AS u (status)
	CROSS JOIN LATERAL ` + firstPair + isStopped + ofStatus + nextPair + isStopped + ofStatus + lastPair + isStopped +
	ofStatus + newestOfPair + `
	WHERE (cardinality($2::text[]) = 0 OR u.status = ANY ($2::text[])) AND $15::text IN ('', '; ` +
	clause.BeingDeleted + ` ')
	UNION ALL
	SELECT k.run_id
	FROM (VALUES ('PENDING'), ('SLEEPING'), ('RUNNING')) AS u (status)
	CROSS JOIN LATERAL ` + firstPair + isWaiting + ofStatus + nextPair + isWaiting + ofStatus + lastPair + isWaiting +
	ofStatus + newestOfPair + `
	WHERE (cardinality($2::text[]) = 0 OR u.status = ANY ($2::text[])) AND $17::bigint = 0 AND $18::bigint = 0
	UNION ALL
	SELECT k.run_id
	FROM (
		SELECT u.task_queue, t.workflow_type, p.priority
		FROM queues u
		` + clause.TypesOfQueue + `
		CROSS JOIN generate_series(1, 4) AS p (priority)
		WHERE $28::bool AND $4::text IN ('', u.task_queue) AND $3::text IN ('', t.workflow_type)
		OFFSET 0
	) w
	CROSS JOIN LATERAL (
		SELECT r.run_id
		FROM kagzi.workflow_runs r
		WHERE r.task_queue = w.task_queue AND r.workflow_type = w.workflow_type AND r.priority = w.priority
			AND ` + clause.Claimable + `
			AND r.available_at <= timestamptz 'epoch' + $27::bigint * interval '1 microsecond' AND ` + moves + `
				AND ` + chosen + `
		OFFSET 0
	) k
` + ofListed

// Counts the runs that may move, up to $4. No lease is longer than twice the longest LeaseTimeout. The clock of the
// database may have been ahead, and runs of that time are due when it gets there again. In tests, now() may be ahead of
// Postgres's own clock.
const movingRuns = `
WITH horizon AS MATERIALIZED (
	SELECT GREATEST(now(), max(w.latest_at)) + GREATEST(2 * max(w.lease_timeout), interval '10 minutes') AS until,
		now() - pg_catalog.now() AS ahead
	FROM kagzi.workers w
	WHERE w.namespace_id = $1
)
SELECT (extract(epoch FROM horizon.until) * 1000000)::bigint, (extract(epoch FROM horizon.ahead) * 1000000)::bigint, (
	SELECT count(*)
	FROM (
		SELECT 1
		FROM unnest($2::text[], $3::text[]) AS w (task_queue, workflow_type)
		CROSS JOIN generate_series(1, 4) AS p (priority)
		CROSS JOIN LATERAL (
			SELECT 1
			FROM kagzi.workflow_runs r
			WHERE r.task_queue = w.task_queue AND r.namespace_id = $1 AND r.workflow_type = w.workflow_type
				AND r.priority = p.priority AND ` + clause.Claimable + `
				AND r.available_at <= horizon.until
			LIMIT $4::bigint
		) k
		LIMIT $4::bigint
	) k
)
FROM horizon`

const (
	maxMoving = 20_000         // runs that move, or are due soon: if there are more, lists walk down the key
	clockSlip = 24 * time.Hour // how far the time in a run's ID may be from the time at which it was created
)

// List returns runs from new to old. A tx that is not nil reads them.
func (s *Lists) List(ctx context.Context, tx pgx.Tx, f Filter) (out []*store.Run, err error) {
	read := func(ctx context.Context, db pg.DB) error {
		statement, args, err := s.listing(ctx, db, f)
		if err != nil {
			return err
		}
		return pg.AskPlanned(ctx, db, statement, args, func(rows pgx.Rows) (err error) {
			out, err = store.ReadRuns(rows)
			return err
		})
	}
	if tx != nil {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return read(ctx, tx) })
	} else {
		err = pg.Do(ctx, func(ctx context.Context) error { return read(ctx, s.pool) })
	}
	return out, pg.Wrap("list runs", err)
}

// listing returns the statement that lists the runs that f selects.
func (s *Lists) listing(ctx context.Context, db pg.DB, f Filter) (string, []any, error) {
	args := append(s.chosenArgs(f), f.Limit, f.Payloads)
	switch {
	case f.ExternalID != "":
		return listByID, args, nil
	case f.Parent != uuid.Nil, f.Schedule != uuid.Nil, f.Paused, f.MinRecoveries > 0, len(f.IDs) > 0:
		return listFew, args, nil
	case f.Metadata != nil, f.Key.Name != "":
		return listRuns, args, nil
	}
	var queues, types []string
	moves := len(f.Status) == 0 || slices.Contains(f.Status, store.Pending) || slices.Contains(f.Status, store.Running)
	if moves {
		var err error
		if queues, types, err = s.activePairs(ctx, db); err != nil {
			return "", nil, err
		}
		if len(queues) == clause.MaxQueues {
			return listRuns, args, nil
		}
		queues, types = f.pairs(queues, types)
	}
	var until, ahead int64
	var moving int
	if err := pg.AskRow(ctx, db, movingRuns, []any{s.namespace, queues, types, maxMoving}, &until, &ahead,
		&moving); err != nil {
		return "", nil, err
	}
	if moving == maxMoving {
		return listRuns, args, nil
	}
	citus, err := pg.IsOnCitus(ctx, db)
	if err != nil {
		return "", nil, err
	}
	statement := listParts
	if citus {
		statement = ownListParts
	}
	first, last := f.ids(time.Duration(ahead) * time.Microsecond)
	return statement, append(args, first.String(), last.String(), until, moves), nil
}

// pairs returns the pairs of queue and workflow that f selects.
func (f *Filter) pairs(queues, types []string) (ofQueues, ofTypes []string) {
	for i := range queues {
		if (f.Queue == "" || queues[i] == f.Queue) && (f.Type == "" || types[i] == f.Type) {
			ofQueues, ofTypes = append(ofQueues, queues[i]), append(ofTypes, types[i])
		}
	}
	return ofQueues, ofTypes
}

// ids returns the first and the last ID that runs created in the time of f may have. Clients make the IDs, by their own
// clocks.
func (f *Filter) ids(ahead time.Duration) (first, last uuid.UUID) {
	last = uuid.Max
	if !f.Since.IsZero() {
		first = pg.IDAt(f.Since.Add(-clockSlip - ahead))
	}
	for _, t := range []time.Time{f.Until, f.EndedUntil} {
		if id := pg.IDAt(t.Add(clockSlip)); !t.IsZero() && id.String() < last.String() {
			last = id
		}
	}
	return first, last
}
