package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Limits keeps the limits of steps, queues and keys.
type Limits struct{ *conn }

// A Place is a step of a run that this worker holds, in the line of a limit.
type Place struct {
	RunID uuid.UUID
	Lease uuid.UUID
	// with the number of the attempt: a request that arrives late, after its repetition, is about no other attempt
	StepID string
}

// A LimitRequest is what a worker asks of one limit, for all of its steps together.
type LimitRequest struct {
	Asks   []Place       // steps that want to begin, in their order
	Leaves []Place       // steps that have returned, or do not want to begin any more
	Yields []Place       // steps that keep their place although they cannot begin now
	Pause  time.Duration // the pause that a step's error asks for; zero: none did
}

// A LimitAnswer is the answer to one of the Asks.
type LimitAnswer struct {
	Granted bool      // the step may begin, at the time At
	At      time.Time // if it is not granted, when to ask again; zero: when the run is called
	Kept    bool      // the step has a row, so it must leave
	Lost    bool      // the run is not held under this lease any more
}

// A LimitResult is the result of Serve.
type LimitResult struct {
	Slots   int           // how many the limit has; zero: any number
	Late    time.Duration // how late a step may begin with its token; zero: the limit has no tokens
	Missing bool          // there is no such limit, and nothing was answered
	Answers []LimitAnswer // in the order of the Asks
	Called  []Signalled   // runs of others that were woken, because a slot is kept for one of their steps
	// serve again: some could not be called, because their rows are locked, or they are too many, or a slot was left by
	// a step without a token
	More bool
}

// How a limit is served.
const (
	// LimitSoon is how far ahead a token is given to a step that waits for it in memory. The step may begin that late,
	// or by the limitLate-th part of the time between two tokens: otherwise a token of each hour would be lost for a
	// second.
	LimitSoon = 200 * time.Millisecond
	limitLate = 10
	// limitKept is for how long a slot is kept for a step whose run was called.
	limitKept = time.Second
	// limitOver is for how long a slot counts after its run has ended, if the step's worker does not say that it has
	// returned.
	limitOver = 10 * time.Second
)

// The lock comes first, in a statement of its own: the later ones see what others have committed under it.
const lockLimit = `
SELECT c.max_running, c.every FROM kagzi.limits c WHERE c.limit_name = $2 AND c.namespace_id = $1 FOR UPDATE`

// A step that waits has no lease: then that of its run tells whether it is still this worker's.
const leaveLimit = `
DELETE FROM kagzi.limit_places p
WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1 AND CASE WHEN p.run_id IS NULL THEN false ELSE EXISTS (
	SELECT
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	WHERE u.run_id = p.run_id AND u.step_id = p.step_id AND CASE WHEN p.lease IS NULL THEN
		EXISTS (SELECT FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1
			AND q.lease = u.lease) ELSE p.lease = u.lease END
) END`

const yieldLimit = `
UPDATE kagzi.limit_places p
SET lease = NULL, due_at = NULL, called_at = NULL
WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1 AND CASE WHEN p.lease IS NULL THEN false ELSE EXISTS (
	SELECT
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	WHERE u.run_id = p.run_id AND u.step_id = p.step_id AND u.lease = p.lease
) END`

const pauseLimit = `
WITH pause AS MATERIALIZED (SELECT clock_timestamp() + $3::bigint * interval '1 microsecond' AS at)
UPDATE kagzi.limits c
SET next_at = GREATEST(c.next_at, pause.at), line_at = GREATEST(c.line_at, pause.at)
FROM pause
WHERE c.limit_name = $2 AND c.namespace_id = $1 AND c.retry_after`

