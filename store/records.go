package store

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A Record is one attempt of a step to write, under a lease.
type Record struct {
	StepRow // Flush fills in WakeAt, StartedAt and FinishedAt from the database
	Lease   uuid.UUID
	Wake    time.Duration // WakeAt, counted from the record; negative for none
	Elapsed time.Duration // since the attempt began
	Worker  uuid.UUID
	EndedAt time.Time // when the step ended, by the database's clock; zero: when the record is written
	Start   *NewRun   // the child to start with the record
	Signal  string    // the name of the message that the step consumes; Sequence is its number
	Answers Asked     // of a REPLY: the request; Sequence is its number
	// do not write it if the run was cancelled or paused: its worker has to hear of that first
	Unheard bool
	// when the message was stored, or the child ended, as the run has read it: another row is none; zero: not asked
	Read         time.Time
	Compensation *Compensation // of a COMPENSATION; nil if a step under way may register one
	Events       []*NewEvent   // to publish with the record
	Awaited      string        // of an EVENT: the step, as its EventWait has it, which ends with the record

	Outcome Outcome // set by Flush. Once Done, StepRow is the row in the table, which may be an older result.
	Found   bool    // once Done: this flush has not written the row, because the table had it
}

func (r *Record) head() head {
	return head{run: r.RunID, lease: r.Lease, outcome: &r.Outcome}
}

// MayWait reports whether the write of the record may wait for another transaction even though the run is locked: it
// starts a child with an external ID, or publishes an event with an ID of the application, which any transaction may
// use. Once a flush has met a lock, such records are flushed by themselves.
func (r *Record) MayWait() bool {
	return r.Start != nil && r.Start.ExternalID != "" ||
		slices.ContainsFunc(r.Events, func(e *NewEvent) bool { return e.Named })
}

func (r *Record) isCompensation() bool { return r.Kind == KindCompensation }

// isPlain reports whether r is nothing but the result of a function: an attempt of these writes one record, at its end.
func (r *Record) isPlain() bool {
	return r.Kind == KindFunction && r.Status == Completed && r.Wake < 0 && r.Start == nil &&
		r.ErrorKind == "" && r.ChildRunID == uuid.Nil && r.Sequence == 0
}

// Most records are written by this statement. It has half of the columns of recordSteps, and does not search before
// each insert. It fails if there is a record of the attempt: see alreadyRecorded.
const insertResults = `
INSERT INTO kagzi.step_runs AS s (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
	first_attempt, input, output, worker_id, started_at, finished_at, position)
SELECT u.run_id, u.step_id, coalesce(u.attempt_number, ($5::int[])[1]), l.namespace_id, 'COMPLETED', 'FUNCTION',
	coalesce(u.run_attempt, ($6::int[])[1]), coalesce(u.first_attempt, ($7::int[])[1]), u.input, u.output,
	coalesce(u.worker_id, ($10::uuid[])[1]), LEAST(u.now, u.ended_at - u.elapsed * interval '1 microsecond'),
	u.ended_at, u.position
FROM (
	SELECT u.run_id, u.lease, u.step_id, u.attempt_number, u.run_attempt, u.first_attempt, u.input, u.output,
		u.worker_id, u.elapsed, u.position, coalesce(u.unheard, ($13::bool[])[1]) AS unheard,
		CASE WHEN u.ended_at > 0 THEN timestamptz 'epoch' + u.ended_at * interval '1 microsecond'
			ELSE statement_timestamp() END AS ended_at, statement_timestamp() AS now
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::int[], $7::int[], $8::bytea[], $9::bytea[],
		$10::uuid[], $11::bigint[], $12::bigint[], $13::bool[], $14::bigint[])
		AS u (run_id, lease, step_id, attempt_number, run_attempt, first_attempt, input, output, worker_id, elapsed,
			position, unheard, ended_at)
) u
` + lockedByLease + returningRecorded

var resultColumns = columnsOf(insertResults,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	uuids("lease", func(r *Record) uuid.UUID { return r.Lease }),
	texts("step_id", func(r *Record) string { return r.StepID }),
	shared(ints, "attempt_number", func(r *Record) int { return r.Attempt }),
	shared(ints, "run_attempt", func(r *Record) int { return r.RunAttempt }),
	shared(ints, "first_attempt", func(r *Record) int { return r.FirstAttempt }),
	byteas("input", func(r *Record) []byte { return r.Input }),
	byteas("output", func(r *Record) []byte { return r.Output }),
	shared(uuids, "worker_id", func(r *Record) uuid.UUID { return r.Worker }),
	bigints("elapsed", func(r *Record) int64 { return pg.Micros(r.Elapsed) }),
	bigints("position", func(r *Record) int64 { return r.Position }),
	shared(bools, "unheard", func(r *Record) bool { return r.Unheard }),
	bigints("ended_at", func(r *Record) int64 { return pg.Epoch(r.EndedAt) }),
)

