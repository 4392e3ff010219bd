package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A cancellation says how runs are ended from outside.
type cancellation struct {
	how   int
	text  string        // the error of those that were asked for
	grace time.Duration // for what is under way in a run that has registered compensations; zero: CancelGrace
}

// Ways to end runs from outside.
const (
	compensateFirst = iota // what has registered compensations runs them first
	regardless             // whatever is registered
	parentEnded            // compensateFirst, of children whose parents were not cancelled but ended
)

// CancelGrace is how long a worker may take for what is under way in a run that was cancelled, and that has compensations.
const CancelGrace = time.Minute

// What the error of a run begins with that was ended. Of those that are terminated the compensations did not run.
const (
	wasCancelled  = "run was cancelled"
	wasTerminated = "run was terminated"
)

// why adds the caller's reason, if there is one.
func why(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// What a cancel takes along: the runs and all below them, each with its parent among them, but for what is detached. Their
// compensations are, for others than $3. A quarantined run may have children that still run; a run that ended otherwise has none.
const descendants = `
WITH RECURSIVE d AS (
	SELECT u.run_id, NULL::uuid AS parent_run_id FROM unnest($2::uuid[]) AS u (run_id)
	UNION
	SELECT c.run_id, d.run_id
	FROM d
	CROSS JOIN LATERAL (
		SELECT q.run_id
		FROM kagzi.workflow_runs q
		WHERE q.parent_run_id = d.run_id AND q.namespace_id = $1 AND (NOT q.detached OR $3::bool AND q.parent_step_id LIKE '%` + compensationSuffix + `')
			AND (q.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') OR q.quarantined)
		OFFSET 0
	) c
)
SELECT d.run_id, d.parent_run_id FROM d`

// Everything that may be written to, the parents of the first included, in order of run_id.
const lockFamily = `
SELECT r.run_id
FROM (
	SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id)
	UNION
	SELECT p.parent_run_id
	FROM unnest($3::uuid[]) AS u (run_id)
	CROSS JOIN LATERAL (
		SELECT q.parent_run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
	) p
	ORDER BY 1
) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE
) r`

// An ending is how a statement ends a run that no flush of its own ends.
type ending struct {
	run    uuid.UUID
	status string // Failed or Cancelled
	kind   string
	error  string
	asked  bool // somebody asked for it: a run whose compensations are under way ends so, too
}

// The runs, and the parents that their ends wake, are locked: what they have registered is decided. The time is the clock's,
// not the transaction's: a step may have been recorded while the lock was waited for. Of a run that is to run its
// compensations first, $3, this does one of four things. While its own execution may yet register more it is marked, for its
// worker to end it ($8 says how long that may take). If it has registered some its outcome is decided, and it sleeps until they have run. If they
// are under way, only the outcome may change. All others end, and wake their parents, but for one that ends itself. What
// ends, or is decided here, has its lease taken away: its worker may yet come with a write. $9 says that the lease of a run
// under way has lapsed.
const endRuns = `
WITH k AS MATERIALIZED (
	SELECT r.run_id, r.parent_run_id, r.now, r.now + $8::bigint * interval '1 microsecond' AS until,
		CASE WHEN $9::bool AND r.cancelling THEN 'CANCELLED' ELSE r.status END AS status,
		CASE WHEN $9::bool AND r.cancelling THEN r.old_kind ELSE r.error_kind END AS error_kind,
		CASE WHEN $9::bool AND r.cancelling THEN r.old_error ELSE r.error END AS error,
		CASE
			WHEN NOT $3::bool THEN 'end'
			WHEN r.compensating THEN CASE WHEN r.asked AND r.status = 'CANCELLED' THEN 'decide' ELSE 'leave' END
			WHEN r.running AND NOT $9::bool AND r.registers THEN 'mark'
			WHEN r.registered THEN 'compensate'
			ELSE 'end'
		END AS act
	FROM (
		SELECT q.run_id, q.parent_run_id, u.status, u.error_kind, u.error, u.asked, q.error_kind AS old_kind, q.error AS old_error,
			clock_timestamp() AS now, q.outcome IS NOT NULL AS compensating, q.cancel_requested_at IS NOT NULL AS cancelling, q.status = 'RUNNING' AS running,
			` + registers + ` AS registers,
			` + registered + ` AS registered
		FROM unnest($2::uuid[], $4::text[], $5::text[], $6::text[], $7::bool[]) AS u (run_id, status, error_kind, error, asked)
		CROSS JOIN LATERAL (
			SELECT c.run_id, c.parent_run_id, c.status, c.outcome, c.cancel_requested_at, c.error_kind, c.error
			FROM kagzi.workflow_runs c
			WHERE c.run_id = u.run_id AND c.namespace_id = $1 AND c.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'SCHEDULED', 'PAUSED')
			OFFSET 0
		) q
	) r
), l AS MATERIALIZED (
	SELECT k.*, jsonb_build_object('status', k.status, 'kind', k.error_kind, 'error', k.error) AS outcome FROM k
), w AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + k.ended,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.wakeups + k.ended >= r.wakeups_awaited THEN LEAST(r.available_at, k.now) ELSE r.available_at END
	FROM (SELECT l.parent_run_id, count(*) AS ended, min(l.now) AS now FROM l WHERE l.parent_run_id IS NOT NULL AND l.act = 'end' GROUP BY 1) k
	WHERE r.run_id = k.parent_run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
		AND NOT EXISTS (SELECT FROM l WHERE l.run_id = r.run_id AND l.act <> 'leave')
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'SLEEPING' AND r.available_at <= k.now AS due, r.outcome IS NOT NULL AS compensating
), d AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE l.act WHEN 'end' THEN l.status WHEN 'compensate' THEN 'SLEEPING' ELSE r.status END,
		outcome = CASE WHEN l.act IN ('compensate', 'decide') THEN l.outcome ELSE r.outcome END,
		finished_at = CASE WHEN l.act = 'end' THEN l.now END,
		available_at = CASE l.act WHEN 'end' THEN NULL WHEN 'compensate' THEN l.now WHEN 'decide' THEN l.now ELSE r.available_at END,
		deadline_at = CASE l.act WHEN 'mark' THEN LEAST(r.deadline_at, l.until) WHEN 'compensate' THEN NULL ELSE r.deadline_at END,
		wakeups_awaited = CASE WHEN l.act = 'compensate' THEN r.wakeups ELSE r.wakeups_awaited END,
		lease = CASE WHEN l.act IN ('end', 'compensate') THEN NULL ELSE r.lease END,
		locked_by = CASE WHEN l.act IN ('end', 'compensate') THEN NULL ELSE r.locked_by END,
		waiting_on = CASE WHEN l.act IN ('end', 'compensate') THEN NULL ELSE r.waiting_on END,
		attempts = r.attempts + CASE WHEN l.act IN ('end', 'compensate') AND l.status = 'FAILED' AND r.outcome IS NULL THEN 1 ELSE 0 END,
		error_kind = l.error_kind, error = l.error,
		cancel_requested_at = CASE WHEN l.act = 'mark' THEN coalesce(r.cancel_requested_at, l.now) ELSE r.cancel_requested_at END
	FROM l
	WHERE r.run_id = l.run_id AND r.namespace_id = $1 AND l.act <> 'leave'
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, l.act
)
SELECT d.run_id, d.act, false, false, d.task_queue, d.workflow_type, coalesce(d.version, 0) FROM d
UNION ALL
SELECT w.run_id, 'wake', w.due, w.compensating, w.task_queue, w.workflow_type, coalesce(w.version, 0) FROM w`

// endLocked ends runs in tx, which has locked them with their parents. first says that their compensations run first, and
// lapsed that the leases have lapsed of those that are under way. The first compensations start in tx, too; a parent that waited for
// an end to go on with its own does that later, because its parent is not locked.
func (s *Store) endLocked(ctx context.Context, tx pgx.Tx, ends []ending, first, lapsed bool, grace time.Duration) (*CancelledRuns, error) {
	n := len(ends)
	runs, statuses, kinds, texts, asked := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]string, n), make([]bool, n)
	for i, e := range ends {
		runs[i], statuses[i], kinds[i], texts[i], asked[i] = e.run, e.status, e.kind, e.error, e.asked
	}
	out := &CancelledRuns{}
	var next []uuid.UUID
	err := ask(ctx, tx, endRuns, []any{s.namespace, array(runs), first, statuses, kinds, texts, asked, micros(grace), lapsed}, func(rows pgx.Rows) error {
		var w Woken
		var act string
		var due, compensating bool
		_, err := pgx.ForEachRow(rows, []any{&w.RunID, &act, &due, &compensating, &w.Queue, &w.Type, &w.Version}, func() error {
			switch act {
			case "end":
				out.Ended = append(out.Ended, w.RunID)
			case "compensate":
				out.Compensating, next = append(out.Compensating, w.RunID), append(next, w.RunID)
			case "mark":
				out.Marked = append(out.Marked, w.RunID)
			case "decide": // a child that it waits for may have ended with it, whose wake it has not had
				out.Marked, out.Step = append(out.Marked, w.RunID), append(out.Step, w.RunID)
			default:
				out.Woken = append(out.Woken, w.RunID)
				if due && compensating {
					out.Step = append(out.Step, w.RunID)
				} else if due {
					out.Due = append(out.Due, w)
				}
			}
			return nil
		})
		return err
	})
	slices.SortFunc(next, compareIDs)
	for _, id := range next {
		if err != nil {
			break
		}
		err = s.compensateLocked(ctx, tx, id, out)
	}
	return out, err
}

