package store

import (
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

const writePlaces = `
INSERT INTO kagzi.limit_places AS p (run_id, step_id, namespace_id, limit_name, state, asked_at, due_at, lease, units)
SELECT u.run_id, u.step_id, $1, $9, u.state, timestamptz 'epoch' + u.asked_at * interval '1 microsecond',
	timestamptz 'epoch' + u.due_at * interval '1 microsecond', CASE WHEN u.state = 'RUNNING' THEN u.lease END,
	u.units
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::uuid[], $8::int[])
	AS u (run_id, step_id, state, asked_at, due_at, lease, units)
ON CONFLICT (run_id, step_id, namespace_id) DO UPDATE
SET limit_name = EXCLUDED.limit_name, state = EXCLUDED.state, asked_at = EXCLUDED.asked_at, due_at = EXCLUDED.due_at,
	lease = EXCLUDED.lease, units = EXCLUDED.units`

var placeWrites = columnsOf(writePlaces,
	uuids("run_id", func(s *limitStep) uuid.UUID { return s.RunID }),
	texts("step_id", func(s *limitStep) string { return s.StepID }),
	texts("state", func(s *limitStep) string { return s.state }),
	bigints("asked_at", func(s *limitStep) int64 { return pg.Epoch(s.askedAt) }),
	bigints("due_at", func(s *limitStep) int64 { return pg.Epoch(s.dueAt) }),
	uuids("lease", func(s *limitStep) uuid.UUID { return s.Lease }),
	ints("units", func(s *limitStep) int { return s.Units }),
)

const dropPlaces = `
DELETE FROM kagzi.limit_places p WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1
	AND CASE WHEN p.limit_name = $3 THEN p.state = 'WAITING' ELSE false END`

const takeTokens = `
UPDATE kagzi.limits c
SET next_at = timestamptz 'epoch' + $3::bigint * interval '1 microsecond',
	last_at = timestamptz 'epoch' + $4::bigint * interval '1 microsecond', last_units = $5
WHERE c.limit_name = $2 AND c.namespace_id = $1`

// A step that has a slot by now asks another limit, because its code is new: it is not called.
//
// A called run that has a key waits for a slot of it. It leaves a change, because the key's place in the line of keys
// is when the run would have come by itself.
const callRuns = `
WITH calls AS MATERIALIZED (
	SELECT u.run_id, u.step_id, timestamptz 'epoch' + u.call_at * interval '1 microsecond' AS call_at,
		timestamptz 'epoch' + u.due_at * interval '1 microsecond' AS due_at
	FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[]) AS u (run_id, step_id, call_at, due_at)
), locked AS MATERIALIZED (
	SELECT q.run_id, c.call_at
	FROM (SELECT calls.run_id, min(calls.call_at) AS call_at FROM calls GROUP BY 1 ORDER BY 1) c
	CROSS JOIN LATERAL (
		SELECT y.run_id FROM kagzi.workflow_runs y WHERE y.run_id = c.run_id AND y.namespace_id = $1
			AND y.finished_at IS NULL FOR UPDATE SKIP LOCKED
	) q
), kept AS MATERIALIZED (
	SELECT calls.run_id, calls.step_id, calls.due_at FROM calls JOIN locked ON locked.run_id = calls.run_id
), called AS (
	UPDATE kagzi.limit_places p
	SET state = 'CALLED', due_at = kept.due_at
	FROM kept
	WHERE p.run_id = ANY ($2::uuid[]) AND p.run_id = kept.run_id AND p.step_id = kept.step_id AND p.namespace_id = $1
		AND CASE WHEN p.limit_name = $6 THEN p.state <> 'RUNNING' ELSE false END
), woken AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + 1,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.outcome IS NULL AND r.wakeups + 1 >= r.wakeups_awaited
			THEN LEAST(r.available_at, locked.call_at) ELSE r.available_at END
	FROM locked
	WHERE r.run_id = locked.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'RUNNING' AS running, r.run_key,
		r.key_scope
), ` + insertChanges + ` woken k WHERE k.run_key IS NOT NULL AND NOT k.running
)
SELECT woken.run_id, woken.task_queue, woken.workflow_type, coalesce(woken.version, 0), woken.running FROM woken`

var calledColumns = columnsOf(callRuns,
	uuids("run_id", func(s *limitStep) uuid.UUID { return s.RunID }),
	texts("step_id", func(s *limitStep) string { return s.StepID }),
	bigints("call_at", func(s *limitStep) int64 { return pg.Epoch(s.callAt) }),
	bigints("due_at", func(s *limitStep) int64 { return pg.Epoch(s.dueAt) }),
)

// write returns the second round trip, which ends the transaction.
func (v *service) write() pg.Step {
	r := roundTrip{pg.Step{Batch: &pgx.Batch{}}}
	if v.out.Missing {
		v.answers = true
		return r.Step
	}
	l := &v.line
	v.answers = !l.serve() || v.answers
	var over []uuid.UUID
	called := v.toCome()
	for _, s := range l.head {
		switch {
		case s.over:
			over = append(over, s.RunID)
		case s.state == placeCalled:
			called = append(called, s)
		}
	}
	if called != nil {
		r.queue(v.readCalled, callRuns, calledColumns.args(v.namespace, called, v.limit)...)
	}
	if over != nil {
		r.queue(nil, dropPlaces, v.namespace, array(over), v.limit)
	}
	if v.answers {
		v.answer(&r)
	}
	return r.Step
}

// toCome returns the steps that ask, have waited, and are to come later. They are called, because their runs may be
// suspended meanwhile: such a run waits for a call, and hears no answer.
func (v *service) toCome() (called []*limitStep) {
	for _, s := range v.line.asks {
		if v.answers && s.had == placeWaiting && s.state == placeCalled {
			s.comes = true
			called = append(called, s)
		}
	}
	return called
}

// answer answers the steps that ask, and writes their places.
func (v *service) answer(r *roundTrip) {
	l := &v.line
	v.out.Answers = slices.Repeat([]LimitAnswer{{Lost: true}}, len(v.req.Asks))
	var written []*limitStep
	for _, s := range l.asks {
		a := LimitAnswer{Kept: s.had != "" || v.out.Slots > 0}
		writes := s.state != s.had
		switch {
		case s.had == placeRunning:
			a.Granted, a.At, writes = true, s.dueAt, false
		case s.state == placeRunning:
			a.Granted, a.At, writes = true, s.dueAt, a.Kept
		case s.state == placeCalled:
			a.At, writes = s.callAt, s.had != placeWaiting // callRuns writes it
		}
		v.out.Answers[s.ord-1] = a
		if writes {
			written = append(written, s)
		}
	}
	if written != nil {
		r.queue(nil, writePlaces, placeWrites.args(v.namespace, written, v.limit)...)
	}
	if l.given > 0 && l.every > 0 {
		r.queue(nil, takeTokens, v.namespace, v.limit, pg.Epoch(l.token(l.given)), pg.Epoch(l.token(l.given-l.last)),
			l.last)
	}
}

// readCalled reads which runs were called. Those for which nothing is kept need no hint, because they could not come.
func (v *service) readCalled(rows pgx.Rows) error {
	kept := map[uuid.UUID]bool{}
	for _, steps := range [][]*limitStep{v.line.head, v.line.asks} {
		for _, s := range steps {
			if s.comes && s.state == placeCalled {
				kept[s.RunID] = true
			}
		}
	}
	var r Signalled
	_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&r.RunID), &r.Queue, &r.Type, &r.Version, &r.Running}, func() error {
		if r.Due = !r.Running; kept[r.RunID] {
			v.out.Called = append(v.out.Called, r)
		}
		return nil
	})
	v.out.More = len(v.out.Called) < len(kept)
	return err
}
