package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Claimable is what a claim changes and the database may refuse: a run, or a consumer of which the claim starts a
// run.
type Claimable struct {
	RunID    uuid.UUID // zero: it is a consumer
	Consumer string
}

// The runs that a claim may take: those without a key, and those of the keys $9 in the scopes $8, in the order of the
// claim's searches. It is no harm if there are more.
const dueRuns = `
SELECT r.run_id
FROM unnest($3::text[], $4::smallint[], $5::text[]) AS w (workflow_type, priority, versions)
CROSS JOIN LATERAL (
	SELECT q.run_id
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
		AND ` +
	clause.Claimable + ` AND q.available_at <= now() AND (q.version IS NULL OR q.version = ANY (w.versions::int[]))
		AND q.outcome IS NULL AND q.run_id <> ALL ($7::uuid[])
	ORDER BY q.available_at
	LIMIT $6
) r
UNION ALL
SELECT r.run_id
FROM unnest($8::text[], $9::text[]) AS u (key_scope, run_key)
CROSS JOIN generate_series(1, 4) AS p (priority)
CROSS JOIN LATERAL (
	SELECT x.run_id
	FROM kagzi.workflow_runs x
	WHERE x.key_scope = u.key_scope AND x.namespace_id = $1 AND x.run_key = u.run_key AND x.priority = p.priority
		AND ` +
	clause.Waits + ` AND x.available_at <= now() AND x.outcome IS NULL AND x.task_queue = $2
		AND x.workflow_type = ANY ($3::text[]) AND x.run_id <> ALL ($7::uuid[])
	ORDER BY x.available_at, x.run_id
	LIMIT $6
) r`

const consumersOfKeys = `SELECT x.consumer FROM kagzi.consumers x WHERE x.run_key = ANY ($2::text[])
	AND x.namespace_id = $1 ORDER BY x.consumer`

// What claimRuns writes to the runs $4, if they are due, without its searches: these would read all that is due.
const tryRuns = `
WITH due AS MATERIALIZED (
	` + dueByID + `
)
UPDATE kagzi.workflow_runs r
SET ` + claimSet + `
FROM due WHERE r.namespace_id = $1 AND r.run_id = due.run_id`

// The same for claims from a queue that has keys or limits. The slot is 1: a group could have slot 2 only once.
const tryKeyedRuns = `
WITH due AS MATERIALIZED (
	` + dueByID + `
), ` + claimUpdate + `
SELECT count(*) FROM claimed`

// setBackRuns lets those of the runs $4 wait that are to be recovered and may kill their workers. It returns when the
// first one is due again, and how many there are.
const setBackRuns = `
WITH due AS MATERIALIZED (
	SELECT d.* FROM ` + dueByID + ` d WHERE d.set_back
), ` + claimUpdate + `
SELECT min(claimed.available_at), count(*) FROM claimed`

// Selects and locks the runs $4 that are due.
const dueByID = `(SELECT r.run_id, r.status, r.version, r.started_at, r.deadline_at, r.initial, r.since, r.now,
	r.set_back,
		CASE WHEN $5::bool THEN 1 END::smallint AS slot,
		` + untilAvailable + ` AS available_at
	FROM (
		SELECT q.run_id, q.status, q.version, q.recoveries, q.started_at, ` + claimedDeadline + `,
			q.available_at AS since, now() AS now, q.status = 'RUNNING' AND q.recoveries + 1 >= 3 AS set_back,
			($6::int[])[array_position($3::text[], q.workflow_type)] AS initial
		FROM kagzi.workflow_runs q
		WHERE q.run_id = ANY ($4::uuid[]) AND q.namespace_id = $1 AND q.task_queue = $2 AND q.finished_at IS NULL
			AND q.available_at <= now() AND q.outcome IS NULL AND q.paused_at IS NULL
		LIMIT $7
		FOR UPDATE SKIP LOCKED
	) r)`

