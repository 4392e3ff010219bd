package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Inserts children in the flush that records their start, before the record and under their parent's lease. A repeated
// flush finds them by their IDs.
const insertChildren = `
WITH starts AS MATERIALIZED (
	SELECT ` + keptColumns + `, s.version, coalesce(s.priority, l.priority) AS priority, s.metadata, s.headers,
		s.run_id, s.external_id, s.input_hash, s.input, GREATEST(s.now + s.delay * interval '1 microsecond',
			CASE WHEN s.at > 0 THEN timestamptz 'epoch' + s.at * interval '1 microsecond' END) AS available_at,
		s.now, s.parent_run_id, s.parent_step_id, s.detached, ` + noOrigin + `, ` + noSchedule + `, ` + noClaim + `
	FROM (
		SELECT ` + ofNewRun + `, u.parents_lease, u.detached
		FROM unnest(` + newRunArrays + `, $23::uuid[], $24::bool[]) AS u (` + newRunNames + `, parents_lease, detached)
	) s
	CROSS JOIN LATERAL (
		SELECT q.priority
		FROM kagzi.workflow_runs q
		WHERE q.run_id = s.parent_run_id AND q.namespace_id = $1 AND q.lease = s.parents_lease AND q.status = 'RUNNING'
		FOR SHARE
	) l
), ` + insertKeyed + selectInserted

// starts returns the records that start children.
func starts(records []*Record) []*Record {
	var out []*Record
	for _, r := range records {
		if r.Start != nil {
			out = append(out, r)
		}
	}
	return out
}

// A childStart is a child to insert under the lease of its parent.
type childStart struct {
	NewRun
	lease uuid.UUID
}

var childColumns = columnsOf(insertChildren, append(newRunColumns(func(c *childStart) *NewRun { return &c.NewRun }),
	uuids("parents_lease", func(c *childStart) uuid.UUID { return c.lease }),
	bools("detached", func(c *childStart) bool { return c.Detached }),
)...)

// children returns the children that the records start.
func children(records []*Record) []*childStart {
	out := make([]*childStart, len(records))
	for i, r := range records {
		out[i] = &childStart{*r.Start, r.Lease}
		out[i].RunID, out[i].Parent, out[i].ParentStep = r.ChildRunID, r.RunID, r.StepID
	}
	return out
}

// resolveTaken finds, among the records that are Busy, the starts that will never be recorded because another run has
// the child's external ID.
func (s Records) resolveTaken(ctx context.Context, records []*Record) error {
	var externals []string
	for _, r := range starts(records) {
		if r.Outcome == Busy && r.Start.ExternalID != "" {
			externals = append(externals, r.Start.ExternalID)
		}
	}
	if externals == nil {
		return nil
	}
	taken, err := s.holders(ctx, s.pool, activeByExternalID, externals)
	for _, r := range starts(records) {
		if by, ok := taken[r.Start.ExternalID]; ok && r.Outcome == Busy && by.id != r.ChildRunID {
			r.Outcome = Taken
		}
	}
	return err
}

const activeChildren = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.parent_run_id = $2 AND r.namespace_id = $1 AND NOT r.detached AND r.status NOT IN ('COMPLETED', 'FAILED',
	'CANCELLED')
	AND r.cancel_requested_at IS NULL AND r.outcome IS NULL
ORDER BY r.run_id`

const stillHeld = `
SELECT EXISTS (SELECT FROM kagzi.workflow_runs r WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.lease = $3
	AND r.status = 'RUNNING')`

// CancelChildren cancels the children of a run that is about to end, a thousand in one transaction. It returns
// ErrLeaseLost if h no longer holds the run, and ErrUnfounded if one of the premises is missing.
func (s Ends) CancelChildren(ctx context.Context, h HeldRun, premises ...Premise) (*CancelledRuns, error) {
	all := &CancelledRuns{}
	for {
		var some *CancelledRuns
		err := s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
			some = &CancelledRuns{}
			var ids []uuid.UUID
			err := pg.Ask(ctx, tx, activeChildren, []any{s.namespace, h.RunID}, pg.Collect(&ids, pgx.RowTo[uuid.UUID]))
			if err != nil || len(ids) == 0 {
				return err
			}
			some, err = s.cancelHeld(ctx, tx, h, premises, ids[:min(len(ids), 1000)], "ended")
			return err
		})
		if err != nil {
			return all, pg.Wrap("cancel children", err)
		}
		all.add(some)
		if len(some.Ended)+len(some.Compensating)+len(some.Marked) == 0 {
			return all, nil
		}
	}
}

// CancelStarted cancels children of a run that continues, a thousand in one transaction. It returns ErrLeaseLost if h
// no longer holds the run, and ErrUnfounded if one of the premises is missing. It ignores children that are over or
// were never started.
func (s Ends) CancelStarted(ctx context.Context, h HeldRun, premises []Premise,
	children []uuid.UUID,
) (*CancelledRuns, error) {
	all := &CancelledRuns{}
	for ids := range slices.Chunk(children, 1000) {
		err := s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
			some, err := s.cancelHeld(ctx, tx, h, premises, ids, "cancelled it")
			if err == nil {
				all.add(some)
			}
			return err
		})
		if err != nil {
			return all, pg.Wrap("cancel children", err)
		}
	}
	return all, nil
}

// cancelHeld cancels children of h's run in tx, and returns ErrLeaseLost if h no longer holds the run, ErrUnfounded if
// one of the premises is missing. because completes the error of the children: "its parent …".
func (s Ends) cancelHeld(ctx context.Context, tx pgx.Tx, h HeldRun, premises []Premise, children []uuid.UUID,
	because string,
) (*CancelledRuns, error) {
	out, err := s.cancelAll(ctx, tx, children,
		cancellation{text: fmt.Sprintf("%s: its parent %s %s", wasCancelled, h.RunID, because)})
	if err != nil {
		return nil, err
	}
	// Now cancelAll has locked the parent, so its lease cannot change any more.
	holds, err := pg.AskOne[bool](ctx, tx, stillHeld, s.namespace, h.RunID, h.Lease)
	if err == nil && !holds {
		err = ErrLeaseLost
	}
	if err != nil {
		return nil, err
	}
	missing, err := s.missing(ctx, tx, checksOf(premises))
	if err == nil && len(missing) > 0 {
		err = ErrUnfounded
	}
	return out, err
}

// tellingStarts returns the children that tell.
func tellingStarts(starts []*Record) (ids []uuid.UUID) {
	for _, r := range starts {
		if r.Start.Publishes {
			ids = append(ids, r.ChildRunID)
		}
	}
	return ids
}
