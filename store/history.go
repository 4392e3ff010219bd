package store

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Histories reads what an execution needs of its run.
type Histories struct{ *conn }

// A StepRow is the record of one attempt of a step.
type StepRow struct {
	RunID        uuid.UUID
	StepID       string
	Attempt      int
	FirstAttempt int // of the current series: a new attempt of the run begins another one
	RunAttempt   int // the run's attempt; zero if a fork copied the row and the old run keeps the compensation
	Status       string
	Kind         string
	// of a FUNCTION, only in a Record to write and from Attempts; of a SIGNAL, the headers of its message as JSON
	Input      []byte
	Output     []byte
	ErrorKind  string
	Error      string
	Permanent  bool      // no further attempt would help
	ChildRunID uuid.UUID // of a CHILD_WORKFLOW
	Position   int64     // in the run's order
	Sequence   int64     // of a SIGNAL: the message that it consumed
	// the end of a sleep; of a FAILED attempt, when the next one may start, zero if it was the last
	WakeAt     time.Time
	StartedAt  time.Time
	FinishedAt time.Time

	// ForgottenBy is the attempt of the run that forgot this failure, or a failure that this one caused, when the
	// attempt ended. Zero means that no attempt has forgotten it.
	ForgottenBy int

	WrittenBy uuid.UUID // the worker that wrote the row last; only from Attempts

	Child *ChildRun // of a RUNNING CHILD_WORKFLOW, from Attempts; nil if that run was deleted
}

// A ChildRun is the state of a child whose end its parent has not recorded.
type ChildRun struct {
	Status     string
	ErrorKind  string
	Error      string
	FinishedAt time.Time // zero while it is active
}

const cancelSuffix = "/#cancel"

// CancelID returns the ID of the step that records that a run has cancelled its child.
func CancelID(child string) string { return child + cancelSuffix }

// NoLimit is a limit that no history reaches.
const NoLimit = int64(math.MaxInt64)

// The columns of a row s that eachStep reads. The output follows them.
const stepColumns = `s.run_id, s.step_id, s.attempt_number, s.first_attempt, s.run_attempt, s.status, s.step_kind,
	s.error_kind, s.error, s.permanent, s.wake_at, s.started_at, s.finished_at, s.child_run_id, s.sequence, s.position,
		s.forgotten_by, CASE WHEN s.step_kind IN ('SIGNAL', 'REQUEST', 'ASK', 'EVENT') THEN s.input END`

// The latest attempt of each step. A step may have tens of thousands of attempts, side by side in the index. So the
// index is read backwards in portions of 128 attempts: each begins below the last step of the one before, and skips
// that step's older attempts. bounds has the steps at which the second and later portions begin. A run of at most one
// portion is read by one search. The LATERAL keeps the planner from joining.
//
// $3 limits the bytes of a run. If the run has more, the last row has no output, which marks the history as incomplete.
// Sizes are computed without reading the values, so a value that is left out is never read.
const history = `
SELECT ` + stepColumns + `, CASE WHEN s.bytes <= $3 THEN s.output END, s.bytes > $3
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT a.*, 300 + coalesce(octet_length(a.output), 0) + coalesce(octet_length(a.error), 0) AS size
		FROM (
			WITH RECURSIVE bounds (step_id) AS (
				(
					SELECT s.step_id
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND ` + clause.OwnEpoch + `
					ORDER BY s.step_id DESC, s.attempt_number DESC
					OFFSET 127 LIMIT 1
				)
				UNION ALL
				SELECT n.step_id
				FROM bounds
				CROSS JOIN LATERAL (
					SELECT s.step_id
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id < bounds.step_id
						AND ` + clause.OwnEpoch + `
					ORDER BY s.step_id DESC, s.attempt_number DESC
					OFFSET 127 LIMIT 1
				) n
			)
			(
				SELECT DISTINCT ON (s.step_id) s.*
				FROM (
					SELECT s.*
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND ` + clause.OwnEpoch + `
					ORDER BY s.step_id DESC, s.attempt_number DESC
					LIMIT 128
				) s
				ORDER BY s.step_id DESC, s.attempt_number DESC
			)
			UNION ALL
			SELECT d.*
			FROM bounds
			CROSS JOIN LATERAL (
				SELECT DISTINCT ON (s.step_id) s.*
				FROM (
					SELECT s.*
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id < bounds.step_id
						AND ` + clause.OwnEpoch + `
					ORDER BY s.step_id DESC, s.attempt_number DESC
					LIMIT 128
				) s
				ORDER BY s.step_id DESC, s.attempt_number DESC
			) d
		) a
	) l
) s
WHERE s.bytes - s.size <= $3`

// Latest returns the latest attempt of every step of the runs.
func (s Histories) Latest(ctx context.Context, runs []uuid.UUID) (map[uuid.UUID][]*StepRow, error) {
	var out map[uuid.UUID][]*StepRow
	err := pg.Within(ctx, bulkTimeout, func(ctx context.Context) error {
		out = make(map[uuid.UUID][]*StepRow, len(runs))
		return pg.Ask(ctx, s.pool, history, []any{s.namespace, array(runs), NoLimit}, readHistory(out, nil))
	})
	if err != nil {
		return nil, pg.Wrap("read history", err) // without a partial result, which a caller would take for all
	}
	return out, nil
}