// The runs of the records u that the worker holds. FOR SHARE on the run's row blocks the next claim until this
// transaction commits. With only a join, the record of a worker that was presumed dead could become visible after the
// next holder has read the history.
//
// The records get their namespace from these rows. Citus then sends the whole INSERT to the node, and not first the
// SELECT and then its rows, which takes twice as long.
const lockedByLease = `CROSS JOIN LATERAL (
	SELECT r.namespace_id
	FROM kagzi.workflow_runs r
	WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.lease = u.lease AND r.status = 'RUNNING'
		AND NOT (u.unheard AND (r.cancel_requested_at IS NOT NULL OR r.paused_at IS NOT NULL))
	FOR SHARE
) l`

const returningRecorded = `
RETURNING run_id, step_id, attempt_number, wake_at, started_at, finished_at`

// recordSteps writes records of any kind, of which some may replace one that says RUNNING, or may be in the table
// already. A row that has ended does not change, because the first result counts, unless its kind Replaces.
//
// The start and the end of a step are the statement's times, because a StepTx begins its transaction before the step.
// The start of a child is recorded only if the child exists, because another run may have its external ID.
const recordSteps = `
INSERT INTO kagzi.step_runs AS s (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
	first_attempt,
	input, output, error_kind, error, permanent, wake_at, worker_id, started_at, finished_at, child_run_id, sequence,
		position)
SELECT u.run_id, u.step_id, u.attempt_number, l.namespace_id, u.status, u.step_kind, u.run_attempt, u.first_attempt,
	u.input, u.output, NULLIF(u.error_kind, ''), NULLIF(u.error, ''), u.permanent,
	CASE WHEN u.wake >= 0 THEN u.now + u.wake * interval '1 microsecond' END,
	u.worker_id,
	LEAST(u.now, coalesce(u.ended_at, u.now) - u.elapsed * interval '1 microsecond'),
	CASE WHEN u.status <> 'RUNNING' THEN coalesce(u.ended_at, u.now) END,
	NULLIF(u.child_run_id, '00000000-0000-0000-0000-000000000000'), NULLIF(u.sequence, 0), u.position
FROM (
	SELECT u.run_id, u.lease, u.step_id, u.attempt_number, u.status, u.step_kind, u.run_attempt, u.first_attempt,
		u.output, u.error_kind, u.error,
		u.wake, u.position, u.worker_id, u.elapsed, u.permanent, u.child_run_id, u.sequence, u.starts, u.input,
			u.unheard,
		CASE WHEN u.ended_at > 0 THEN timestamptz 'epoch' + u.ended_at * interval '1 microsecond' END AS ended_at,
		CASE WHEN u.status = 'RUNNING' THEN now() ELSE statement_timestamp() END AS now
	FROM (
		SELECT u.run_id, u.lease, u.step_id, u.output, u.position, u.elapsed, u.input,
			coalesce(u.attempt_number, ($5::int[])[1]) AS attempt_number, coalesce(u.status, ($6::text[])[1]) AS status,
			coalesce(u.step_kind, ($7::text[])[1]) AS step_kind, coalesce(u.run_attempt, ($8::int[])[1]) AS run_attempt,
			coalesce(u.first_attempt, ($9::int[])[1]) AS first_attempt,
				coalesce(u.error_kind, ($11::text[])[1]) AS error_kind,
			coalesce(u.error, ($12::text[])[1]) AS error, coalesce(u.wake, ($13::bigint[])[1]) AS wake,
			coalesce(u.worker_id, ($15::uuid[])[1]) AS worker_id, coalesce(u.permanent, ($17::bool[])[1]) AS permanent,
			coalesce(u.child_run_id, ($18::uuid[])[1]) AS child_run_id,
				coalesce(u.sequence, ($19::bigint[])[1]) AS sequence,
			coalesce(u.ended_at, ($20::bigint[])[1]) AS ended_at, coalesce(u.starts, ($21::bool[])[1]) AS starts,
			coalesce(u.unheard, ($23::bool[])[1]) AS unheard
		FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::text[], $8::int[], $9::int[],
			$10::bytea[],
			$11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::uuid[], $16::bigint[], $17::bool[],
				$18::uuid[], $19::bigint[], $20::bigint[], $21::bool[],
			$22::bytea[], $23::bool[])
			AS u (run_id, lease, step_id, attempt_number, status, step_kind, run_attempt, first_attempt, output,
				error_kind, error, wake, position, worker_id, elapsed, permanent, child_run_id, sequence, ended_at,
					starts, input, unheard)
	) u
) u
` + lockedByLease + `
WHERE NOT u.starts OR (SELECT count(*) FROM kagzi.workflow_runs c WHERE c.run_id = u.child_run_id
	AND c.namespace_id = $1) = 1
ON CONFLICT (run_id, step_id, attempt_number, namespace_id) DO UPDATE
SET status = EXCLUDED.status, step_kind = EXCLUDED.step_kind, run_attempt = EXCLUDED.run_attempt,
	first_attempt = EXCLUDED.first_attempt,
	input = coalesce(EXCLUDED.input, s.input), output = EXCLUDED.output, error_kind = EXCLUDED.error_kind,
		error = EXCLUDED.error, permanent = EXCLUDED.permanent,
	wake_at = coalesce(s.wake_at, EXCLUDED.wake_at), worker_id = EXCLUDED.worker_id, finished_at = EXCLUDED.finished_at,
	child_run_id = EXCLUDED.child_run_id, sequence = EXCLUDED.sequence,
	position = CASE WHEN s.step_kind IN ('VALUE', 'CHECKPOINT') THEN EXCLUDED.position ELSE s.position END
WHERE s.status = 'RUNNING' OR s.step_kind IN ('VALUE', 'CHECKPOINT')` + returningRecorded

