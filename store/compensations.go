package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/waits"
)

// A run that compensates is SLEEPING with a final outcome. No worker claims it. Each end of a child or of a
// compensation makes it due. Then any process calls Compensate for it, in a transaction that locks the run and its
// parent.
const compensatingRun = `
SELECT q.task_queue, q.priority, q.outcome - 'output', q.publishes, q.headers, (
		SELECT count(*) FROM kagzi.workflow_runs c
		WHERE c.parent_run_id = q.run_id AND c.namespace_id = $1 AND NOT c.detached
			AND c.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	)
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status = 'SLEEPING' AND q.outcome IS NOT NULL`

// The last registration of each compensation, from new to old, with the run that was started for it.
const compensationsOf = `
SELECT s.step_id, s.attempt_number, s.status, s.call, s.child_run_id, coalesce(s.error, ''), c.status,
	coalesce(c.error_kind, ''), coalesce(c.error, '')
FROM (
	SELECT DISTINCT ON (k.step_id) k.*
	FROM kagzi.step_runs k
	WHERE k.run_id = $2 AND k.namespace_id = $1 AND k.step_kind = 'COMPENSATION' AND k.call IS NOT NULL
	ORDER BY k.step_id, k.attempt_number DESC
) s
LEFT JOIN LATERAL (
	SELECT q.status, q.error_kind, q.error FROM kagzi.workflow_runs q WHERE q.run_id = s.child_run_id
		AND q.namespace_id = $1 OFFSET 0
) c ON true
ORDER BY s.position DESC`

// A registration is one row of compensationsOf.
type registration struct {
	ID           string
	Attempt      int
	Status       string
	Call         json.RawMessage
	Run          *uuid.UUID
	Error        string
	RunStatus    *string // nil if the run does not exist
	RunErrorKind string
	RunError     string
}

func (r *registration) over() bool {
	return r.RunStatus == nil || *r.RunStatus == Completed || *r.RunStatus == Failed || *r.RunStatus == Cancelled
}

const (
	compensationEnded = `
UPDATE kagzi.step_runs
SET status = $5, error_kind = NULLIF($6, ''), error = NULLIF($7, ''), finished_at = GREATEST(statement_timestamp(),
	started_at)
WHERE run_id = $2 AND namespace_id = $1 AND step_id = $3 AND attempt_number = $4`

	compensationStarted = `
UPDATE kagzi.step_runs SET child_run_id = $5, error_kind = NULL, error = NULL
WHERE run_id = $2 AND namespace_id = $1 AND step_id = $3 AND attempt_number = $4
RETURNING input`

	compensationAwaited = `
UPDATE kagzi.workflow_runs
SET wakeups_awaited = wakeups + $3, available_at = 'infinity', waiting_on = $4::jsonb
WHERE run_id = $2 AND namespace_id = $1`

	// The condition leaves out a run that another process has continued since: it waits, or is over.
	compensationRefused = `
WITH postponed AS (
	UPDATE kagzi.workflow_runs
	SET available_at = statement_timestamp() + $3::bigint * interval '1 microsecond', waiting_on = $4::jsonb
	WHERE run_id = $2 AND namespace_id = $1 AND status = 'SLEEPING' AND outcome IS NOT NULL
		AND available_at < 'infinity'
	RETURNING run_id
)
UPDATE kagzi.step_runs s
SET error_kind = 'database', error = $7
FROM postponed
WHERE s.run_id = postponed.run_id AND s.namespace_id = $1 AND s.step_id = $5 AND s.attempt_number = $6`
)

// refusedPause is how long a run waits whose next compensation, or end, the server has refused, before that is tried
// again.
const refusedPause = 10 * time.Second

// A refusedCompensation is the server's refusal of the next step of a run that compensates.
type refusedCompensation struct {
	on   waits.Wait   // what the run waits for meanwhile
	step registration // the compensation that cannot be started; zero if it is the run that cannot end
	err  error
}

func (r *refusedCompensation) Error() string { return r.err.Error() }

func (r *refusedCompensation) Unwrap() error { return r.err }