// readHistory reads the rows of history into out, and sets more for the runs that exceed the limit.
func readHistory(out map[uuid.UUID][]*StepRow, more map[uuid.UUID]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var over bool
		return eachStep(rows, func(r *StepRow) {
			if over {
				more[r.RunID] = true
			} else {
				out[r.RunID] = append(out[r.RunID], r)
			}
		}, &over)
	}
}

// The children are read by their keys, and only those whose ends their parent has not recorded. $3 says that all
// payloads are read, otherwise $4 has the steps whose payloads are. The others are not read from where Postgres stores
// large values. The records of groups and of the failures of children say how other attempts ended, so they are always
// read.
const stepAttempts = `
SELECT ` + stepColumns + `,
	CASE WHEN $3 OR s.step_id = ANY($4::text[]) OR s.step_kind = 'MARKER' THEN s.output
		WHEN s.step_kind = 'CHILD_WORKFLOW' AND s.status = 'FAILED' AND s.child_run_id IS NOT NULL
			THEN substring(s.output FROM 1 FOR 11) END,
	CASE WHEN s.step_kind = 'FUNCTION' AND ($3 OR s.step_id = ANY($4::text[])) THEN s.input END, s.worker_id, c.status,
		c.finished_at, c.error_kind, c.error
FROM kagzi.step_runs s
LEFT JOIN LATERAL (
	SELECT q.status, q.finished_at, q.error_kind, q.error
	FROM kagzi.workflow_runs q
	WHERE q.run_id = s.child_run_id AND q.namespace_id = $1 AND s.status = 'RUNNING' AND s.step_kind = 'CHILD_WORKFLOW'
	OFFSET 0
) c ON true
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_id >= $5 AND ($6 = '' OR s.step_id < $6)
ORDER BY s.position, s.started_at, s.step_id, s.attempt_number`

// StepPayloads say which payloads Attempts reads: All, or those of Steps. Without either it reads those that Kagzi
// itself needs.
type StepPayloads struct {
	All    bool
	Steps  []string
	Before bool // of the epoch before the run's own
}

// ids returns what comes before the IDs of an epoch's records, the lowest of these IDs, and the first one behind them;
// empty: there is none.
func (p StepPayloads) ids(epoch int) (mark, first, end string) {
	if !p.Before {
		return "", "\x02", ""
	}
	past := "\x01" + strconv.Itoa(epoch-1)
	return past + "/", past + "/", past + "0"
}

// Attempts returns every attempt of every step of a run's epoch, in the order of the run.
func (s Histories) Attempts(ctx context.Context, run *Run, payloads StepPayloads) ([]*StepRow, error) {
	var out []*StepRow
	err := pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		mark, first, end := payloads.ids(run.Epoch)
		steps := make([]string, len(payloads.Steps))
		for i, step := range payloads.Steps {
			steps[i] = mark + step
		}
		return pg.Ask(ctx, s.pool, stepAttempts, []any{s.namespace, run.RunID, payloads.All, steps, first, end},
			func(rows pgx.Rows) error {
				var input []byte
				var worker *uuid.UUID
				var status, kind, text *string
				var ended time.Time
				return eachStep(rows, func(r *StepRow) {
					if input != nil {
						r.Input, input = input, nil // the next scan must not overwrite it
					}
					r.WrittenBy = pg.Deref(worker)
					r.StepID = strings.TrimPrefix(r.StepID, mark)
					if status != nil {
						r.Child = &ChildRun{
							Status: *status, FinishedAt: ended, ErrorKind: pg.Deref(kind),
							Error: pg.Deref(text),
						}
					}
					out = append(out, r)
				}, &input, &worker, &status, pg.UTC(&ended), &kind, &text)
			})
	})
	return out, pg.Wrap("read steps", err)
}

// eachStep reads stepColumns, the output, and any further columns.
func eachStep(rows pgx.Rows, f func(*StepRow), further ...any) error {
	defer rows.Close()
	for rows.Next() {
		r := &StepRow{}
		var kind, text *string
		var child *uuid.UUID
		var sequence *int64
		var forgotten *int
		columns := append([]any{
			&r.RunID, &r.StepID, &r.Attempt, &r.FirstAttempt, &r.RunAttempt, &r.Status, &r.Kind,
			&kind, &text, &r.Permanent, pg.UTC(&r.WakeAt), pg.UTC(&r.StartedAt), pg.UTC(&r.FinishedAt), &child,
			&sequence,
			&r.Position, &forgotten, &r.Input, &r.Output,
		}, further...)
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		r.ChildRunID, r.Sequence, r.ForgottenBy = pg.Deref(child), pg.Deref(sequence), pg.Deref(forgotten)
		r.ErrorKind, r.Error = pg.Deref(kind), pg.Deref(text)
		f(r)
	}
	return rows.Err()
}
