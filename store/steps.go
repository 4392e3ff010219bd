package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A StepRow is the record of one attempt of a step.
type StepRow struct {
	RunID        uuid.UUID
	StepID       string
	Attempt      int
	FirstAttempt int // of the series that the run's attempt began
	RunAttempt   int // zero: a fork has it from the other run, which has its compensation
	Status       string
	Kind         string
	Output       []byte
	ErrorKind    string
	Error        string
	Permanent    bool      // no further attempt would help
	ChildRunID   uuid.UUID // of a CHILD_WORKFLOW
	Position     int64     // in the run's order
	Sequence     int64     // of a SIGNAL: the message it took
	WakeAt       time.Time // end of a sleep; of a FAILED attempt, when the next one may start: zero if it was the last
	StartedAt    time.Time
	FinishedAt   time.Time

	// ForgottenBy is the attempt of the run that forgot this failure, or what it caused, when it ended; zero: none has.
	ForgottenBy int
}

// What eachStep reads of a row s, with the output behind it.
const stepColumns = `s.run_id, s.step_id, s.attempt_number, s.first_attempt, s.run_attempt, s.status, s.step_kind,
	s.error_kind, s.error, s.permanent, s.wake_at, s.started_at, s.finished_at, s.child_run_id, s.sequence, s.position, s.forgotten_by`

// The latest attempt of each step. The attempts of a run lie in its index one behind the other, and a step may have tens of
// thousands, of which only the latest is to be read. So the index is read backwards in portions of 128 attempts: each
// begins below the last step of the one before, whose older attempts are skipped. b has where the second portion and those
// that follow begin; the runs that have no more than one are read by one search. The LATERAL keeps the planner from joining.
//
// Of a run that has recorded more bytes than $3 it returns as many rows as have that many, and one more without its output,
// which says so. That counts what the rows say of their sizes: nothing that is left out is read.
const history = `
SELECT ` + stepColumns + `, CASE WHEN s.bytes <= $3 THEN s.output END, s.bytes > $3
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT a.*, 300 + coalesce(octet_length(a.output), 0) + coalesce(octet_length(a.error), 0) AS size
		FROM (
			WITH RECURSIVE b (step_id) AS (
				(
					SELECT s.step_id
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1
					ORDER BY s.step_id DESC, s.attempt_number DESC
					OFFSET 127 LIMIT 1
				)
				UNION ALL
				SELECT n.step_id
				FROM b
				CROSS JOIN LATERAL (
					SELECT s.step_id
					FROM kagzi.step_runs s
					WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id < b.step_id
					ORDER BY s.step_id DESC, s.attempt_number DESC
					OFFSET 127 LIMIT 1
				) n
			)
			(
				SELECT DISTINCT ON (s.step_id) s.*
				FROM (
					SELECT k.*
					FROM kagzi.step_runs k
					WHERE k.run_id = u.run_id AND k.namespace_id = $1
					ORDER BY k.step_id DESC, k.attempt_number DESC
					LIMIT 128
				) s
				ORDER BY s.step_id DESC, s.attempt_number DESC
			)
			UNION ALL
			SELECT d.*
			FROM b
			CROSS JOIN LATERAL (
				SELECT DISTINCT ON (s.step_id) s.*
				FROM (
					SELECT k.*
					FROM kagzi.step_runs k
					WHERE k.run_id = u.run_id AND k.namespace_id = $1 AND k.step_id < b.step_id
					ORDER BY k.step_id DESC, k.attempt_number DESC
					LIMIT 128
				) s
				ORDER BY s.step_id DESC, s.attempt_number DESC
			) d
		) a
	) l
) s
WHERE s.bytes - s.size <= $3`

// History returns the latest attempt of every step of the runs.
func (s *Store) History(ctx context.Context, runs []uuid.UUID) (map[uuid.UUID][]*StepRow, error) {
	var out map[uuid.UUID][]*StepRow
	err := within(ctx, bulkTimeout, func(ctx context.Context) error {
		out = make(map[uuid.UUID][]*StepRow, len(runs))
		return ask(ctx, s.pool, history, []any{s.namespace, array(runs), NoLimit}, readHistory(out, nil))
	})
	if err != nil {
		return nil, wrap("read history", err) // and no part of it: it would look like the whole
	}
	return out, nil
}

// readHistory reads the rows of history into out, and notes in more which runs have more than was asked for.
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

