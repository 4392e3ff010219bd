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

	"github.com/kagzi/kagzi/internal/pg"
)

// A cancellation says how to end runs that a worker may still execute.
type cancellation struct {
	how   int
	text  string        // the error of the runs that were given
	grace time.Duration // for the steps under way in a run that has registered compensations; zero: CancelGrace
}

// The values of cancellation.how.
const (
	compensateFirst = iota // a run that has registered compensations runs them first
	regardless             // even if compensations are registered
	parentEnded            // compensateFirst, for children whose parents ended without a cancel
)

// CancelGrace is how long a worker may take for the steps under way in a cancelled run that has compensations.
const CancelGrace = time.Minute

// The error of a run that a cancellation ended begins with one of these. A terminated run runs no compensations.
const (
	wasCancelled  = "run was cancelled"
	wasTerminated = "run was terminated"
)

// withReason appends the caller's reason, if there is one.
func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// The runs that a cancel ends: those given and all below them, each with its parent among them. Detached children are
// excluded. So are compensations, which are detached, too, unless $3 is set. Of the runs that are over, only
// quarantined ones may have children that still run.
const descendants = `
WITH RECURSIVE family AS (
	SELECT u.run_id, NULL::uuid AS parent_run_id FROM unnest($2::uuid[]) AS u (run_id)
	UNION
	SELECT c.run_id, family.run_id
	FROM family
	CROSS JOIN LATERAL (
		SELECT q.run_id
		FROM kagzi.workflow_runs q
		WHERE q.parent_run_id = family.run_id AND q.namespace_id = $1
			AND (NOT q.detached OR $3::bool AND q.parent_step_id LIKE '%` + compensationSuffix + `')
			AND (q.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') OR q.quarantined)
		OFFSET 0
	) c
)
SELECT family.run_id, family.parent_run_id FROM family`

// Locks all rows that a cancel may write, including the parents of the runs given, in order of run_id.
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

// Cancel ends an active run and its children, and wakes its parent. A run that has registered compensations ends once
// these have run; before they start, its worker has the grace to finish the steps under way. Cancel is a transaction of
// its own, or a part of tx. It does not change a run that is cancelled already, and returns ErrRunFinished for a run
// that ended otherwise. The event says why.
func (s Runs) Cancel(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why,
	grace time.Duration,
) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventCancelled, why),
		cancellation{text: withReason(wasCancelled, why.Reason), grace: grace})
	return out, pg.Wrap("cancel", err)
}

// Terminate is Cancel without compensations and without a grace: the run and its children end at once.
func (s Runs) Terminate(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventTerminated, why),
		cancellation{how: regardless, text: withReason(wasTerminated, why.Reason)})
	return out, pg.Wrap("terminate", err)
}

func (s Runs) cancelOne(ctx context.Context, tx pgx.Tx, event RunEvent, c cancellation) (*CancelledRuns, error) {
	id := event.RunID
	out, tried := &CancelledRuns{}, false // an earlier try of our own transaction, whose answer may have been lost
	err := s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := Ends(s).cancelAll(ctx, tx, []uuid.UUID{id}, c)
		if err != nil {
			return err
		}
		if now.has(id) {
			out, tried = now, true
			return s.writeEvents(ctx, tx, event)
		}
		status, err := s.status(ctx, tx, id)
		if err != nil || status == Cancelled {
			return err
		}
		// either the first try took effect and a compensation failed, or it did not and the run ended by itself
		if tried {
			if done, err := s.hasEvent(ctx, tx, event); done || err != nil {
				return err
			}
		}
		out = &CancelledRuns{}
		return ErrRunFinished
	})
	return out, err
}

// cancelAll cancels runs in tx, with all below them. It reads the family again after locking it, because a statement
// that waits for locks sees the state before the wait. If the family has grown, cancelAll unlocks it and locks it again
// in order.
func (s Ends) cancelAll(ctx context.Context, tx pgx.Tx, ids []uuid.UUID,
	c cancellation,
) (out *CancelledRuns, err error) {
	for range 10 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			family, err := s.parents(ctx, tx, ids, c.how == regardless)
			if err != nil {
				return err
			}
			all := slices.Collect(maps.Keys(family))
			if err := pg.Ask(ctx, tx, lockFamily, []any{s.namespace, array(all), array(ids)}, nil); err != nil {
				return err
			}
			now, err := s.parents(ctx, tx, ids, c.how == regardless)
			if err != nil {
				return err
			}
			for id := range now {
				if _, known := family[id]; !known {
					return errGrown
				}
			}
			out, err = s.cancelLocked(ctx, tx, family, ids, c)
			return err
		})
		if !errors.Is(err, errGrown) {
			return out, err
		}
	}
	return nil, fmt.Errorf("the run kept starting children during the call: try again")
}

var errGrown = errors.New("the family has grown")

// parents returns the runs and all below them, each with its parent among them, or with uuid.Nil. compensations says
// whether it includes the compensations under way.
func (s Ends) parents(ctx context.Context, tx pgx.Tx, ids []uuid.UUID,
	compensations bool,
) (map[uuid.UUID]uuid.UUID, error) {
	parents := make(map[uuid.UUID]uuid.UUID, len(ids))
	err := pg.Ask(ctx, tx, descendants, []any{s.namespace, array(ids), compensations}, func(rows pgx.Rows) error {
		var id uuid.UUID
		var parent *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id, &parent}, func() error {
			if parent != nil || parents[id] == uuid.Nil { // a run of ids may be below another one
				parents[id] = pg.Deref(parent)
			}
			return nil
		})
		return err
	})
	return parents, err
}

// cancelLocked cancels the family of roots. The roots get the error of c; the errors of the others name their parents.
func (s Ends) cancelLocked(ctx context.Context, tx pgx.Tx, family map[uuid.UUID]uuid.UUID, roots []uuid.UUID,
	c cancellation,
) (*CancelledRuns, error) {
	text, after := wasCancelled, " was cancelled"
	switch c.how {
	case regardless:
		text, after = wasTerminated, " was terminated"
	case parentEnded:
		after = " ended"
	}
	ends := make([]ending, 0, len(family))
	for _, id := range slices.SortedFunc(maps.Keys(family), compareIDs) {
		e := ending{run: id, status: Cancelled, kind: "cancelled", error: text + ": its parent " +
			family[id].String() + after}
		if slices.Contains(roots, id) {
			e.error, e.asked = c.text, true
		}
		ends = append(ends, e)
	}
	return s.endLocked(ctx, tx, ends, c.how != regardless, false, cmp.Or(c.grace, CancelGrace))
}

// ErrLeaseLost reports that the caller no longer holds the run.
var ErrLeaseLost = errors.New("lease lost")
