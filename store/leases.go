package store

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Leases keeps the runs that workers hold.
type Leases struct{ *conn }

// The last two bits of a lease say what the claim wrote into the run that it found empty. So a caller that gives back
// the run without having begun it can undo that, even if the claim's answer was lost and the row no longer shows it.
const (
	leaseStarts   byte = 1 << iota // started_at: it is the run's first claim
	leaseVersions                  // version: none had been chosen
)

// leaseOf returns the lease with these last bits.
func leaseOf(lease uuid.UUID, bits byte) uuid.UUID {
	lease[15] = lease[15]&^(leaseStarts|leaseVersions) | bits
	return lease
}

// leasesOf returns the four leases that a claim may give, in the order of their last bits.
func leasesOf(lease uuid.UUID) []uuid.UUID {
	return []uuid.UUID{
		leaseOf(lease, 0), leaseOf(lease, leaseStarts), leaseOf(lease, leaseVersions),
		leaseOf(lease, leaseStarts|leaseVersions),
	}
}

// NewLease returns a lease for a run that is inserted as claimed. version is the one that its caller chose, or zero.
func NewLease(version int) uuid.UUID {
	if version == 0 {
		return leaseOf(uuid.New(), leaseStarts|leaseVersions)
	}
	return leaseOf(uuid.New(), leaseStarts)
}

// isFirst reports whether the lease is that of the run's first claim.
func isFirst(lease uuid.UUID) bool { return lease[15]&leaseStarts != 0 }

// gaveVersion reports whether the claim gave the run its version.
func gaveVersion(lease uuid.UUID) bool { return lease[15]&leaseVersions != 0 }

// A Term says how long a lease lasts, as a query read it from the table. Both times are by this process's clock,
// counted from when the query was sent: the answer may take time to arrive, and to be read.
type Term struct {
	Asked time.Time // when the query was sent
	Ends  time.Time // no later than in the table
}

// termOf returns the term of a lease that ends at until, if the database's clock showed now after the query was sent.
func termOf(asked, now, until time.Time) Term { return Term{asked, asked.Add(until.Sub(now))} }

// within returns the term of a lease that was taken for timeout after the query was sent. On Citus the server whose
// clock showed now may be another than the one whose clock decides when the lease ends.
func (t Term) within(timeout time.Duration) Term {
	if most := t.Asked.Add(timeout); t.Ends.After(most) {
		t.Ends = most
	}
	return t
}

// A HeldRun is a run that a worker believes to hold, with the lease of its claim.
type HeldRun struct {
	RunID uuid.UUID
	Lease uuid.UUID
}

// A HeldRunState is the state of a HeldRun in the table.
type HeldRunState struct {
	RunID   uuid.UUID
	Lease   uuid.UUID // of the HeldRun
	Holds   bool      // the run is still RUNNING under the lease
	Status  string
	Wakeups int64
	Cancel  bool // the run was cancelled: the worker has to end it
	// the execution has to stop at its next step: the run is paused, or its queue, workflow or key in that way
	Paused   bool
	Deadline time.Time // when the run has to end; zero if there is none
	Term     Term      // of the lease, if Holds
}

// The statement extends only leases that are past half of their timeout. It skips rows that others have locked:
// the next heartbeat extends them. coalesce hides the condition on the time from the planner, which would otherwise
// consider the claim's index.
const extendLeases = `
WITH locked AS MATERIALIZED (
	SELECT r.run_id, r.now, LEAST(r.now + $4::bigint * interval '1 microsecond',
		CASE WHEN r.deadline_at > r.now THEN r.deadline_at + interval '3 seconds' END) AS until
	FROM (SELECT u.run_id, u.lease FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease) ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.deadline_at, clock_timestamp() AS now
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'
			AND coalesce(q.available_at < clock_timestamp() + $4::bigint * interval '1 microsecond' / 2, false)
		FOR UPDATE SKIP LOCKED
	) r
)
UPDATE kagzi.workflow_runs r
SET available_at = locked.until
FROM locked
WHERE r.run_id = locked.run_id AND r.namespace_id = $1
RETURNING r.run_id, r.lease, locked.until, locked.now`

const heldStates = `
WITH pauses AS MATERIALIZED (
	SELECT p.task_queue AS in_queue, p.workflow_type AS of_type
	FROM kagzi.pauses p
	WHERE p.task_queue >= '' AND p.namespace_id = $1 AND p.parks
)
SELECT u.run_id, u.lease, coalesce(r.lease = u.lease AND r.status = 'RUNNING', false), coalesce(r.status, ''),
	coalesce(r.wakeups, 0), coalesce(r.cancel_requested_at IS NOT NULL, false), r.deadline_at,
		NULLIF(r.available_at, 'infinity'), now(), coalesce(r.paused, false)
FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, lease)
LEFT JOIN LATERAL (
	SELECT q.lease, q.status, q.wakeups, q.cancel_requested_at, q.deadline_at, q.available_at, q.paused_at IS NOT NULL
		OR NOT ` + clause.Unstopped + ` OR q.run_key IS NOT NULL AND coalesce((
			SELECT k.pause_parks FROM kagzi.run_keys k WHERE k.key_scope = q.key_scope AND k.run_key = q.run_key
				AND k.namespace_id = $1
		), false) AS paused
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1
	OFFSET 0
) r ON true`