// The slots of the dead: a run that goes on keeps its place in the line, a run that is over leaves it. The first of the
// lines are searched for runs that are over, too. A run that was cancelled has lost its lease: its slots are those that
// count after its end. If a run was deleted, nothing says when it ended: then its slots count from when they are first
// found without it (due_at), as its steps may still run.
const freeSlots = `
WITH clock AS MATERIALIZED (
	SELECT x.now, x.now - $3::bigint * interval '1 microsecond' AS over FROM (SELECT clock_timestamp() AS now) x
), freed AS MATERIALIZED (
	SELECT p.run_id, p.step_id, r.active, r.found AS lease, CASE WHEN r.found IS NOT NULL THEN clock.now END AS found_at
	FROM clock
	CROSS JOIN LATERAL (
		(SELECT x.run_id, x.step_id, x.lease, x.due_at FROM kagzi.limit_places x WHERE x.limit_name = $2
			AND x.namespace_id = $1 AND x.lease IS NOT NULL)
		UNION ALL
		(SELECT x.run_id, x.step_id, x.lease, x.due_at FROM kagzi.limit_places x
			WHERE x.limit_name = $2 AND x.namespace_id = $1 AND x.lease IS NULL AND x.due_at IS NULL ORDER BY x.place
				LIMIT 20)
		UNION ALL
		(SELECT x.run_id, x.step_id, x.lease, x.due_at FROM kagzi.limit_places x
			WHERE x.limit_name = $2 AND x.namespace_id = $1 AND x.lease IS NULL AND x.due_at IS NOT NULL
				ORDER BY x.due_at LIMIT 20)
	) p
	CROSS JOIN LATERAL (
		SELECT coalesce(bool_or(coalesce(q.lease, p.lease) = p.lease
			AND (q.status = 'RUNNING' OR q.finished_at > clock.over) OR p.lease IS NULL AND q.finished_at IS NULL),
				p.lease IS NOT NULL AND p.due_at > clock.over, false) AS live,
			coalesce(bool_or(q.finished_at IS NULL), false) AS active, CASE WHEN count(*) = 0 AND p.due_at IS NULL
				THEN p.lease END AS found
		FROM kagzi.workflow_runs q
		WHERE q.run_id = p.run_id AND q.namespace_id = $1
	) r
	WHERE NOT r.live
), deleted AS (
	DELETE FROM kagzi.limit_places p
	USING freed
	WHERE p.run_id = freed.run_id AND p.step_id = freed.step_id AND p.namespace_id = $1 AND NOT freed.active
		AND freed.found_at IS NULL
)
UPDATE kagzi.limit_places p
SET lease = freed.lease, due_at = freed.found_at, called_at = NULL
FROM freed
WHERE p.run_id = freed.run_id AND p.step_id = freed.step_id AND p.namespace_id = $1
	AND (freed.active OR freed.found_at IS NOT NULL)`

// u has the steps that ask, and c the others that wait for a slot or for which one is kept. k numbers them in the order
// of the line, and the first that find room may have a slot. A step that has it gets the next token if it has waited
// for one before (back), or if that does not delay the first one of the line (new). Otherwise it gets a time at the end
// of the line. A step that waited for its token, and then for a slot, still has the right to the next token: its
// token_at is epoch. Those who do not come at their time are waited for as long as a slot is kept. A step that was
// called, and finds no slot, is called again.
//
// No worker calls a run that is paused, because it would not come: it keeps its place.
//
// A called run that has a key waits for a slot of it. It leaves a change, because the key's place in the line of keys
// is when the run would have come by itself.
//
// So a token goes only to a step that is in memory: a run that comes late wastes none. If many come late together,
// those that find no token soon get one for later (token_at).
const serveLimit = `
WITH ` + clause.PausesOfRuns + `, ` + asksOfLimit + wouldCome + answersOfLimit