var recordColumns = columnsOf(recordSteps,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	uuids("lease", func(r *Record) uuid.UUID { return r.Lease }),
	texts("step_id", func(r *Record) string { return r.StepID }),
	shared(ints, "attempt_number", func(r *Record) int { return r.Attempt }),
	shared(texts, "status", func(r *Record) string { return r.Status }),
	shared(texts, "step_kind", func(r *Record) string { return r.Kind }),
	shared(ints, "run_attempt", func(r *Record) int { return r.RunAttempt }),
	shared(ints, "first_attempt", func(r *Record) int { return r.FirstAttempt }),
	byteas("output", func(r *Record) []byte { return r.Output }),
	shared(texts, "error_kind", func(r *Record) string { return r.ErrorKind }),
	shared(texts, "error", func(r *Record) string { return r.Error }),
	shared(bigints, "wake", func(r *Record) int64 { return wakeIn(r.Wake) }),
	bigints("position", func(r *Record) int64 { return r.Position }),
	shared(uuids, "worker_id", func(r *Record) uuid.UUID { return r.Worker }),
	bigints("elapsed", func(r *Record) int64 { return pg.Micros(r.Elapsed) }),
	shared(bools, "permanent", func(r *Record) bool { return r.Permanent }),
	shared(uuids, "child_run_id", func(r *Record) uuid.UUID { return r.ChildRunID }),
	shared(bigints, "sequence", func(r *Record) int64 { return r.Sequence }),
	shared(bigints, "ended_at", func(r *Record) int64 { return pg.Epoch(r.EndedAt) }),
	shared(bools, "starts", func(r *Record) bool { return r.Start != nil }),
	byteas("input", func(r *Record) []byte { return r.Input }),
	shared(bools, "unheard", func(r *Record) bool { return r.Unheard }),
)

// readRecorded marks the records that the statement wrote, and fills in the times that the database gave them.
func readRecorded(records []*Record) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		i := 0 // the rows are in the order of the records, and some may be missing
		var id uuid.UUID
		var step string
		var attempt int
		var wake, started, finished time.Time
		_, err := pgx.ForEachRow(rows, []any{
			pg.UUIDTo(&id), &step, &attempt, pg.UTC(&wake), pg.UTC(&started),
			pg.UTC(&finished),
		},
			func() error {
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

// recordCompensations is recordSteps for registrations. A registration without a call announces that a step under way
// may register a compensation. The record of that compensation replaces it.
const recordCompensations = `
INSERT INTO kagzi.step_runs AS s (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
	first_attempt,
	call, input, output, worker_id, started_at, position)
SELECT u.run_id, u.step_id, u.attempt_number, l.namespace_id, 'RUNNING', 'COMPENSATION', u.run_attempt,
	u.attempt_number,
	NULLIF(u.call, '')::jsonb, u.input, u.output, u.worker_id, statement_timestamp(), u.position
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::int[], $7::text[], $8::bytea[], $9::bytea[], $10::uuid[],
	$11::bigint[])
	AS u (run_id, lease, step_id, attempt_number, run_attempt, call, input, output, worker_id, position)
CROSS JOIN LATERAL (
	SELECT r.namespace_id
	FROM kagzi.workflow_runs r
	WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.lease = u.lease AND r.status = 'RUNNING'
	FOR SHARE
) l
ON CONFLICT (run_id, step_id, attempt_number, namespace_id) DO UPDATE
SET run_attempt = EXCLUDED.run_attempt, call = EXCLUDED.call, input = EXCLUDED.input, output = EXCLUDED.output,
	worker_id = EXCLUDED.worker_id,
	started_at = EXCLUDED.started_at, position = EXCLUDED.position
WHERE s.status = 'RUNNING' AND (s.call IS NULL OR s.call = EXCLUDED.call AND s.output = EXCLUDED.output)
RETURNING run_id, step_id, attempt_number, wake_at, started_at, finished_at`

var compensationColumns = columnsOf(recordCompensations,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	uuids("lease", func(r *Record) uuid.UUID { return r.Lease }),
	texts("step_id", func(r *Record) string { return r.StepID }),
	ints("attempt_number", func(r *Record) int { return r.Attempt }),
	ints("run_attempt", func(r *Record) int { return r.RunAttempt }),
	texts("call", func(r *Record) string { return r.Compensation.call() }),
	byteas("input", func(r *Record) []byte { return r.Compensation.input() }),
	byteas("output", func(r *Record) []byte { return r.Output }),
	uuids("worker_id", func(r *Record) uuid.UUID { return r.Worker }),
	bigints("position", func(r *Record) int64 { return r.Position }),
)