const stepAttempts = `
SELECT ` + stepColumns + `, s.output
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1
ORDER BY s.position, s.started_at, s.step_id, s.attempt_number`

// StepAttempts returns every attempt of every step of a run, in the run's order.
func (s *Store) StepAttempts(ctx context.Context, run uuid.UUID) ([]*StepRow, error) {
	var out []*StepRow
	err := do(ctx, func(ctx context.Context) error {
		out = nil
		return ask(ctx, s.pool, stepAttempts, []any{s.namespace, run}, func(rows pgx.Rows) error {
			return eachStep(rows, func(r *StepRow) { out = append(out, r) })
		})
	})
	return out, wrap("read steps", err)
}

// eachStep reads stepColumns, the output, and what further columns there are.
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
			&kind, &text, &r.Permanent, utc(&r.WakeAt), utc(&r.StartedAt), utc(&r.FinishedAt), &child, &sequence,
			&r.Position, &forgotten, &r.Output,
		}, further...)
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		r.ChildRunID, r.Sequence, r.ForgottenBy = deref(child), deref(sequence), deref(forgotten)
		r.ErrorKind, r.Error = deref(kind), deref(text)
		f(r)
	}
	return rows.Err()
}

// A Record is one attempt of a step to write down, under a lease.
type Record struct {
	StepRow      // WakeAt, StartedAt and FinishedAt are the database's to fill in
	Lease        uuid.UUID
	Wake         time.Duration // WakeAt, counted from the record; negative for none
	Elapsed      time.Duration // since the attempt began
	Worker       uuid.UUID
	EndedAt      time.Time     // the database's time at which the step ended, if that is known; else it is the record's
	Start        *NewRun       // the child to start with the record
	Signal       string        // the name of the message that the step takes, with Sequence
	Compensation *Compensation // of a COMPENSATION; nil: a step under way may register one

	Outcome Outcome // Flush's answer. Done: the StepRow now is what the table holds, which may be an older result.
}

// FOR SHARE on the run's row keeps the next claim out until this commits: with a mere join, the record of a
// worker that was presumed dead could become visible after the next holder has read the history. A row that
// ended stays as it is: the first result is the one that counts. Beginning and end are the statement's times, for the
// transaction of a step that has one began before the step did. The start of a child is recorded only if the child is
// there: its external ID may be taken.
const recordSteps = `
INSERT INTO kagzi.step_runs AS s (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt, first_attempt,
	output, error_kind, error, permanent, wake_at, worker_id, started_at, finished_at, child_run_id, sequence, position)
SELECT u.run_id, u.step_id, u.attempt_number, $1, u.status, u.step_kind, u.run_attempt, u.first_attempt,
	u.output, NULLIF(u.error_kind, ''), NULLIF(u.error, ''), u.permanent,
	CASE WHEN u.wake >= 0 THEN CASE WHEN u.status = 'RUNNING' THEN now() ELSE statement_timestamp() END + u.wake * interval '1 microsecond' END,
	u.worker_id,
	LEAST(CASE WHEN u.status = 'RUNNING' THEN now() ELSE statement_timestamp() END - u.elapsed * interval '1 microsecond',
		CASE WHEN u.ended_at > 0 THEN timestamptz 'epoch' + u.ended_at * interval '1 microsecond' END),
	CASE WHEN u.status = 'RUNNING' THEN NULL WHEN u.ended_at > 0 THEN timestamptz 'epoch' + u.ended_at * interval '1 microsecond' ELSE statement_timestamp() END,
	NULLIF(u.child_run_id, '00000000-0000-0000-0000-000000000000'), NULLIF(u.sequence, 0), u.position
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::text[], $8::int[], $9::int[], $10::bytea[],
	$11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::uuid[], $16::bigint[], $17::bool[], $18::uuid[], $19::bigint[], $20::bigint[], $21::bool[])
	AS u (run_id, lease, step_id, attempt_number, status, step_kind, run_attempt, first_attempt, output,
		error_kind, error, wake, position, worker_id, elapsed, permanent, child_run_id, sequence, ended_at, starts)
CROSS JOIN LATERAL (
	SELECT 1
	FROM kagzi.workflow_runs r
	WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.lease = u.lease AND r.status = 'RUNNING'
	FOR SHARE
) l
WHERE NOT u.starts OR (SELECT count(*) FROM kagzi.workflow_runs c WHERE c.run_id = u.child_run_id AND c.namespace_id = $1) = 1
ON CONFLICT (run_id, step_id, attempt_number, namespace_id) DO UPDATE
SET status = EXCLUDED.status, step_kind = EXCLUDED.step_kind, run_attempt = EXCLUDED.run_attempt,
	output = EXCLUDED.output, error_kind = EXCLUDED.error_kind, error = EXCLUDED.error, permanent = EXCLUDED.permanent,
	wake_at = coalesce(s.wake_at, EXCLUDED.wake_at), worker_id = EXCLUDED.worker_id, finished_at = EXCLUDED.finished_at,
	child_run_id = EXCLUDED.child_run_id, sequence = EXCLUDED.sequence
WHERE s.status = 'RUNNING'
RETURNING run_id, step_id, attempt_number, wake_at, started_at, finished_at`

