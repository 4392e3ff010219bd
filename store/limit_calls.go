package store

import (
	"slices"
	"time"

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
ON CONFLICT (run_id, step_id, namespace_id, limit_name) DO UPDATE
SET state = EXCLUDED.state, asked_at = EXCLUDED.asked_at, due_at = EXCLUDED.due_at, lease = EXCLUDED.lease,
	units = EXCLUDED.units`

var placeWrites = columnsOf(writePlaces,
	uuids("run_id", func(s *limitStep) uuid.UUID { return s.RunID }),
	texts("step_id", func(s *limitStep) string { return s.StepID }),
	texts("state", func(s *limitStep) string { return s.state }),
	bigints("asked_at", func(s *limitStep) int64 { return pg.Epoch(s.askedAt) }),
	bigints("due_at", func(s *limitStep) int64 { return pg.Epoch(s.dueAt) }),
	uuids("lease", func(s *limitStep) uuid.UUID { return s.Lease }),
	ints("units", func(s *limitStep) int { return s.units }),
)

const dropPlaces = `
DELETE FROM kagzi.limit_places p WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1
	AND CASE WHEN p.limit_name = $3 THEN p.state = 'WAITING' ELSE false END`

const takeTokens = `
UPDATE kagzi.limits c
SET next_at = timestamptz 'epoch' + $3::bigint * interval '1 microsecond',
	last_at = timestamptz 'epoch' + $4::bigint * interval '1 microsecond', last_units = $5
WHERE c.limit_name = $2 AND c.namespace_id = $1`

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
	v.dropLost()
	v.answers = !serveLines(v.lines) || v.answers
	for _, l := range v.lines {
		v.callSteps(&r, l)
	}
	if v.answers {
		v.answer(&r)
	}
	return r.Step
}

// dropLost forgets the steps that ask one of the limits without another: the lease was lost in between.
func (v *service) dropLost() {
	if len(v.lines) == 1 {
		return
	}
	n := map[int]int{}
	for _, l := range v.lines {
		for _, s := range l.asks {
			n[s.ord]++
		}
	}
	for _, l := range v.lines {
		l.asks = slices.DeleteFunc(l.asks, func(s *limitStep) bool { return n[s.ord] < len(v.lines) })
	}
}

// callSteps calls steps of a limit, and drops those of runs that are over. The steps that ask, have waited, and are to
// come later are called, too, because their runs may be suspended meanwhile: such a run waits for a call, and hears no
// answer.
func (v *service) callSteps(r *roundTrip, l *limitLine) {
	var over []uuid.UUID
	var called []*limitStep
	for _, s := range l.asks {
		if v.answers && s.had == placeWaiting && s.state == placeCalled && !s.isHeld() {
			s.comes = true
			called = append(called, s)
		}
	}
	for _, s := range l.head {
		switch {
		case s.over:
			over = append(over, s.RunID)
		case s.state == placeCalled:
			called = append(called, s)
		}
	}
	if called != nil {
		r.queue(func(rows pgx.Rows) error { return v.readCalled(called, rows) }, callRuns,
			calledColumns.args(v.namespace, called, l.name)...)
	}
	if over != nil {
		r.queue(nil, dropPlaces, v.namespace, array(over), l.name)
	}
}

// answer answers the steps that ask, and writes their places.
func (v *service) answer(r *roundTrip) {
	v.out.Answers = slices.Repeat([]LimitAnswer{{Lost: true}}, len(v.req.Asks))
	for _, l := range v.lines {
		if l.slots > 0 && (v.out.Slots == 0 || l.slots < v.out.Slots) {
			v.out.Slots = l.slots
		}
		var written []*limitStep
		var left []Place
		for _, s := range l.asks {
			switch writes := v.answerOne(&v.out.Answers[s.ord-1], s); {
			case s.state == placeLeft:
				left = append(left, s.Place)
			case writes:
				written = append(written, s)
			}
		}
		if left != nil {
			r.queue(nil, leaveLimit, placeColumns.args(v.namespace, left, l.name)...)
		}
		if written != nil {
			r.queue(nil, writePlaces, placeWrites.args(v.namespace, written, l.name)...)
		}
		if l.given > 0 && l.every > 0 {
			r.queue(nil, takeTokens, v.namespace, l.name, pg.Epoch(l.token(l.given)),
				pg.Epoch(l.token(l.given-l.last)), l.last)
		}
	}
}

// answerOne adds to the answer what one of the step's limits says. It reports whether the place there is written; that
// of a step that has waited and is called is written by callRuns.
func (v *service) answerOne(a *LimitAnswer, s *limitStep) (writes bool) {
	l := s.line
	if a.Lost {
		*a = LimitAnswer{Granted: true}
	}
	kept := s.had != "" || l.slots > 0 || len(v.lines) > 1
	a.Kept = a.Kept || kept
	switch {
	case s.had == placeRunning && s.state == "", s.state == placeRunning:
		if a.Granted {
			a.At = latest(a.At, s.dueAt)
		}
		if late := l.late(); late > 0 && (a.Late == 0 || late < a.Late) {
			a.Late = late
		}
		return kept && s.had != placeRunning
	case a.Granted:
		a.Granted, a.At = false, time.Time{}
	}
	switch {
	case s.isHeld():
		return true
	case s.state == placeCalled:
		if a.At = s.callAt; a.Waits == "" || l.every > 0 {
			a.Waits = l.name
		}
		return s.had != placeWaiting
	case s.state == placeWaiting:
		a.Waits = l.name
		return s.had != placeWaiting
	}
	return false
}

// readCalled reads which runs were called. Those for which nothing is kept need no hint, because they could not come.
func (v *service) readCalled(steps []*limitStep, rows pgx.Rows) error {
	kept := map[uuid.UUID]bool{}
	for _, s := range steps {
		if s.comes {
			kept[s.RunID] = true
		}
	}
	n := 0
	var r Signalled
	_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&r.RunID), &r.Queue, &r.Type, &r.Version, &r.Running}, func() error {
		if r.Due = !r.Running; kept[r.RunID] {
			n++
			v.out.Called = append(v.out.Called, r)
		}
		return nil
	})
	v.out.More = v.out.More || n < len(kept)
	return err
}