// Compensate continues a run whose final outcome is decided and whose compensations are not done. While a child or a
// compensation is active, the run waits for that. Otherwise Compensate starts the next compensation, or ends the run.
// It does not change a run in another state. It waits for locks briefly, because it can be repeated: see
// DueCompensations. If the server refuses the next step, the run says so, and is due again after refusedPause.
func (s Ends) Compensate(ctx context.Context, id uuid.UUID) (out *CancelledRuns, err error) {
	err = pg.Again(ctx, func(ctx context.Context) error {
		out = &CancelledRuns{}
		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
			if err := s.lock(ctx, tx, id); err != nil {
				return err
			}
			return s.compensateLocked(ctx, tx, id, out)
		})
	})
	if refused, ok := errors.AsType[*refusedCompensation](err); ok {
		err = errors.Join(err, pg.Do(ctx, func(ctx context.Context) error {
			why := text.Sanitize(text.OfError(refused.err), text.MaxError)
			return pg.Ask(ctx, s.pool, compensationRefused, []any{
				s.namespace, id, pg.Micros(refusedPause), waitsJSON(waits.List{refused.on}),
				refused.step.ID, refused.step.Attempt, why,
			}, nil)
		}))
	}
	return out, pg.Wrap("compensate", err)
}

// compensateLocked is Compensate in tx, which has locked the run and its parent. It adds the runs that it changes to
// out.
func (s Ends) compensateLocked(ctx context.Context, tx pgx.Tx, id uuid.UUID, out *CancelledRuns) error {
	run := NewRun{Parent: id}
	var outcome FinalOutcome
	var children int64
	err := pg.AskRow(ctx, tx, compensatingRun, []any{s.namespace, id}, &run.Queue, &run.Priority, &outcome,
		&run.Publishes,
		&run.Headers, &children)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	await := func(n int64, on waits.Wait) error {
		return pg.Ask(ctx, tx, compensationAwaited, []any{s.namespace, id, n, waitsJSON(waits.List{on})}, nil)
	}
	if children > 0 {
		return await(children, waits.Wait{Kind: waits.Children})
	}
	all, err := s.registrations(ctx, tx, id)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range all {
		on := waits.Wait{Kind: waits.Compensation, Name: strings.TrimSuffix(r.ID, compensationSuffix)}
		switch {
		case r.Status != Running:
		case r.Run == nil:
			if err = s.startCompensation(ctx, tx, run, r, out); pg.Refused(err) {
				on.Refused = "start"
				err = &refusedCompensation{on: on, step: r, err: err}
			}
		case r.over():
			if err = s.compensationEnded(ctx, tx, id, &r); pg.Refused(err) {
				on.Refused = "end"
				err = &refusedCompensation{on: on, err: err}
			}
		}
		switch {
		case err != nil:
			return err
		case r.Status == Failed:
			failed = append(failed, fmt.Errorf("%s: %s", r.ID, strings.TrimPrefix(r.Error, "kagzi: ")))
		case r.Status == Running:
			return await(1, on)
		}
	}
	if err = s.endCompensated(ctx, tx, id, outcome, failed, out); pg.Refused(err) {
		err = &refusedCompensation{on: waits.Wait{Kind: waits.Compensation, Refused: "end"}, err: err}
	}
	return err
}

func (s Ends) registrations(ctx context.Context, tx pgx.Tx, id uuid.UUID) (all []registration, err error) {
	err = pg.Ask(ctx, tx, compensationsOf, []any{s.namespace, id}, pg.Collect(&all, pgx.RowToStructByPos[registration]))
	return all, err
}

// compensationEnded records how the compensation's run ended. A run that was deleted counts as failed.
func (s Ends) compensationEnded(ctx context.Context, tx pgx.Tx, id uuid.UUID, r *registration) error {
	kind := ""
	switch {
	case r.RunStatus == nil:
		r.Status, kind, r.Error = Failed, "not_found", fmt.Sprintf("its run %s was deleted", r.Run)
	case *r.RunStatus == Completed:
		r.Status = Completed
	default:
		r.Status, kind, r.Error = Failed, r.RunErrorKind, r.RunError
	}
	return pg.Ask(ctx, tx, compensationEnded, []any{s.namespace, id, r.ID, r.Attempt, r.Status, kind, r.Error}, nil)
}

// A run that holds a slot until it ends waits for its compensations with it, so these get one with which no claim asks
// whether there is room.
const holdBesideParent = `
UPDATE kagzi.workflow_runs r
SET slot = 2
FROM (
	SELECT q.task_queue FROM kagzi.workflow_runs q WHERE q.run_id = $3 AND q.namespace_id = $1 AND q.slot = 2 OFFSET 0
) p
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.task_queue = p.task_queue`

