package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// A NewRun is a run to insert.
type NewRun struct {
	RunID       uuid.UUID // made by the client, so that a repeated call finds the run
	ExternalID  string
	InputHash   []byte
	Queue       string
	Type        string
	Version     int // zero: the newest version of the first worker
	Priority    int // zero in a child: its parent's
	Delay       time.Duration
	At          time.Time // instead of Delay
	Timeout     time.Duration
	RetryPolicy json.RawMessage
	Metadata    json.RawMessage
	Parent      uuid.UUID
	ParentStep  string
	Detached    bool // continues when its parent ends
	Input       []byte
	Messages    []Message // for this run, or for the active run that has its external ID

	IfActive string // RejectActive or ReplaceActive
	IfEnded  string // RejectEnded or StartIfFailed
}

// A StartedRun says what happened to a NewRun.
type StartedRun struct {
	RunID    uuid.UUID
	Existed  bool      // RunID is that of the active run with the external ID
	Replaced uuid.UUID // the run that was terminated for this one, if any

	Ended     *CancelledRuns // the runs that ended with all runs that the call replaced; only in one of its StartedRuns
	Signalled *Signalled     // the run that got the messages; nil if there were none
}

// A conflict inserts nothing and raises no error, so the statement is safe in a caller's transaction. Times count from the
// statement, because a caller's transaction may have begun long ago. A run is due now if its At has passed, and its Timeout
// counts from when it is due. A child that is not started under its parent's lease is detached: it continues when the parent
// ends. The Timeout is stored for a restart, which begins it again.
//
// Each run is due a microsecond after the one before it: so claims take the runs in their order, and a claim's Since tells
// apart which of them were taken. An insert takes longer, so all are due at the commit.
const insertRuns = `
WITH u AS MATERIALIZED (
	SELECT u.run_id, u.external_id, u.input_hash, u.task_queue, u.workflow_type, u.version, u.priority,
		GREATEST(statement_timestamp() + u.delay * interval '1 microsecond',
			CASE WHEN u.at > 0 THEN timestamptz 'epoch' + u.at * interval '1 microsecond' END) + (u.place - 1) * interval '1 microsecond' AS available_at, statement_timestamp() AS now,
		u.timeout, u.retry_policy, u.metadata, u.parent_run_id, u.parent_step_id, u.parent_step_id <> '' AS detached, u.input
	FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::int[], $8::smallint[], $9::bigint[], $10::bigint[],
		$11::bigint[], $12::text[], $13::text[], $14::uuid[], $15::text[], $16::bytea[]) WITH ORDINALITY
		AS u (run_id, external_id, input_hash, task_queue, workflow_type, version, priority, delay, at, timeout,
			retry_policy, metadata, parent_run_id, parent_step_id, input, place)
), ` + insertUnnested

// Inserts the rows of u, which have the columns of a NewRun, in the order of their external IDs: see everyRun.
const insertUnnested = `r AS (
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, external_id, input_hash, task_queue, workflow_type, version, priority,
		status, available_at, deadline_at, retry_policy, metadata, parent_run_id, parent_step_id, detached, timeout, created_at, input)
	SELECT u.run_id, $1, NULLIF(u.external_id, ''), u.input_hash, u.task_queue, u.workflow_type, NULLIF(u.version, 0), u.priority,
		'PENDING', u.available_at, CASE WHEN u.timeout > 0 THEN u.available_at + u.timeout * interval '1 microsecond' END,
		NULLIF(u.retry_policy, '')::jsonb, NULLIF(u.metadata, '')::jsonb,
		NULLIF(u.parent_run_id, '00000000-0000-0000-0000-000000000000'), NULLIF(u.parent_step_id, ''), u.detached,
		CASE WHEN u.timeout > 0 THEN u.timeout * interval '1 microsecond' END, u.now, u.input
	FROM u
	ORDER BY u.external_id COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING run_id
)
SELECT run_id FROM r`

var insertColumns = columnsOf(insertRuns, newRunColumns(func(r *NewRun) *NewRun { return r })...)

// newRunColumns are the columns of the NewRun that run returns of an item.
func newRunColumns[T any](run func(T) *NewRun) columns[T] {
	return columns[T]{
		uuids("run_id", func(t T) uuid.UUID { return run(t).RunID }),
		texts("external_id", func(t T) string { return run(t).ExternalID }),
		byteas("input_hash", func(t T) []byte { return run(t).InputHash }),
		texts("task_queue", func(t T) string { return run(t).Queue }),
		texts("workflow_type", func(t T) string { return run(t).Type }),
		ints("version", func(t T) int { return run(t).Version }),
		smallints("priority", func(t T) int16 { return int16(run(t).Priority) }),
		bigints("delay", func(t T) int64 { return micros(run(t).Delay) }),
		bigints("at", func(t T) int64 { return epoch(run(t).At) }),
		bigints("timeout", func(t T) int64 { return micros(run(t).Timeout) }),
		texts("retry_policy", func(t T) string { return string(run(t).RetryPolicy) }),
		texts("metadata", func(t T) string { return string(run(t).Metadata) }),
		uuids("parent_run_id", func(t T) uuid.UUID { return run(t).Parent }),
		texts("parent_step_id", func(t T) string { return run(t).ParentStep }),
		byteas("input", func(t T) []byte { return run(t).Input }),
	}
}