// The statement as far as which runs are called, and what follows.
const (
	asksOfLimit = `clock AS MATERIALIZED (
	SELECT clock_timestamp() AS now
), line AS MATERIALIZED (
	SELECT clock.now, clock.now + $6::bigint * interval '1 microsecond' AS soon,
		clock.now - GREATEST($6::bigint, c.every / $8::bigint) * interval '1 microsecond' AS stale,
		clock.now - $7::bigint * interval '1 microsecond' AS kept, c.every * interval '1 microsecond' AS every,
			c.max_running, c.last_place,
		GREATEST(c.next_at, clock.now - (c.burst - 1) * c.every * interval '1 microsecond') AS next_at,
		GREATEST(c.next_at, c.line_at, clock.now - (c.burst - 1) * c.every * interval '1 microsecond') AS line_at,
		coalesce(c.max_running - (
			SELECT count(*) FROM kagzi.limit_places h WHERE h.limit_name = $2 AND h.namespace_id = $1
				AND h.lease IS NOT NULL
		), 1000000000) AS room
	FROM clock
	CROSS JOIN kagzi.limits c
	WHERE c.limit_name = $2 AND c.namespace_id = $1
), asks AS MATERIALIZED (
	SELECT u.ord, u.run_id, u.step_id, u.lease, p.place, p.due_at, p.token_at, p.called_at, p.lease IS NOT NULL AS held
	FROM unnest($3::uuid[], $4::uuid[], $5::text[]) WITH ORDINALITY AS u (run_id, lease, step_id, ord)
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease
			AND q.status = 'RUNNING' OFFSET 0
	) r
	LEFT JOIN LATERAL (
		SELECT s.place, s.due_at, s.token_at, s.called_at, s.lease
		FROM kagzi.limit_places s
		WHERE s.run_id = u.run_id AND s.step_id = u.step_id AND s.namespace_id = $1 AND s.limit_name = $2
		OFFSET 0
	) p ON true
), callable AS MATERIALIZED (
	SELECT p.*
	FROM line
	CROSS JOIN LATERAL (
		SELECT w.run_id, w.step_id, w.place, w.called_at
		FROM kagzi.limit_places w
		WHERE w.limit_name = $2 AND w.namespace_id = $1 AND w.lease IS NULL AND w.due_at IS NULL
			AND (w.called_at IS NULL OR w.called_at > line.kept)
			AND CASE WHEN EXISTS (SELECT FROM asks WHERE asks.run_id = w.run_id AND asks.step_id = w.step_id) THEN false
				ELSE EXISTS (
				SELECT FROM kagzi.workflow_runs q
				WHERE q.run_id = w.run_id AND q.namespace_id = $1 AND q.finished_at IS NULL
					AND `
	answersOfLimit = `
			) END
		ORDER BY w.place
		LIMIT GREATEST(LEAST(line.room, 1000), 0)
	) p
), ranked AS MATERIALIZED (
	SELECT x.*, row_number() OVER (ORDER BY x.place, x.ord) <= line.room AS fits,
		CASE WHEN x.ord = 0 THEN '' WHEN x.token_at >= line.stale THEN 'kept' WHEN x.due_at IS NOT NULL
			OR x.token_at IS NOT NULL THEN 'back' ELSE 'new' END AS class
	FROM line
	CROSS JOIN (
		SELECT asks.ord, asks.run_id, asks.step_id, asks.place, asks.due_at, asks.token_at, asks.called_at
		FROM asks CROSS JOIN line
		WHERE NOT asks.held AND (asks.due_at IS NULL OR asks.due_at <= line.soon)
		UNION ALL
		SELECT 0, callable.run_id, callable.step_id, callable.place, NULL, NULL, callable.called_at FROM callable
	) x
), numbered AS MATERIALIZED (
	SELECT ranked.ord, ranked.class, row_number() OVER (PARTITION BY ranked.class
		ORDER BY ranked.place, ranked.ord) - 1 AS nth
	FROM ranked
	WHERE ranked.fits AND ranked.ord > 0
), gap AS MATERIALIZED (
	SELECT line.next_at + s.back * line.every AS free_at, f.first_at, s.new
	FROM line
	CROSS JOIN (SELECT count(*) FILTER (WHERE numbered.class = 'back') AS back,
		count(*) FILTER (WHERE numbered.class = 'new') AS new FROM numbered) s
	LEFT JOIN LATERAL (
		SELECT w.due_at AS first_at
		FROM kagzi.limit_places w
		WHERE w.limit_name = $2 AND w.namespace_id = $1 AND w.lease IS NULL AND w.due_at IS NOT NULL
			AND w.due_at > line.kept
			AND CASE WHEN EXISTS (SELECT FROM asks WHERE asks.run_id = w.run_id AND asks.step_id = w.step_id
				AND asks.due_at <= line.soon) THEN false ELSE EXISTS (
				SELECT FROM kagzi.workflow_runs q WHERE q.run_id = w.run_id AND q.namespace_id = $1
					AND q.finished_at IS NULL) END
		ORDER BY w.due_at
		LIMIT 1
	) f ON true
), bounds AS MATERIALIZED (
	SELECT gap.*, gap.free_at + x.at_once * line.every AS next_at, x.at_once,
		GREATEST(gap.free_at + x.at_once * line.every, CASE WHEN gap.first_at IS NOT NULL THEN line.line_at END)
			AS end_at
	FROM line
	CROSS JOIN gap
	CROSS JOIN LATERAL (
		SELECT count(*) AS at_once
		FROM numbered
		WHERE numbered.class = 'new' AND gap.free_at + numbered.nth * line.every <= line.soon
			AND (gap.first_at IS NULL OR gap.free_at + (numbered.nth + 1) * line.every <= gap.first_at)
	) x
), answers AS MATERIALIZED (
	SELECT a.*, coalesce(a.at <= line.soon AND (a.class <> 'new' OR a.at_once), false) AS granted
	FROM line
	CROSS JOIN bounds
	CROSS JOIN LATERAL (
		SELECT ranked.ord, ranked.run_id, ranked.step_id, ranked.place, ranked.due_at, ranked.token_at,
			ranked.called_at, ranked.class, ranked.fits, asks.lease, numbered.nth < bounds.at_once AS at_once,
			CASE WHEN NOT ranked.fits THEN NULL WHEN ranked.class = 'kept' THEN ranked.token_at
				ELSE GREATEST(line.now, CASE WHEN ranked.class = 'back' THEN line.next_at + numbered.nth * line.every
					WHEN numbered.nth < bounds.at_once THEN bounds.free_at + numbered.nth * line.every
					ELSE bounds.end_at + (numbered.nth - bounds.at_once) * line.every END) END AS at,
			line.last_place + row_number() OVER (ORDER BY ranked.place NULLS FIRST, ranked.ord) AS new_place
		FROM ranked
		JOIN asks ON asks.ord = ranked.ord
		LEFT JOIN numbered ON numbered.ord = ranked.ord
	) a
), written AS (
	INSERT INTO kagzi.limit_places AS p (run_id, step_id, namespace_id, limit_name, place, lease, due_at, token_at)
	SELECT answers.run_id, answers.step_id, $1, $2, coalesce(answers.place, answers.new_place),
		CASE WHEN answers.granted THEN answers.lease END, CASE WHEN NOT answers.granted THEN answers.at END,
			CASE WHEN answers.granted OR answers.class <> 'new' THEN coalesce(answers.at, answers.token_at, 'epoch') END
	FROM answers CROSS JOIN line
	WHERE CASE WHEN answers.granted THEN answers.place IS NOT NULL OR line.max_running IS NOT NULL
		ELSE answers.place IS NULL
		OR answers.at IS NOT NULL OR answers.due_at IS NOT NULL OR answers.called_at IS NOT NULL END
	ON CONFLICT (run_id, step_id, namespace_id) DO UPDATE
	SET limit_name = EXCLUDED.limit_name, place = EXCLUDED.place, lease = EXCLUDED.lease, due_at = EXCLUDED.due_at,
		token_at = EXCLUDED.token_at, called_at = NULL
), ahead AS MATERIALIZED (
	SELECT bounds.next_at, bounds.end_at + (bounds.new - bounds.at_once) * line.every AS line_at,
		line.last_place + x.places AS last_place
	FROM line
	CROSS JOIN bounds
	CROSS JOIN (SELECT count(*) FILTER (WHERE answers.place IS NULL) AS places, count(*) AS asked FROM answers) x
	WHERE x.asked > 0
), updated AS (
	UPDATE kagzi.limits c
	SET next_at = ahead.next_at, line_at = ahead.line_at, last_place = ahead.last_place
	FROM ahead
	WHERE c.limit_name = $2 AND c.namespace_id = $1
), locked AS MATERIALIZED (
	SELECT q.run_id, line.now
	FROM line
	CROSS JOIN (SELECT DISTINCT ranked.run_id FROM ranked WHERE ranked.ord = 0 AND ranked.fits
		AND ranked.called_at IS NULL ORDER BY 1) x
	CROSS JOIN LATERAL (
		SELECT y.run_id FROM kagzi.workflow_runs y WHERE y.run_id = x.run_id AND y.namespace_id = $1
			AND y.finished_at IS NULL FOR UPDATE SKIP LOCKED
	) q
), called AS (
	UPDATE kagzi.limit_places p
	SET called_at = locked.now
	FROM locked
	JOIN ranked ON ranked.run_id = locked.run_id
	WHERE ranked.ord = 0 AND ranked.fits AND ranked.called_at IS NULL AND p.run_id = ranked.run_id
		AND p.step_id = ranked.step_id AND p.namespace_id = $1
), woken AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + 1,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.outcome IS NULL AND r.wakeups + 1 >= r.wakeups_awaited
			THEN LEAST(r.available_at, locked.now) ELSE r.available_at END
	FROM locked
	WHERE r.run_id = locked.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'RUNNING' AS running, r.run_key,
		r.key_scope
), ` + insertChanges + ` woken k WHERE k.run_key IS NOT NULL AND NOT k.running
)
SELECT asks.ord, asks.held OR coalesce(answers.granted, false), CASE WHEN asks.held THEN asks.token_at
	WHEN answers.ord IS NULL THEN asks.due_at ELSE answers.at END,
	asks.held OR coalesce(answers.granted AND (answers.place IS NOT NULL OR line.max_running IS NOT NULL), false),
		NULL::uuid, NULL, NULL, 0, false
FROM asks CROSS JOIN line LEFT JOIN answers ON answers.ord = asks.ord
UNION ALL
SELECT 0, false, NULL, false, woken.run_id, woken.task_queue, woken.workflow_type, coalesce(woken.version, 0),
	woken.running FROM woken
UNION ALL
SELECT -1, false, NULL, false, NULL, NULL, NULL, 0, false
WHERE (SELECT count(*) FROM callable) >= 1000
	OR (SELECT count(*) FROM answers WHERE answers.fits AND NOT answers.granted) > 0
		AND (SELECT count(*) FROM ranked WHERE NOT ranked.fits) > 0
	OR (SELECT count(*) FROM (SELECT DISTINCT ranked.run_id FROM ranked
		WHERE ranked.ord = 0 AND ranked.fits AND ranked.called_at IS NULL) x) > (SELECT count(*) FROM locked)`
)

