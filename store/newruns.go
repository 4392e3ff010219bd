package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A NewRun is a run to insert.
type NewRun struct {
	Spec
	RunID      uuid.UUID // made by the client, so that a repeated call finds the run
	ExternalID string
	InputHash  []byte
	Input      []byte
	Delay      time.Duration
	At         time.Time // instead of Delay
	Parent     uuid.UUID
	ParentStep string
	Detached   bool      // continues when its parent ends
	Messages   []Message // for this run, or for the active run that has its external ID
	Claim      *NewClaim // inserts the run as claimed; nil: it is inserted as PENDING

	IfActive string // ReturnAnyInput, RejectActive or ReplaceActive
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

// A StartedRun is the result of a NewRun.
type StartedRun struct {
	RunID    uuid.UUID
	Existed  bool      // RunID is that of the active run with the external ID, or of the window's run
	Due      bool      // the run existed, and this start has made it due, or it is about to be due
	Replaced uuid.UUID // the run that was terminated for this one, if any

	// the ends of the runs that the call replaced or cancelled; only in some of its StartedRuns
	Ended     *CancelledRuns
	Signalled *Signalled // the run that got the messages; nil if there were none
}

// A conflict inserts nothing and raises no error, so the statement is safe in a caller's transaction. Times count from
// the statement, because a caller's transaction may have begun long ago. A run is due now if its At has passed. A child
// that is not started under its parent's lease is detached: it continues when the parent ends.
//
// Each run is due a microsecond after the one before it: see doc_start.go. An insert takes longer, so all are due at
// the commit.
//
// If the queue of a run with a lease has limits, or kagzi.pauses has rows, the run is inserted without the lease,
// and without the version that the claim would give.
const insertRuns = `
WITH ` + selectStarts + mayBeClaimed + fromStarts + `, ` + insertKeyed + selectNewRuns

// The starts, as far as whether they are claimed, and the rest.
const (
	selectStarts = `starts AS MATERIALIZED (
	SELECT s.*, GREATEST(s.now + s.delay * interval '1 microsecond',
			CASE WHEN s.at > 0 THEN timestamptz 'epoch' + s.at * interval '1 microsecond' END) +
			(s.place - 1) * interval '1 microsecond' AS available_at, s.parent_step_id IS NOT NULL AS detached,
		CASE WHEN s.claims THEN s.claimed_by END AS locked_by, CASE WHEN s.claims THEN s.claimed_with END AS lease,
		CASE WHEN s.claims THEN s.may_get END AS claimed_version, ` + noOrigin + `, ` + noSchedule + `
	FROM (
		SELECT ` + ofNewRun + `, u.place, coalesce(u.claimed_by, ($23::uuid[])[1]) AS claimed_by,
			coalesce(u.claimed_with, ($24::uuid[])[1]) AS claimed_with,
			coalesce(u.lease_timeout, ($25::bigint[])[1]) * interval '1 microsecond' AS lease_timeout,
			NULLIF(coalesce(u.may_get, ($26::int[])[1]), 0) AS may_get,
			`
	fromStarts = ` AS claims
		FROM unnest(` + newRunArrays + `, $23::uuid[], $24::uuid[], $25::bigint[], $26::int[]) WITH ORDINALITY
			AS u (` + newRunNames + `, claimed_by, claimed_with, lease_timeout, may_get, place)
		OFFSET 0 -- claims is computed once, not for each use
	) s
)`
)

// The arrays of NewRuns, their names, and the columns that they become.
const (
	newRunArrays = specArrays + `, $15::uuid[], $16::text[], $17::bytea[], $18::bytea[], $19::bigint[], $20::bigint[],
			$21::uuid[], $22::text[]`
	newRunNames = specNames + `, run_id, external_id, input_hash, input, delay, at, parent_run_id, parent_step_id`
	ofNewRun    = specOfArrays + `, u.run_id, NULLIF(coalesce(u.external_id, ($16::text[])[1]), '') AS external_id,
		u.input_hash, u.input, coalesce(u.delay, ($19::bigint[])[1]) AS delay,
		coalesce(u.at, ($20::bigint[])[1]) AS at,
		NULLIF(coalesce(u.parent_run_id, ($21::uuid[])[1]), '00000000-0000-0000-0000-000000000000')
			AS parent_run_id,
		NULLIF(coalesce(u.parent_step_id, ($22::text[])[1]), '') AS parent_step_id, statement_timestamp() AS now`
)

const selectNewRuns = `
)
SELECT inserted.run_id, inserted.started_at, inserted.deadline_at, inserted.until FROM inserted`

// mayBeClaimed reports whether the run is inserted as claimed.
const mayBeClaimed = `coalesce(u.claimed_with, ($24::uuid[])[1]) <> '00000000-0000-0000-0000-000000000000'
	AND coalesce(u.task_queue, ($2::text[])[1]) <> ALL (ARRAY (
				SELECT c.task_queue FROM kagzi.queues c WHERE c.namespace_id = $1
					AND (c.max_running > 0 OR c.rate_interval > 0)
			)) AND (
				SELECT count(*) FROM kagzi.pauses p WHERE p.task_queue >= '' AND p.namespace_id = $1
			) = 0`

// Most runs need not all of insertRuns, and what a statement prepares to do costs time even if it does not do it. The
// INSERT is no CTE, because Citus executes each CTE that changes rows as a statement of its own, and copies its rows.
const (
	insertRunsWithoutKeys = `
WITH ` + selectStarts + mayBeClaimed + fromStarts + `
INSERT INTO kagzi.workflow_runs ` + rowsOfStarts
	insertPendingWithoutKeys = `
WITH ` + selectStarts + `false` + fromStarts + `
INSERT INTO kagzi.workflow_runs ` + rowsOfStarts
)

// insertsOf returns the statement that inserts the runs.
func insertsOf(runs []*NewRun) string {
	switch {
	case slices.ContainsFunc(runs, func(r *NewRun) bool { return r.Key.Name != "" }):
		return insertRuns
	case slices.ContainsFunc(runs, func(r *NewRun) bool { return r.Claim != nil }):
		return insertRunsWithoutKeys
	}
	return insertPendingWithoutKeys
}

var insertColumns = columnsOf(insertRuns, append(newRunColumns(func(r *NewRun) *NewRun { return r }),
	shared(uuids, "claimed_by", func(r *NewRun) uuid.UUID { return r.claim().Worker }),
	shared(uuids, "claimed_with", func(r *NewRun) uuid.UUID { return r.claim().Lease }),
	shared(bigints, "lease_timeout", func(r *NewRun) int64 { return pg.Micros(r.claim().LeaseTimeout) }),
	shared(ints, "may_get", func(r *NewRun) int { return r.claim().Version }),
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
					Spec: r.Spec, RunID: id, Lease: r.Claim.Lease, ExternalID: r.ExternalID, DeadlineAt: deadline,
					CreatedAt: started, StartedAt: started, Fresh: true, Input: r.Input,
					Term: termOf(asked, started, until).within(r.Claim.LeaseTimeout),
				}
				out[id].Version = cmp.Or(r.Version, r.Claim.Version)
			}
			return nil
		})
	return out, err
}

// newRunColumns are the columns of the NewRun that run returns of an item.
func newRunColumns[T any](run func(T) *NewRun) columns[T] {
	return append(specColumnsOf(func(t T) *Spec { return &run(t).Spec }),
		uuids("run_id", func(t T) uuid.UUID { return run(t).RunID }),
		shared(texts, "external_id", func(t T) string { return run(t).ExternalID }),
		byteas("input_hash", func(t T) []byte { return run(t).InputHash }),
		byteas("input", func(t T) []byte { return run(t).Input }),
		shared(bigints, "delay", func(t T) int64 { return pg.Micros(run(t).Delay) }),
		shared(bigints, "at", func(t T) int64 { return pg.Epoch(run(t).At) }),
		shared(uuids, "parent_run_id", func(t T) uuid.UUID { return run(t).Parent }),
		shared(texts, "parent_step_id", func(t T) string { return run(t).ParentStep }),
	)
}
