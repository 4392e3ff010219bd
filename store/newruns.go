package store

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
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
	Headers     json.RawMessage // without those that a child has from its parent
	Parent      uuid.UUID
	ParentStep  string
	Detached    bool   // continues when its parent ends
	Tells       bool   // its start and its end are published: see publishRuns
	Key         string // for limits and turns; empty: none
	Group       bool   // Key names a group: it spans queues, and at most one run of it is active
	Input       []byte
	Messages    []Message // for this run, or for the active run that has its external ID
	Claim       *NewClaim // inserts the run as claimed; nil: it is inserted as PENDING

	IfActive string // RejectActive or ReplaceActive
	IfEnded  string // RejectEnded or StartIfFailed
	WhenFull string // RejectNew or CancelOldest, for the limit of its Key; the run is due now, and has no Window

	Window *Window // the start may share a run with others; nil: it does not
}

// A NewClaim is the claim of a run that is inserted as claimed: only Starts.Together takes one. The run is due now, has
// no parent and no messages.
type NewClaim struct {
	Worker uuid.UUID
	// chosen before the call, by NewLease: if the answer is lost, it tells whether the run was inserted so
	Lease        uuid.UUID
	LeaseTimeout time.Duration
	Version      int // the worker's version for a run without one
}

// A StartedRun says what happened to a NewRun.
type StartedRun struct {
	RunID    uuid.UUID
	Existed  bool      // RunID is that of the active run with the external ID, or of the window's run
	Due      bool      // the run existed, and this start has made it due, or it is about to be due
	Replaced uuid.UUID // the run that was terminated for this one, if any

	// what ended with the runs that the call replaced or cancelled; only in some of its StartedRuns
	Ended     *CancelledRuns
	Signalled *Signalled // the run that got the messages; nil if there were none
}

// A conflict inserts nothing and raises no error, so the statement is safe in a caller's transaction. Times count from
// the statement, because a caller's transaction may have begun long ago. A run is due now if its At has passed, and its
// Timeout counts from when it is due. A child that is not started under its parent's lease is detached: it continues
// when the parent ends. The Timeout is stored for a restart, which begins it again.
//
// Each run is due a microsecond after the one before it: so claims take the runs in their order, and a claim's Since
// tells apart which of them were taken. An insert takes longer, so all are due at the commit.
//
// A run with a lease is inserted as if it had been claimed in the same moment: see claimRuns for the end of its lease.
// If its queue has limits, or anything but keys is paused, the run is inserted without the lease, and without the
// version that the lease says the claim gave.
const insertRuns = `
WITH ` + selectStarts + mayBeClaimed + fromStarts + insertUnnested

// The starts, as far as whether they are claimed, and what follows.
const (
	selectStarts = `starts AS MATERIALIZED (
	SELECT u.run_id, u.external_id, u.input_hash, u.task_queue, u.workflow_type,
		CASE WHEN NOT u.claims AND get_byte(uuid_send(u.lease), 15) & 2 > 0 THEN 0 ELSE u.version END AS version,
			u.priority,
		GREATEST(statement_timestamp() + u.delay * interval '1 microsecond',
			CASE WHEN u.at > 0 THEN timestamptz 'epoch' + u.at * interval '1 microsecond' END) + (u.place - 1) *
				interval '1 microsecond' AS available_at, statement_timestamp() AS now,
		u.timeout, u.retry_policy, u.metadata, u.parent_run_id, u.parent_step_id, u.parent_step_id <> '' AS detached,
			u.input, NULLIF(u.run_key, '') AS run_key, u.grouped, u.tells, u.headers,
		CASE WHEN u.claims THEN u.locked_by END AS locked_by, CASE WHEN u.claims THEN u.lease END AS lease,
			u.lease_timeout
	FROM (
		SELECT ` + columnsOfRuns + `, coalesce(u.locked_by, ($21::uuid[])[1]) AS locked_by,
			coalesce(u.lease, ($22::uuid[])[1]) AS lease,
			coalesce(u.lease_timeout, ($23::bigint[])[1]) AS lease_timeout, u.place,
			`
	fromStarts = ` AS claims
		FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::int[], $8::smallint[],
			$9::bigint[], $10::bigint[],
			$11::bigint[], $12::text[], $13::text[], $14::uuid[], $15::text[], $16::bytea[], $17::text[], $18::bool[],
				$19::bool[], $20::text[], $21::uuid[], $22::uuid[], $23::bigint[]) WITH ORDINALITY
			AS u (run_id, external_id, input_hash, task_queue, workflow_type, version, priority, delay, at, timeout,
				retry_policy, metadata, parent_run_id, parent_step_id, input, run_key, grouped, tells, headers,
					locked_by, lease, lease_timeout, place)
		OFFSET 0 -- claims is computed once, not for each use
	) u
), `
)

