package store

import (
	"encoding/json"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// A Spec is what the options of a start say of the run itself. Runs, schedules and compensations keep one, so a new
// option is a field here, and a column in the lists below.
type Spec struct {
	Queue       string          `json:"queue,omitempty"`
	Type        string          `json:"type"`
	Version     int             `json:"version,omitempty"`  // zero: the newest version of the first worker
	Priority    int             `json:"priority,omitempty"` // zero in a child: its parent's
	Timeout     time.Duration   `json:"timeout,omitempty"`
	Execution   time.Duration   `json:"execution_timeout,omitempty"` // the Timeout that counts from the first claim
	StartWithin time.Duration   `json:"start_within,omitempty"`
	RetryPolicy json.RawMessage `json:"retry_policy,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Headers     json.RawMessage `json:"headers,omitempty"` // without those that a child has from its parent
	Key         Key             `json:"key,omitzero"`      // for limits and turns; zero: none
	Publishes   bool            `json:"-"`                 // its start and its end are published: see publishRuns
}

// The columns of a Spec. They have the same names in kagzi.workflow_runs, kagzi.schedules, and the CTE starts. The
// version stands apart, because a run that is inserted as claimed gets one.
const (
	// keptColumns are those that a run has from where it is started, as they are.
	keptColumns = `task_queue, workflow_type, timeout, execution_timeout, start_within, retry_policy, run_key,
		key_scope, publishes`

	// A child, a tick or a restart may have a priority, metadata or headers of its own.
	specColumns = keptColumns + `, priority, metadata, headers`

	// The arrays that a statement unnests as u, their names, and the columns that they become. Most are shared.
	specArrays = `$2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[],
		$10::bool[], $11::smallint[], $12::text[], $13::text[], $14::int[]`
	specNames    = specColumns + `, version`
	specOfArrays = `coalesce(u.task_queue, ($2::text[])[1]) AS task_queue,
		coalesce(u.workflow_type, ($3::text[])[1]) AS workflow_type,
		NULLIF(coalesce(u.timeout, ($4::bigint[])[1]), 0) * interval '1 microsecond' AS timeout,
		NULLIF(coalesce(u.execution_timeout, ($5::bigint[])[1]), 0) * interval '1 microsecond' AS execution_timeout,
		NULLIF(coalesce(u.start_within, ($6::bigint[])[1]), 0) * interval '1 microsecond' AS start_within,
		NULLIF(coalesce(u.retry_policy, ($7::text[])[1]), '')::jsonb AS retry_policy,
		NULLIF(coalesce(u.run_key, ($8::text[])[1]), '') AS run_key,
		CASE WHEN coalesce(u.run_key, ($8::text[])[1]) <> '' THEN coalesce(u.key_scope, ($9::text[])[1]) END
			AS key_scope,
		coalesce(u.publishes, ($10::bool[])[1]) AS publishes,
		NULLIF(coalesce(u.priority, ($11::smallint[])[1]), 0) AS priority,
		NULLIF(coalesce(u.metadata, ($12::text[])[1]), '')::jsonb AS metadata,
		NULLIF(coalesce(u.headers, ($13::text[])[1]), '')::jsonb AS headers,
		NULLIF(coalesce(u.version, ($14::int[])[1]), 0) AS version`
)

// specColumnsOf are the columns of the Spec that spec returns of an item, as specArrays has them.
func specColumnsOf[T any](spec func(T) *Spec) columns[T] {
	return columns[T]{
		shared(texts, "task_queue", func(t T) string { return spec(t).Queue }),
		shared(texts, "workflow_type", func(t T) string { return spec(t).Type }),
		shared(bigints, "timeout", func(t T) int64 { return pg.Micros(spec(t).Timeout) }),
		shared(bigints, "execution_timeout", func(t T) int64 { return pg.Micros(spec(t).Execution) }),
		shared(bigints, "start_within", func(t T) int64 { return pg.Micros(spec(t).StartWithin) }),
		shared(texts, "retry_policy", func(t T) string { return string(spec(t).RetryPolicy) }),
		shared(texts, "run_key", func(t T) string { return spec(t).Key.Name }),
		shared(texts, "key_scope", func(t T) string { return spec(t).Key.scope(spec(t).Queue) }),
		shared(bools, "publishes", func(t T) bool { return spec(t).Publishes }),
		shared(smallints, "priority", func(t T) int16 { return int16(spec(t).Priority) }),
		shared(texts, "metadata", func(t T) string { return string(spec(t).Metadata) }),
		shared(texts, "headers", func(t T) string { return string(spec(t).Headers) }),
		shared(ints, "version", func(t T) int { return spec(t).Version }),
	}
}

// read returns where to scan clause.Spec.
func (s *Spec) read() []any {
	return []any{
		&s.Queue, &s.Type, pg.MicrosTo(&s.Timeout), pg.MicrosTo(&s.Execution), pg.MicrosTo(&s.StartWithin),
		&s.RetryPolicy, &s.Key.Name, &s.Key.Group, &s.Publishes, &s.Priority, &s.Metadata, &s.Headers, &s.Version,
	}
}

// insertStarts inserts the rows of the CTE starts, in the order of their external IDs: see everyRun. No other
// statement inserts a run. It is due at available_at, and its Timeout counts from then, at the earliest from now. A run
// that has a lease is inserted as if it had been claimed in the same moment: see claimRuns for the end of its lease.
const insertStarts = `inserted AS (
	INSERT INTO kagzi.workflow_runs ` + rowsOfStarts + `, task_queue, workflow_type, coalesce(version, 0) AS version,
		publishes, run_key, key_scope, available_at AS due_at`

// rowsOfStarts is what follows the table's name in the INSERT. It returns what a start reads of each run.
const rowsOfStarts = `(run_id, namespace_id, external_id, input_hash, input, version, status, available_at,
		waiting_on, deadline_at, start_by, wakeups, parent_run_id, parent_step_id, detached,
		origin_run_id, schedule_id, schedule_name, fire_at, created_at, locked_by, lease, started_at,
		` + specColumns + `)
	SELECT starts.run_id, $1, starts.external_id, starts.input_hash, starts.input,
		coalesce(starts.version, starts.claimed_version),
		CASE WHEN starts.lease IS NULL THEN 'PENDING' ELSE 'RUNNING' END,
		CASE WHEN starts.lease IS NULL THEN starts.available_at
			ELSE starts.available_at + LEAST(starts.lease_timeout, LEAST(starts.timeout, starts.execution_timeout)
				+ interval '3 seconds') END, starts.waiting_on,
		CASE WHEN starts.waiting_on IS NULL THEN LEAST(GREATEST(starts.available_at, starts.now) + starts.timeout,
			CASE WHEN starts.lease IS NOT NULL THEN starts.now + starts.execution_timeout END) END,
		CASE WHEN starts.waiting_on IS NULL THEN GREATEST(starts.available_at, starts.now) + starts.start_within END,
		starts.wakeups, starts.parent_run_id, starts.parent_step_id, starts.detached, starts.origin_run_id,
		starts.schedule_id, starts.schedule_name, starts.fire_at, starts.now, starts.locked_by, starts.lease,
		CASE WHEN starts.lease IS NOT NULL THEN starts.now END, ` + specColumns + `
	FROM starts ORDER BY starts.external_id COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING run_id, started_at, deadline_at, CASE WHEN lease IS NOT NULL THEN available_at END AS until`

// insertKeyed is insertStarts for runs of which some have keys.
const insertKeyed = insertStarts + `
), ` + insertDueChanges + ` inserted k WHERE k.run_key IS NOT NULL GROUP BY 1, 2, 3`

// selectInserted returns what DueRun has of each run, and whether it publishes its events.
const selectInserted = `
)
SELECT inserted.run_id, inserted.task_queue, inserted.workflow_type, inserted.version, inserted.publishes FROM inserted`

// What the columns of starts are if there is nothing of the kind.
const (
	noID       = `NULL::text AS external_id, NULL::bytea AS input_hash`
	noParent   = `NULL::uuid AS parent_run_id, NULL::text AS parent_step_id, false AS detached`
	noOrigin   = `NULL::uuid AS origin_run_id, 0::bigint AS wakeups`
	noSchedule = `NULL::uuid AS schedule_id, NULL::text AS schedule_name, NULL::timestamptz AS fire_at,
		NULL::jsonb AS waiting_on`
	noClaim = `NULL::uuid AS locked_by, NULL::uuid AS lease, NULL::interval AS lease_timeout,
		NULL::int AS claimed_version`
)