// recordArgs lays records out as recordSteps's arguments.
func (s *Store) recordArgs(records []*Record) []any {
	n := len(records)
	runs, leases, workers := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	steps, statuses, kinds := make([]string, n), make([]string, n), make([]string, n)
	errorKinds, errors, positions := make([]string, n), make([]string, n), make([]int64, n)
	attempts, runAttempts, firsts := make([]int32, n), make([]int32, n), make([]int32, n)
	wakes, elapsed := make([]int64, n), make([]int64, n)
	outputs, permanent := make([][]byte, n), make([]bool, n)
	children, sequences, ends, starts := make([]uuid.UUID, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i, r := range records {
		runs[i], leases[i], workers[i] = r.RunID, r.Lease, r.Worker
		steps[i], statuses[i], kinds[i] = r.StepID, r.Status, r.Kind
		errorKinds[i], errors[i], positions[i] = r.ErrorKind, r.Error, r.Position
		attempts[i], runAttempts[i], firsts[i] = int32(r.Attempt), int32(r.RunAttempt), int32(r.FirstAttempt)
		wakes[i], elapsed[i] = wakeIn(r.Wake), micros(r.Elapsed)
		outputs[i], permanent[i] = r.Output, r.Permanent
		children[i], sequences[i], ends[i], starts[i] = r.ChildRunID, r.Sequence, epoch(r.EndedAt), r.Start != nil
	}
	return []any{
		s.namespace, array(runs), array(leases), steps, attempts, statuses, kinds, runAttempts, firsts, outputs,
		errorKinds, errors, wakes, positions, array(workers), elapsed, permanent, array(children), sequences, ends, starts,
	}
}

// readRecorded marks the records that the statement wrote, and fills in the times it gave them.
func readRecorded(records []*Record) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		i := 0 // rows come in the order of the records, with gaps
		var id uuid.UUID
		var step string
		var attempt int
		var wake, started, finished time.Time
		_, err := pgx.ForEachRow(rows, []any{&id, &step, &attempt, utc(&wake), utc(&started), utc(&finished)}, func() error {
			for range records {
				r := records[i%len(records)]
				i++
				if r.RunID == id && r.StepID == step && r.Attempt == attempt {
					r.Outcome = Done
					r.WakeAt, r.StartedAt, r.FinishedAt = wake, started, finished
					break
				}
			}
			return nil
		})
		return err
	}
}

// From the record to the commit the run is locked: a process that is frozen in between must not keep it so. The record waits
// for locks as long as its call may, and not as long as the role says: the function has succeeded, and would be repeated.
const lastTimeouts = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

// RecordIn writes records of one run as the last statements of tx, the caller's, and locks the run until tx ends. It reports
// whether they were written; if not, the lease is lost or an attempt has a result already.
func (s *Store) RecordIn(ctx context.Context, tx pgx.Tx, records ...*Record) (bool, error) {
	f := &Flush{Records: records}
	f.reset()
	steps, compensations := f.parted()
	b := &pgx.Batch{}
	b.Queue(lastTimeouts, patient.prologueArgs(ctx)[:2]...)
	reads := []func(pgx.Rows) error{nil}
	if compensations != nil {
		b.Queue(recordCompensations, s.compensationArgs(compensations)...)
		reads = append(reads, readRecorded(compensations))
	}
	b.Queue(recordSteps, s.recordArgs(steps)...)
	err := exchange(ctx, tx, patient, b, append(reads, readRecorded(steps))...)
	refused := slices.ContainsFunc(records, func(r *Record) bool { return r.Outcome != Done })
	return err == nil && !refused, wrap("record step", err)
}