// The columns of newRunColumns, most of which are shared.
const columnsOfRuns = `u.run_id, coalesce(u.external_id, ($3::text[])[1]) AS external_id, u.input_hash,
			coalesce(u.task_queue, ($5::text[])[1]) AS task_queue, coalesce(u.workflow_type, ($6::text[])[1])
				AS workflow_type,
			coalesce(u.version, ($7::int[])[1]) AS version, coalesce(u.priority, ($8::smallint[])[1]) AS priority,
			coalesce(u.delay, ($9::bigint[])[1]) AS delay, coalesce(u.at, ($10::bigint[])[1]) AS at,
			coalesce(u.timeout, ($11::bigint[])[1]) AS timeout, coalesce(u.retry_policy, ($12::text[])[1])
				AS retry_policy,
			coalesce(u.metadata, ($13::text[])[1]) AS metadata, coalesce(u.parent_run_id, ($14::uuid[])[1])
				AS parent_run_id,
			coalesce(u.parent_step_id, ($15::text[])[1]) AS parent_step_id, u.input,
			coalesce(u.run_key, ($17::text[])[1]) AS run_key, coalesce(u.grouped, ($18::bool[])[1]) AS grouped,
			coalesce(u.tells, ($19::bool[])[1]) AS tells, coalesce(u.headers, ($20::text[])[1]) AS headers`

// Inserts the rows of starts, which have the columns of a NewRun, in the order of their external IDs: see everyRun.
const insertUnnested = insertStarts + changesOfNewRuns + selectInserted

const insertStarts = `inserted AS (
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, external_id, input_hash, task_queue, workflow_type, version,
		priority,
		status, available_at, deadline_at, retry_policy, metadata, parent_run_id, parent_step_id, detached, timeout,
			created_at, input,
		locked_by, lease, started_at, run_key, key_scope, tells, headers)
	SELECT starts.run_id, $1, NULLIF(starts.external_id, ''), starts.input_hash, starts.task_queue,
		starts.workflow_type, NULLIF(starts.version, 0), starts.priority,
		CASE WHEN starts.lease IS NULL THEN 'PENDING' ELSE 'RUNNING' END,
		CASE WHEN starts.lease IS NULL THEN starts.available_at
			ELSE starts.available_at + LEAST(starts.lease_timeout * interval '1 microsecond',
			CASE WHEN starts.timeout > 0 THEN starts.timeout * interval '1 microsecond' + interval '3 seconds' END) END,
		CASE WHEN starts.timeout > 0 THEN starts.available_at + starts.timeout * interval '1 microsecond' END,
		NULLIF(starts.retry_policy, '')::jsonb, NULLIF(starts.metadata, '')::jsonb,
		NULLIF(starts.parent_run_id, '00000000-0000-0000-0000-000000000000'), NULLIF(starts.parent_step_id, ''),
			starts.detached,
		CASE WHEN starts.timeout > 0 THEN starts.timeout * interval '1 microsecond' END, starts.now, starts.input,
		starts.locked_by, starts.lease, CASE WHEN starts.lease IS NOT NULL THEN starts.now END,
		starts.run_key, CASE WHEN starts.run_key IS NOT NULL THEN CASE WHEN starts.grouped THEN ''
			ELSE starts.task_queue END END, starts.tells, NULLIF(starts.headers, '')::jsonb
	FROM starts
	ORDER BY starts.external_id COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING run_id, started_at, deadline_at, CASE WHEN lease IS NOT NULL THEN available_at END AS until, run_key,
		key_scope`

const changesOfNewRuns = `
), ` + insertChanges + ` inserted k WHERE k.run_key IS NOT NULL`

const selectInserted = `
)
SELECT run_id, started_at, deadline_at, until FROM inserted`

// mayBeClaimed reports whether the run is inserted as claimed.
const mayBeClaimed = `coalesce(u.lease, ($22::uuid[])[1]) <> '00000000-0000-0000-0000-000000000000'
	AND coalesce(u.task_queue, ($5::text[])[1]) <> ALL (ARRAY (
				SELECT c.task_queue FROM kagzi.queues c WHERE c.namespace_id = $1
					AND (c.max_running > 0 OR c.rate_interval > 0)
			)) AND (
				SELECT count(*) FROM (SELECT FROM kagzi.pauses p WHERE p.run_key = '' AND p.namespace_id = $1 LIMIT 1) p
			) = 0`

