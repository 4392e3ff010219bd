package store

import (
	"context"
	"encoding/json"
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
INSERT INTO kagzi.limits AS c (limit_name, namespace_id, every, burst, max_running, retry_after, declared, set_by,
	next_at)
VALUES ($2, $1, $3, $4, NULLIF($5::int, 0), $6, $7::jsonb, $8::jsonb || jsonb_build_object('at', clock_timestamp()),
	clock_timestamp())
ON CONFLICT (limit_name, namespace_id) DO UPDATE
SET every = EXCLUDED.every, burst = EXCLUDED.burst, max_running = EXCLUDED.max_running,
	retry_after = EXCLUDED.retry_after, declared = EXCLUDED.declared, set_by = EXCLUDED.set_by`

const declareLimit = `
UPDATE kagzi.limits c SET declared = $3::jsonb WHERE c.limit_name = $2 AND c.namespace_id = $1`

// A step has named the limits. Until they are set, no step of them begins.
const nameLimits = `
INSERT INTO kagzi.limits AS c (limit_name, namespace_id, next_at)
SELECT u.name, $1, clock_timestamp() FROM unnest($2::text[]) AS u (name) ORDER BY u.name
ON CONFLICT (limit_name, namespace_id) DO NOTHING`

const limitBefore = `
SELECT c.every, c.burst, coalesce(c.max_running, 0), c.retry_after, c.declared, c.set_by
FROM kagzi.limits c
WHERE c.limit_name = $2 AND c.namespace_id = $1
FOR UPDATE`

// The next token comes when the new rate, of so many microseconds between two, allows it after the last step. $4 says
// that no error stops the steps any more. If the token comes earlier than before, the steps that were called wait
// again, at their places in the line, and are called for another time.
const moveTokens = `
WITH times AS MATERIALIZED (
	SELECT coalesce(c.last_at + LEAST($3::bigint * c.last_units::float8, $5) * interval '1 microsecond', c.next_at)
		AS next_at, c.next_at AS before
	FROM kagzi.limits c
	WHERE c.limit_name = $2 AND c.namespace_id = $1
), updated AS (
	UPDATE kagzi.limits x SET next_at = times.next_at, paused_until = CASE WHEN NOT $4::bool THEN x.paused_until END
	FROM times WHERE x.limit_name = $2 AND x.namespace_id = $1
)
UPDATE kagzi.limit_places p
SET state = 'WAITING', due_at = p.asked_at
WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.state = 'CALLED' AND CASE WHEN p.lease IS NULL
	THEN $4::bool OR (SELECT times.next_at < times.before FROM times) ELSE false END`

// Set creates or changes a limit. Serve then calls the steps that may begin earlier, or for which there are more slots.
func (s Limits) Set(ctx context.Context, l StepLimit, why Why) error {
	_, err := s.changeLimit(ctx, l, sets, why)
	return err
}

// Declare is Set for code: it changes nothing that Set has set, and returns who has set that; nil: it has changed it.
func (s Limits) Declare(ctx context.Context, l StepLimit) (by *SetBy, err error) {
	return s.changeLimit(ctx, l, declares, Why{Reason: "declared by the code"})
}

// Reset takes back what Set has set, in favour of what the code declares. It returns ErrNotDeclared.
func (s Limits) Reset(ctx context.Context, name string, why Why) error {
	_, err := s.changeLimit(ctx, StepLimit{Name: name}, resets, why)
	return err
}

// changeLimit changes a limit, and returns who had set it.
func (s Limits) changeLimit(ctx context.Context, limit StepLimit, c change, why Why) (by *SetBy, err error) {
	id := newID()
	err = pg.Again(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, s.pool, pg.Untimed, func(tx pgx.Tx) error {
			l := limit
			old, before, err := s.replaceLimit(ctx, tx, &l, c, id, why)
			by = before.Set
			lifts := old.RetryAfter && !l.RetryAfter
			if err != nil || l.Every == old.Every && !lifts {
				return err
			}
			return pg.Ask(ctx, tx, moveTokens, []any{
				s.namespace, l.Name, pg.Micros(l.Every), lifts, longestDebt.Microseconds(),
			}, nil)
		})
	})
	return by, pg.Wrap("set limit", err)
}

// replaceLimit stores the limit, and returns the one that was there, and its origin. It sets l to that one if an
// operator has set it and the code declares another, and to the declared one if it is reset.
func (s Limits) replaceLimit(ctx context.Context, tx pgx.Tx, l *StepLimit, c change, id uuid.UUID, why Why,
) (old StepLimit, before Origin, err error) {
	entry := NewEntry(EventUpdated, OnLimit, l.Name, why)
	entry.ID = id
	// the row exists, so that its lock keeps another change out
	if err := pg.Ask(ctx, tx, nameLimits, []any{s.namespace, []string{l.Name}}, nil); err != nil {
		return old, before, err
	}
	err = pg.AskRow(ctx, tx, limitBefore, []any{s.namespace, l.Name}, append([]any{
		pg.MicrosTo(&old.Every), &old.Burst, &old.MaxRunning, &old.RetryAfter,
	}, originTo(&before)...)...)
	if err != nil {
		return old, before, err
	}
	after, applies, err := c.next(before, l, why)
	switch {
	case err != nil:
		return old, before, err
	case !applies:
		old.Name, *l = l.Name, old
		return old, before, pg.Ask(ctx, tx, declareLimit, []any{s.namespace, old.Name, after.Declared}, nil)
	case c == resets:
		if err := json.Unmarshal(after.Declared, l); err != nil {
			return old, before, err
		}
	}
	if before.String() == "" {
		entry.Action = ActionCreated
	}
	entry.changeRate("rate", Rate{old.Every, old.Burst}, Rate{l.Every, l.Burst})
	entry.Change("max_running", old.MaxRunning, l.MaxRunning)
	entry.Change("honor_retry_after", old.RetryAfter, l.RetryAfter)
	if after.Declared != nil {
		entry.Change("origin", before.String(), after.String())
	}
	err = pg.Ask(ctx, tx, putLimit, append([]any{
		s.namespace, l.Name, pg.Micros(l.Every), l.Burst, l.MaxRunning, l.RetryAfter,
	}, after.args()...), nil)
	if err == nil && (entry.Changes != nil || entry.Action == ActionCreated) {
		err = s.audit(ctx, tx, entry)
	}
	return old, before, err
}

// Places of runs that are over do not keep a limit.
const usedLimit = `
SELECT EXISTS (
	SELECT FROM kagzi.limit_places p
	CROSS JOIN LATERAL (
		SELECT q.finished_at FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1 OFFSET 0
	) q
	WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.state IN ('WAITING', 'CALLED', 'RUNNING')
		AND q.finished_at IS NULL
)`

// Places of runs that are over go with it: if such a run was deleted, only one that serves the limit would remove them.
const deleteLimit = `
WITH places AS (
	DELETE FROM kagzi.limit_places p WHERE p.limit_name = $2 AND p.namespace_id = $1
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
			err := pg.AskRow(ctx, tx, limitBefore, []any{s.namespace, name}, nil, nil, nil, nil, nil, nil)
			if err != nil {
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

// A run that was suspended while it got a slot has no place in the line until the limit is served, and neither has a
// slot whose run was deleted. While a step is called, its answer serves the limit.
const stalledLimits = `
SELECT c.limit_name
FROM kagzi.limits c
CROSS JOIN LATERAL (
	SELECT FROM (
		(
			SELECT FROM kagzi.limit_places p
			WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.state = 'WAITING'
				AND CASE WHEN p.run_id IS NULL THEN false ELSE NOT EXISTS (
				SELECT FROM kagzi.limit_places k WHERE k.limit_name = c.limit_name AND k.namespace_id = $1
					AND k.state = 'CALLED' AND k.due_at > now()) END
			LIMIT 1
		)
		UNION ALL
		(
			SELECT FROM kagzi.limit_places p
			WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.state IN ('CALLED', 'RUNNING')
				AND CASE WHEN p.lease IS NULL THEN false ELSE NOT EXISTS (
				SELECT FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1
					AND q.status <> 'SLEEPING') END
			LIMIT 1
		)
	) x
	LIMIT 1
) w
WHERE c.limit_name > '' AND c.namespace_id = $1 AND (c.declared IS NOT NULL OR c.set_by IS NOT NULL)
ORDER BY c.limit_name`

// Waiting returns the limits that a coordinator has to serve if no worker does: those that steps wait for while none is
// called, and those that have a slot of a run that is not there any more. See Serve.
func (s Limits) Waiting(ctx context.Context) (names []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, stalledLimits, []any{s.namespace}, pg.Collect(&names, pgx.RowTo[string]))
	})
	return names, pg.Wrap("find limits that steps wait for", err)
}