// startCompensation starts the compensation as a child that a cancel of its parent does not reach. run has the parent
// and the defaults of the compensation.
func (s Ends) startCompensation(ctx context.Context, tx pgx.Tx, run NewRun, r registration,
	out *CancelledRuns,
) error {
	var c Compensation
	if err := json.Unmarshal(r.Call, &c); err != nil {
		return err
	}
	run.RunID, run.ParentStep = newID(), r.ID
	input, err := pg.AskOne[[]byte](ctx, tx, compensationStarted, s.namespace, run.Parent, r.ID, r.Attempt, run.RunID)
	if err != nil {
		return err
	}
	c.Queue, c.Priority, c.Publishes = cmp.Or(c.Queue, run.Queue), cmp.Or(c.Priority, run.Priority), run.Publishes
	if c.Headers, err = mergeHeaders(run.Headers, c.Headers); err != nil {
		return err
	}
	run.Spec, run.Delay, run.Input = c.Spec, c.Delay, input
	out.Due = append(out.Due, DueRun{run.RunID, run.Queue, run.Type, run.Version})
	b := &pgx.Batch{}
	b.Queue(insertPendingWithoutKeys, insertColumns.args(s.namespace, []*NewRun{&run})...)
	b.Queue(holdBesideParent, s.namespace, run.RunID, run.Parent)
	if bytes.Compare(run.RunID[:], run.Parent[:]) < 0 { // else claims look for the parent's slot, and find both
		b.Queue(lowerQueue, s.namespace, run.Queue, run.RunID)
	}
	if err := pg.Exchange(ctx, tx, pg.Untimed, b); err != nil || !run.Publishes {
		return err
	}
	due, err := s.publishRuns(ctx, tx, started, run.RunID)
	out.Due = append(out.Due, due...)
	return err
}

// mergeHeaders returns base with the headers of over in it.
func mergeHeaders(base, over json.RawMessage) (json.RawMessage, error) {
	if base == nil || over == nil {
		return json.RawMessage(cmp.Or(string(over), string(base))), nil
	}
	var all map[string]string
	if err := cmp.Or(json.Unmarshal(base, &all), json.Unmarshal(over, &all)); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// endLocked is end, and also starts the first compensation of each run. If the server refuses one, all are started
// later, each in a transaction of its own, so that the runs end all the same. Compensations of parents continue later,
// too, because tx has not locked the parents of those.
func (s Ends) endLocked(ctx context.Context, tx pgx.Tx, ends []ending, first, expired bool,
	grace time.Duration,
) (*CancelledRuns, error) {
	out, err := s.end(ctx, tx, ends, first, expired, grace)
	if err != nil || len(out.Compensating) == 0 {
		return out, err
	}
	begun := &CancelledRuns{}
	err = pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error {
		for _, id := range slices.SortedFunc(slices.Values(out.Compensating), compareIDs) {
			if err := s.compensateLocked(ctx, part, id, begun); err != nil {
				return err
			}
		}
		return nil
	})
	if pg.Refused(err) {
		out.Step = append(out.Step, out.Compensating...)
		return out, nil
	}
	out.add(begun)
	return out, err
}

// endCompensated ends a run whose compensations have each completed or finally failed.
func (s Ends) endCompensated(ctx context.Context, tx pgx.Tx, id uuid.UUID, o FinalOutcome, failed []error,
	out *CancelledRuns,
) error {
	end := ending{run: id, status: o.Status, kind: o.Kind, error: o.Error}
	if failed != nil {
		end.status, end.kind = Failed, "compensation"
		why := "the run was rolled back"
		if o.Status != Completed {
			why = fmt.Sprintf("the run ended because: %s (%s)", shortened(strings.TrimPrefix(o.Error, "kagzi: ")),
				o.Kind)
		}
		end.error = fmt.Sprintf("not compensated: %s; %s", shortened(errors.Join(failed...).Error()), why)
	}
	more, err := s.end(ctx, tx, []ending{end}, false, false, 0)
	out.add(more)
	return err
}

// mostOfError limits the bytes of each part in an error that is made of several.
const mostOfError = 8 << 10

// shortened truncates a text to mostOfError.
func shortened(text string) string {
	if len(text) <= mostOfError {
		return text
	}
	return fmt.Sprintf("%s… (truncated, %d bytes)", strings.ToValidUTF8(text[:mostOfError], ""), len(text))
}

const dueCompensations = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.namespace_id = $1 AND r.outcome IS NOT NULL AND r.finished_at IS NULL AND r.available_at <= now()
ORDER BY r.available_at
LIMIT $2
FOR UPDATE SKIP LOCKED`

// DueCompensations returns up to n runs that are due for Compensate. It leaves out runs that are locked: a later call
// returns them.
func (s Ends) DueCompensations(ctx context.Context, n int) (ids []uuid.UUID, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, dueCompensations, []any{s.namespace, n}, pg.Collect(&ids, pgx.RowTo[uuid.UUID]))
	})
	return ids, pg.Wrap("find due compensations", err)
}