// FindRefused returns what made the database refuse the claim with err, and the error of each; nothing if err is not
// about single rows. It tries parts of the claim's rows, smaller and smaller ones, and changes nothing: each
// of these transactions is rolled back. If ctx ends, or a transaction fails otherwise, FindRefused returns what it has
// found.
func (s Claims) FindRefused(ctx context.Context, req ClaimRequest, err error) map[Claimable]error {
	found := map[Claimable]error{}
	if !refusesRow(err) {
		return found
	}
	nothing := req
	nothing.Limit = 0
	none, err := s.tryClaim(ctx, nothing, trial{})
	if err != nil { // even a claim of nothing
		return found
	}
	locked := lockedKeys{}
	if none.Keys.locked != nil {
		locked = *none.Keys.locked
	}
	runs, consumers, err := s.claimables(ctx, req, &locked)
	if err != nil {
		return found
	}
	_ = Isolate(runs, func(some []uuid.UUID) error {
		return s.tryRuns(ctx, req, some)
	}, func(id uuid.UUID, err error) {
		if refusesRow(err) {
			found[Claimable{RunID: id}] = err
			req.Without.Runs = append(slices.Clip(req.Without.Runs), id)
		}
	})
	if len(consumers) == 0 {
		return found
	}
	// the first run of a consumer may also be one that no claim can take
	_ = Isolate(consumers, func(some []string) error {
		_, err := s.tryClaim(ctx, req, trial{some})
		return err
	}, func(name string, err error) {
		if refusesRow(err) {
			found[Claimable{Consumer: name}] = err
		}
	})
	return found
}

// refusesRow reports whether err says that the database refuses a row, and always will.
func refusesRow(err error) bool {
	switch pg.Classify(err) {
	case pg.ClassRefused:
		return true
	case pg.ClassOther: // a trigger may fail in any way
		return MayBeRowError(err)
	}
	return false
}

// A trial is a claim that is rolled back, which starts runs of these consumers alone.
type trial struct{ consumers []string }

// tryClaim sends the claim as a trial.
func (s Claims) tryClaim(ctx context.Context, req ClaimRequest, t trial) (claim Claim, err error) {
	if ctx.Err() != nil {
		return Claim{}, ctx.Err()
	}
	req.trial = &t
	err = pg.Do(ctx, func(ctx context.Context) error {
		claim, err = s.claim(ctx, req)
		return err
	})
	return claim, err
}

// tryRuns writes what the claim would write to the runs, and rolls it back.
func (s Claims) tryRuns(ctx context.Context, req ClaimRequest, runs []uuid.UUID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	req.trial = &trial{}
	b := &pgx.Batch{}
	args := s.tryArgs(req, runs)
	if req.Keys == nil {
		b.Queue(tryRuns, args...)
		b.Queue(setBackRuns, args...)
	} else {
		b.Queue(tryKeyedRuns, args...)
	}
	return pg.Do(ctx, func(ctx context.Context) error {
		return pg.Exchange(ctx, s.pool, req.mode(pg.Relaxed), b)
	})
}

func (s Claims) tryArgs(req ClaimRequest, runs []uuid.UUID) []any {
	args := s.claimArgs(req)[:10]
	args[3], args[4], args[6] = array(runs), req.Keys != nil, len(runs)
	return args
}

// claimables returns the runs that a claim may take after it has locked the keys, and the consumers of these keys.
func (s Claims) claimables(ctx context.Context, req ClaimRequest,
	keys *lockedKeys,
) (runs []uuid.UUID, consumers []string, err error) {
	types, priorities, versions, _ := req.pairs()
	err = pg.Do(ctx, func(ctx context.Context) error {
		runs, consumers = nil, nil
		if err := pg.Ask(ctx, s.pool, dueRuns, []any{
			s.namespace, req.Queue, types, priorities, versions, req.Limit, array(req.Without.Runs), keys.scopes,
			keys.names,
		}, pg.Collect(&runs, pgx.RowTo[uuid.UUID])); err != nil || keys.consuming == nil {
			return err
		}
		return pg.Ask(ctx, s.pool, consumersOfKeys, []any{s.namespace, keys.consuming},
			pg.Collect(&consumers, pgx.RowTo[string]))
	})
	return runs, consumers, err
}