// CancelledRuns says what a statement that ends runs has done.
type CancelledRuns struct {
	Ended        []uuid.UUID // are over
	Compensating []uuid.UUID // will be, once their compensations have run
	Marked       []uuid.UUID // their workers are to end them, or they end otherwise than was decided before
	Woken        []uuid.UUID // parents that learn of an end
	Due          []Woken     // runs that became due
	Step         []uuid.UUID // runs whose compensations are to go on: see Compensate
}

// Moved are the runs of which those who wait for them, or execute them, are to be told.
func (c *CancelledRuns) Moved() []uuid.UUID {
	return slices.Concat(c.Ended, c.Compensating, c.Marked, c.Woken)
}

// has reports whether the run itself has changed.
func (c *CancelledRuns) has(id uuid.UUID) bool {
	return slices.Contains(c.Ended, id) || slices.Contains(c.Compensating, id) || slices.Contains(c.Marked, id)
}

func (c *CancelledRuns) add(more *CancelledRuns) {
	c.Ended, c.Compensating = append(c.Ended, more.Ended...), append(c.Compensating, more.Compensating...)
	c.Marked, c.Woken, c.Due = append(c.Marked, more.Marked...), append(c.Woken, more.Woken...), append(c.Due, more.Due...)
	c.Step = append(c.Step, more.Step...)
}