// wouldCome is the condition for a run q to come if it is called: no pause keeps it from that.
const wouldCome = comesUnpaused + ` AND ` + clause.Unstopped + ` AND ` + clause.KeyUnpaused + ` END`

const comesUnpaused = `CASE WHEN q.status = 'RUNNING' THEN true ELSE q.paused_at IS NULL`

// The statement for as long as nothing but single runs is paused, as far as the last claim knows: what the other one
// prepares costs a tenth of the steps. If that is wrong, the slot is kept for a run that does not come, until a
// coordinator serves the limit.
const serveLimitUnpaused = `
WITH ` + asksOfLimit + comesUnpaused + ` END` + answersOfLimit

// Serve takes back the slots of the steps that leave and of the dead, gives tokens and slots to the steps that
// ask, and calls the runs of others for which a slot is free. It may be repeated: a step that was granted keeps what it
// has, unless the limit has no slots and the step had not waited. Then a repetition takes another token.
func (s Limits) Serve(ctx context.Context, limit string, req LimitRequest) (out LimitResult, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = LimitResult{Missing: true}
		b := &pgx.Batch{}
		var reads []func(pgx.Rows) error
		queue := func(read func(pgx.Rows) error, sql string, args ...any) {
			b.Queue(sql, args...)
			reads = append(reads, read)
		}
		queue(func(rows pgx.Rows) error {
			var slots *int
			var every int64
			_, err := pgx.ForEachRow(rows, []any{&slots, &every}, func() error {
				out.Missing, out.Slots = false, pg.Deref(slots)
				if every > 0 {
					out.Late = max(LimitSoon, time.Duration(every)*time.Microsecond/limitLate)
				}
				return nil
			})
			return err
		}, lockLimit, s.namespace, limit)
		if len(req.Leaves) > 0 {
			queue(nil, leaveLimit, placeColumns.args(s.namespace, req.Leaves)...)
		}
		if len(req.Yields) > 0 {
			queue(nil, yieldLimit, placeColumns.args(s.namespace, req.Yields)...)
		}
		if req.Pause > 0 {
			queue(nil, pauseLimit, s.namespace, limit, pg.Micros(req.Pause))
		}
		queue(nil, freeSlots, s.namespace, limit, pg.Micros(limitOver))
		args := append([]any{s.namespace, limit}, placeColumns.args(s.namespace, req.Asks)[1:]...)
		statement := serveLimitUnpaused
		if s.pauses.Load() || len(req.Asks)+len(req.Leaves) == 0 { // a coordinator makes no claims
			statement = serveLimit
		}
		queue(out.read(len(req.Asks)), statement, append(args, pg.Micros(LimitSoon), pg.Micros(limitKept),
			limitLate)...)
		return pg.Exchange(ctx, s.pool, pg.Brief, b, reads...)
	})
	return out, pg.Wrap("serve limit", err)
}

var placeColumns = columnsOf(leaveLimit,
	uuids("run_id", func(p Place) uuid.UUID { return p.RunID }),
	uuids("lease", func(p Place) uuid.UUID { return p.Lease }),
	texts("step_id", func(p Place) string { return p.StepID }),
)

// read returns a function that reads the rows of serveLimit. An answer that is missing says that the lease is lost.
func (r *LimitResult) read(asks int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		r.Answers = make([]LimitAnswer, asks)
		for i := range r.Answers {
			r.Answers[i].Lost = true
		}
		for rows.Next() {
			var ord int
			var a LimitAnswer
			var run *uuid.UUID
			var queue, typ *string
			var called Signalled
			if err := rows.Scan(&ord, &a.Granted, pg.UTC(&a.At), &a.Kept, &run, &queue, &typ, &called.Version,
				&called.Running); err != nil {
				return err
			}
			switch {
			case ord > 0:
				r.Answers[ord-1] = a
			case ord == 0:
				called.RunID, called.Queue, called.Type, called.Due = *run, *queue, *typ, !called.Running
				r.Called = append(r.Called, called)
			default:
				r.More = true
			}
		}
		return rows.Err()
	}
}