// Most runs need not all of insertRuns, and what a statement prepares to do costs time even if it does not do it.
const (
	insertRunsWithoutKeys = `
WITH ` + selectStarts + mayBeClaimed + fromStarts + insertStarts + selectInserted
	insertPendingWithoutKeys = `
WITH ` + selectStarts + `false` + fromStarts + insertStarts + selectInserted
)

// insertsOf returns the statement that inserts the runs.
func insertsOf(runs []*NewRun) string {
	switch {
	case slices.ContainsFunc(runs, func(r *NewRun) bool { return r.Key != "" }):
		return insertRuns
	case slices.ContainsFunc(runs, func(r *NewRun) bool { return r.Claim != nil }):
		return insertRunsWithoutKeys
	}
	return insertPendingWithoutKeys
}

var insertColumns = columnsOf(insertRuns, append(newRunColumns(func(r *NewRun) *NewRun { return r }),
	shared(uuids, "locked_by", func(r *NewRun) uuid.UUID { return r.claim().Worker }),
	shared(uuids, "lease", func(r *NewRun) uuid.UUID { return r.claim().Lease }),
	shared(bigints, "lease_timeout", func(r *NewRun) int64 { return pg.Micros(r.claim().LeaseTimeout) }),
)...)

// claim returns the run's claim, a zero one if it has none.
func (r *NewRun) claim() NewClaim { return pg.Deref(r.Claim) }

// readInserted returns the IDs of the inserted runs, with the runs themselves if they were inserted as claimed. The
// statement was sent at asked.
func readInserted(rows pgx.Rows, runs []*NewRun, asked time.Time) (map[uuid.UUID]*ClaimedRun, error) {
	claimed := map[uuid.UUID]*NewRun{}
	for _, r := range runs {
		if r.Claim != nil {
			claimed[r.RunID] = r
		}
	}
	out := make(map[uuid.UUID]*ClaimedRun, len(runs))
	var id uuid.UUID
	var started, deadline, until time.Time
	_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&id), pg.UTC(&started), pg.UTC(&deadline), pg.UTC(&until)},
		func() error {
			out[id] = nil
			if r := claimed[id]; r != nil && !until.IsZero() {
				out[id] = &ClaimedRun{
					RunID: id, Lease: r.Claim.Lease, Queue: r.Queue, Type: r.Type,
					Version: cmp.Or(r.Version, r.Claim.Version), ExternalID: r.ExternalID,
					RetryPolicy: r.RetryPolicy, DeadlineAt: deadline, CreatedAt: started, StartedAt: started,
					Fresh: true, Tells: r.Tells, Metadata: r.Metadata, Headers: r.Headers, Input: r.Input,
					Term: termOf(asked, started, until),
				}
			}
			return nil
		})
	return out, err
}

// newRunColumns are the columns of the NewRun that run returns of an item.
func newRunColumns[T any](run func(T) *NewRun) columns[T] {
	return columns[T]{
		uuids("run_id", func(t T) uuid.UUID { return run(t).RunID }),
		shared(texts, "external_id", func(t T) string { return run(t).ExternalID }),
		byteas("input_hash", func(t T) []byte { return run(t).InputHash }),
		shared(texts, "task_queue", func(t T) string { return run(t).Queue }),
		shared(texts, "workflow_type", func(t T) string { return run(t).Type }),
		shared(ints, "version", func(t T) int { return cmp.Or(run(t).Version, run(t).claim().Version) }),
		shared(smallints, "priority", func(t T) int16 { return int16(run(t).Priority) }),
		shared(bigints, "delay", func(t T) int64 { return pg.Micros(run(t).Delay) }),
		shared(bigints, "at", func(t T) int64 { return pg.Epoch(run(t).At) }),
		shared(bigints, "timeout", func(t T) int64 { return pg.Micros(run(t).Timeout) }),
		shared(texts, "retry_policy", func(t T) string { return string(run(t).RetryPolicy) }),
		shared(texts, "metadata", func(t T) string { return string(run(t).Metadata) }),
		shared(uuids, "parent_run_id", func(t T) uuid.UUID { return run(t).Parent }),
		shared(texts, "parent_step_id", func(t T) string { return run(t).ParentStep }),
		byteas("input", func(t T) []byte { return run(t).Input }),
		shared(texts, "run_key", func(t T) string { return run(t).Key }),
		shared(bools, "grouped", func(t T) bool { return run(t).Group }),
		shared(bools, "tells", func(t T) bool { return run(t).Tells }),
		shared(texts, "headers", func(t T) string { return string(run(t).Headers) }),
	}
}