// Cancel ends an active run and its children, those that have registered compensations once these have run, and wakes
// its parent. It is a transaction of its own, or a part of tx. A run that is cancelled already stays so; one that ended
// otherwise is ErrRunFinished. The reason is kept with the event. A worker that executes the run may take the grace for what is under way.
func (s *Store) Cancel(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason string, grace time.Duration) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventCancelled, reason), cancellation{text: why(wasCancelled, reason), grace: grace})
	return out, wrap("cancel", err)
}

// Terminate ends an active run and its children at once. It is Cancel otherwise.
func (s *Store) Terminate(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason string) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventTerminated, reason), cancellation{how: regardless, text: why(wasTerminated, reason)})
	return out, wrap("terminate", err)
}

func (s *Store) cancelOne(ctx context.Context, tx pgx.Tx, event RunEvent, c cancellation) (*CancelledRuns, error) {
	id := event.RunID
	out, tried := &CancelledRuns{}, false // a transaction of our own, whose answer may have been lost
	err := s.Safely(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.cancelAll(ctx, tx, []uuid.UUID{id}, c)
		if err != nil {
			return err
		}
		if now.has(id) {
			out, tried = now, true
			return s.noteEvents(ctx, tx, event)
		}
		status, err := s.status(ctx, tx, id)
		if err != nil || status == Cancelled {
			return err
		}
		if tried { // it took place, and a compensation failed; or it did not, and the run has ended by itself since
			if done, err := s.noted(ctx, tx, event); done || err != nil {
				return err
			}
		}
		out = &CancelledRuns{}
		return ErrRunFinished
	})
	return out, err
}

