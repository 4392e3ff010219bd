package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A StepLimit is a limit on steps.
type StepLimit struct {
	Name       string
	Every      time.Duration // between two tokens; zero: a step needs none
	Burst      int           // at least 1
	MaxRunning int           // zero: any number
	RetryAfter bool          // an error that asks for a pause stops all steps
}

const putLimit = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO kagzi.limits AS c (limit_name, namespace_id, every, burst, max_running, retry_after, next_at, line_at)
SELECT $2, $1, $3, $4, NULLIF($5::int, 0), $6, clock.now, clock.now
FROM clock
ON CONFLICT (limit_name, namespace_id) DO UPDATE
SET every = EXCLUDED.every, burst = EXCLUDED.burst, max_running = EXCLUDED.max_running,
	retry_after = EXCLUDED.retry_after`

const limitBefore = `
SELECT c.every, c.burst, coalesce(c.max_running, 0), c.retry_after FROM kagzi.limits c WHERE c.limit_name = $2
	AND c.namespace_id = $1 FOR UPDATE`

// $3 is how much shorter the wait for a token has become, and $4 says that no error stops the steps any more: then the
// next token comes as soon as it may come after one that was just given. No wait gets longer by this statement: who
// comes too early finds no token, and gets another time. The runs that others have locked come at their old times. The
// keys of the runs that come earlier get a change, so that claims look at them earlier, too.
const hurryLimit = `
WITH clock AS MATERIALIZED (
	SELECT clock_timestamp() AS now
), times AS MATERIALIZED (
	SELECT x.now, x.earlier, x.now + GREATEST(x.next_at - x.earlier - x.now, '0') * $3::float8 AS next_at,
		x.now + GREATEST(x.line_at - x.earlier - x.now, '0') * $3::float8 AS line_at
	FROM (
		SELECT clock.now, c.next_at, c.line_at,
			CASE WHEN $4::bool THEN GREATEST(c.next_at - clock.now - ($5::bigint + c.every) * interval '1 microsecond',
				'0') ELSE '0' END AS earlier
		FROM clock
		CROSS JOIN kagzi.limits c
		WHERE c.limit_name = $2 AND c.namespace_id = $1
	) x
), updated AS (
	UPDATE kagzi.limits x SET next_at = times.next_at, line_at = times.line_at FROM times WHERE x.limit_name = $2
		AND x.namespace_id = $1
), places AS MATERIALIZED (
	SELECT w.run_id, w.step_id, times.now + GREATEST(w.due_at - times.earlier - times.now, '0') * $3::float8 AS due_at,
		CASE WHEN w.token_at <= times.now THEN w.token_at WHEN $4::bool THEN 'epoch'
			ELSE times.now + (w.token_at - times.now) * $3::float8 END AS token_at
	FROM times
	CROSS JOIN kagzi.limit_places w
	WHERE w.limit_name = $2 AND w.namespace_id = $1 AND w.lease IS NULL AND w.due_at IS NOT NULL
), moved AS (
	UPDATE kagzi.limit_places x SET due_at = places.due_at, token_at = places.token_at FROM places
		WHERE x.run_id = places.run_id AND x.step_id = places.step_id AND x.namespace_id = $1
), locked AS MATERIALIZED (
	SELECT q.run_id, r.due_at
	FROM (SELECT places.run_id, min(places.due_at) AS due_at FROM places GROUP BY 1 ORDER BY 1) r
	CROSS JOIN LATERAL (
		SELECT y.run_id FROM kagzi.workflow_runs y WHERE y.run_id = r.run_id AND y.namespace_id = $1
			AND y.finished_at IS NULL FOR UPDATE SKIP LOCKED
	) q
), woken AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + CASE WHEN r.status = 'RUNNING' THEN 1 ELSE 0 END,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.outcome IS NULL THEN LEAST(r.available_at, locked.due_at)
			ELSE r.available_at END
	FROM locked
	WHERE r.run_id = locked.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.task_queue, r.workflow_type, coalesce(r.version, 0) AS version,
		r.status = 'RUNNING' AS running, r.run_key, r.key_scope
), ` + insertChanges + ` woken k WHERE k.run_key IS NOT NULL AND NOT k.running
)
SELECT woken.run_id, woken.task_queue, woken.workflow_type, woken.version, woken.running FROM woken`

// Set creates or changes a limit. It returns the runs that become due earlier. After a lost answer it may return
// none: their workers find them by looking at the table.
func (s Limits) Set(ctx context.Context, l StepLimit, why Why) (woken []Signalled, err error) {
	id := newID()
	err = pg.Again(ctx, func(ctx context.Context) error {
		woken = nil
		return pg.Transact(ctx, s.pool, pg.Untimed, func(tx pgx.Tx) error {
			old, err := s.replaceLimit(ctx, tx, l, id, why)
			if err != nil {
				return err
			}
			before := pg.Micros(old.Every)
			factor, lifts := 1.0, old.RetryAfter && !l.RetryAfter
			switch every := pg.Micros(l.Every); {
			case every == 0 && (before > 0 || lifts): // no step waits for a token
				factor = 0
			case every > 0 && before > every:
				factor = float64(every) / float64(before)
			case !lifts:
				return nil
			}
			return pg.Ask(ctx, tx, hurryLimit, []any{s.namespace, l.Name, factor, lifts, pg.Micros(LimitSoon)},
				func(rows pgx.Rows) error {
					var r Signalled
					_, err := pgx.ForEachRow(rows, []any{
						pg.UUIDTo(&r.RunID), &r.Queue, &r.Type, &r.Version,
						&r.Running,
					},
						func() error {
							r.Due = !r.Running
							woken = append(woken, r)
							return nil
						})
					return err
				})
		})
	})
	return woken, pg.Wrap("set limit", err)
}

// replaceLimit stores the limit, and returns the one that was there.
func (s Limits) replaceLimit(ctx context.Context, tx pgx.Tx, l StepLimit, id uuid.UUID,
	why Why,
) (old StepLimit, err error) {
	entry := NewEntry(EventUpdated, OnLimit, l.Name, why)
	entry.ID = id
	err = pg.AskRow(ctx, tx, limitBefore, []any{s.namespace, l.Name}, pg.MicrosTo(&old.Every), &old.Burst,
		&old.MaxRunning,
		&old.RetryAfter)
	if errors.Is(err, pgx.ErrNoRows) {
		entry.Action = ActionCreated
	} else if err != nil {
		return old, err
	}
	entry.changeRate("rate", Rate{old.Every, old.Burst}, Rate{l.Every, l.Burst})
	entry.Change("max_running", old.MaxRunning, l.MaxRunning)
	entry.Change("honor_retry_after", old.RetryAfter, l.RetryAfter)
	err = pg.Ask(ctx, tx, putLimit, []any{s.namespace, l.Name, pg.Micros(l.Every), l.Burst, l.MaxRunning, l.RetryAfter},
		nil)
	if err == nil && (entry.Changes != nil || entry.Action == ActionCreated) {
		err = s.audit(ctx, tx, entry)
	}
	return old, err
}

// Places of runs that are over do not keep a limit. The conditions are those of the indexes.
const usedLimit = `
SELECT EXISTS (
	SELECT FROM (
		(SELECT p.run_id FROM kagzi.limit_places p WHERE p.limit_name = $2 AND p.namespace_id = $1
			AND p.lease IS NOT NULL)
		UNION ALL
		(SELECT p.run_id FROM kagzi.limit_places p WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.lease IS NULL
			AND p.due_at IS NULL)
		UNION ALL
		(SELECT p.run_id FROM kagzi.limit_places p WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.lease IS NULL
			AND p.due_at IS NOT NULL)
	) p
	CROSS JOIN LATERAL (
		SELECT q.finished_at FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1 OFFSET 0
	) q
	WHERE q.finished_at IS NULL
)`

// Slots of runs that are over go with it: if such a run was deleted, only one that serves the limit would remove them.
const deleteLimit = `
WITH places AS (
	DELETE FROM kagzi.limit_places p WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.lease IS NOT NULL
)
DELETE FROM kagzi.limits c WHERE c.limit_name = $2 AND c.namespace_id = $1`

// Delete deletes a limit that no step of an active run waits for or has a slot of. It reports whether there was
// such a limit, and whether it is in use.
func (s Limits) Delete(ctx context.Context, name string, why Why) (found, used bool, err error) {
	entry := NewEntry(EventDeleted, OnLimit, name, why)
	tried := false // an earlier try has deleted it, and its answer may have been lost
	err = pg.Again(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, s.pool, pg.Untimed, func(tx pgx.Tx) error {
			found, used = tried, false
			if err := pg.AskRow(ctx, tx, limitBefore, []any{s.namespace, name}, nil, nil, nil, nil); err != nil {
				if err == pgx.ErrNoRows {
					return nil
				}
				return err
			}
			found = true
			used, err = pg.AskOne[bool](ctx, tx, usedLimit, s.namespace, name)
			if err != nil || used {
				return err
			}
			if err = pg.Ask(ctx, tx, deleteLimit, []any{s.namespace, name}, nil); err != nil {
				return err
			}
			tried = true
			return s.audit(ctx, tx, entry)
		})
	})
	return found, used, pg.Wrap("delete limit", err)
}

// A loose scan, because only limits whose line has a step to call are of interest. A run that was suspended while it
// got a slot has no place in the line until the limit is served. A slot whose run was deleted is freed by the next that
// serves the limit.
const stalledLimits = `
SELECT c.limit_name
FROM kagzi.limits c
CROSS JOIN LATERAL (
	SELECT FROM (
		(SELECT FROM kagzi.limit_places p WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.lease IS NULL
			AND p.due_at IS NULL AND p.called_at IS NULL LIMIT 1)
		UNION ALL
		(
			SELECT FROM kagzi.limit_places p
			WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.lease IS NOT NULL
				AND CASE WHEN p.run_id IS NULL THEN false ELSE NOT EXISTS (
				SELECT FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1
					AND q.status <> 'SLEEPING') END
			LIMIT 1
		)
	) x
	LIMIT 1
) w
WHERE c.limit_name > '' AND c.namespace_id = $1
ORDER BY c.limit_name`

// Waiting returns the limits for whose slots steps wait, or that have a slot of a run that is not there any more.
// A coordinator has to serve them if the worker has died that should have: see Serve.
func (s Limits) Waiting(ctx context.Context) (names []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, stalledLimits, []any{s.namespace}, pg.Collect(&names, pgx.RowTo[string]))
	})
	return names, pg.Wrap("find limits that steps wait for", err)
}