var heldColumns = columnsOf(heldStates,
	uuids("run_id", func(h HeldRun) uuid.UUID { return h.RunID }),
	uuids("lease", func(h HeldRun) uuid.UUID { return h.Lease }),
)

var extendColumns = columnsOf(extendLeases, heldColumns...)

// HeldStates returns the state of each of held. It passes a run whose row cannot be read to alone, and reads the
// others.
func (s Leases) HeldStates(ctx context.Context, db pg.DB, held []HeldRun,
	alone func(HeldRun, error),
) (states []HeldRunState, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	err = Isolate(held, func(some []HeldRun) error {
		var found []HeldRunState
		err := pg.Do(ctx, func(ctx context.Context) error {
			asked := time.Now()
			return pg.Ask(ctx, db, heldStates, heldColumns.args(s.namespace, some),
				pg.Collect(&found, func(row pgx.CollectableRow) (st HeldRunState, err error) {
					var until *time.Time
					var now time.Time
					err = row.Scan(&st.RunID, &st.Lease, &st.Holds, &st.Status, &st.Wakeups, &st.Cancel,
						pg.UTC(&st.Deadline), &until, &now, &st.Paused)
					if st.Holds && until != nil {
						st.Term = termOf(asked, now, *until)
					}
					return st, err
				}))
		})
		if err == nil {
			states = append(states, found...)
		}
		return pg.Wrap("read held runs", err)
	}, alone)
	return states, err
}

// Extend extends the leases of held that are past half of their timeout, and returns their terms. It passes a run
// whose lease cannot be extended to alone, and extends the others.
func (s Leases) Extend(ctx context.Context, db pg.DB, held []HeldRun, timeout time.Duration,
	alone func(HeldRun, error),
) (map[HeldRun]Term, error) {
	terms := map[HeldRun]Term{}
	if len(held) == 0 {
		return terms, nil
	}
	err := Isolate(held, func(some []HeldRun) error {
		extended := map[HeldRun]Term{}
		err := pg.Do(ctx, func(ctx context.Context) error {
			clear(extended)
			asked := time.Now()
			return pg.Ask(ctx, db, extendLeases, extendColumns.args(s.namespace, some, pg.Micros(timeout)),
				func(rows pgx.Rows) error {
					var h HeldRun
					var until, now time.Time
					_, err := pgx.ForEachRow(rows, []any{&h.RunID, &h.Lease, &until, &now}, func() error {
						extended[h] = termOf(asked, now, until)
						return nil
					})
					return err
				})
		})
		if err == nil { // committed
			maps.Copy(terms, extended)
		}
		return pg.Wrap("extend leases", err)
	}, alone)
	return terms, err
}

const beginSuspect = `
UPDATE kagzi.workflow_runs
SET suspect_lease = lease
WHERE run_id = $2 AND namespace_id = $1 AND lease = $3 AND status = 'RUNNING'`

// BeginSuspect notes that a crash-loop suspect is about to begin. The row of another run does not tell whether the
// worker that died with it had begun it, or had only claimed it: a write at each begin would cost too much.
func (s Leases) BeginSuspect(ctx context.Context, h HeldRun) error {
	b := &pgx.Batch{}
	b.Queue(beginSuspect, s.namespace, h.RunID, h.Lease)
	return pg.Wrap("note the begin of a crash-loop suspect", pg.Do(ctx, func(ctx context.Context) error {
		return pg.Exchange(ctx, s.pool, pg.Brief, b)
	}))
}

const resetRecoveries = `
UPDATE kagzi.workflow_runs
SET recoveries = 0, recoveries_since = NULL
WHERE run_id = $2 AND namespace_id = $1 AND lease = $3 AND status = 'RUNNING'`

// ResetRecoveries sets the recoveries of a run to zero, because it has made progress since they began.
func (s Leases) ResetRecoveries(ctx context.Context, h HeldRun) error {
	b := &pgx.Batch{}
	b.Queue(resetRecoveries, s.namespace, h.RunID, h.Lease)
	return pg.Wrap("reset recoveries", pg.Do(ctx, func(ctx context.Context) error {
		return pg.Exchange(ctx, s.pool, pg.Brief, b)
	}))
}