// cancelAll cancels runs, with all below them, in tx. The locks come in a statement before the look, because a statement
// decides by the snapshot from before it waited. A family that has grown meanwhile is locked anew, from the first.
func (s *Store) cancelAll(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, c cancellation) (out *CancelledRuns, err error) {
	for range 10 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			family, err := s.parents(ctx, tx, ids, c.how == regardless)
			if err != nil {
				return err
			}
			all := slices.Collect(maps.Keys(family))
			if err := ask(ctx, tx, lockFamily, []any{s.namespace, array(all), array(ids)}, nil); err != nil {
				return err
			}
			now, err := s.parents(ctx, tx, ids, c.how == regardless)
			if err != nil {
				return err
			}
			for id := range now {
				if _, known := family[id]; !known {
					return errGrown // and let go of the locks
				}
			}
			out, err = s.cancelLocked(ctx, tx, family, ids, c)
			return err
		})
		if !errors.Is(err, errGrown) {
			return out, err
		}
	}
	return nil, fmt.Errorf("the run starts children as fast as they are found: try again")
}

var errGrown = errors.New("the family has grown")

// parents returns the runs and all below them, each with its parent among them, or with uuid.Nil; compensations under way
// only if that is asked for.
func (s *Store) parents(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, compensations bool) (map[uuid.UUID]uuid.UUID, error) {
	parents := make(map[uuid.UUID]uuid.UUID, len(ids))
	err := ask(ctx, tx, descendants, []any{s.namespace, array(ids), compensations}, func(rows pgx.Rows) error {
		var id uuid.UUID
		var parent *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id, &parent}, func() error {
			if parent != nil || parents[id] == uuid.Nil { // one that was asked for may be below another
				parents[id] = deref(parent)
			}
			return nil
		})
		return err
	})
	return parents, err
}

// cancelLocked cancels the family of roots, whose error is c's text; that of the others names their parent.
func (s *Store) cancelLocked(ctx context.Context, tx pgx.Tx, family map[uuid.UUID]uuid.UUID, roots []uuid.UUID, c cancellation) (*CancelledRuns, error) {
	text, after := wasCancelled, " was cancelled"
	switch c.how {
	case regardless:
		text, after = wasTerminated, " was terminated"
	case parentEnded:
		after = " ended"
	}
	ends := make([]ending, 0, len(family))
	for _, id := range slices.SortedFunc(maps.Keys(family), compareIDs) {
		e := ending{run: id, status: Cancelled, kind: "cancelled", error: text + ": its parent " + family[id].String() + after}
		if slices.Contains(roots, id) {
			e.error, e.asked = c.text, true
		}
		ends = append(ends, e)
	}
	return s.endLocked(ctx, tx, ends, c.how != regardless, false, cmp.Or(c.grace, CancelGrace))
}

// ErrLeaseLost reports that the caller does not hold the run any more.
var ErrLeaseLost = errors.New("lease lost")
