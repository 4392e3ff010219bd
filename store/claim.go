package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A run that is claimed from a dead worker for the third time without progress is a crash-loop suspect: it may kill its
// workers.
const (
	suspectRecoveries = 3
	noSuspects        = suspectRecoveries
	allRuns           = 1 << 30
)

// A WorkflowVersions is one type of workflow that a worker can execute.
type WorkflowVersions struct {
	Type     string
	Versions []int // that have a handler
	Default  int   // given to a run that has no version yet
}

// A ClaimRequest says which runs a worker takes.
type ClaimRequest struct {
	Queue      string
	Types      []WorkflowVersions // in order of preference within a priority
	Limit      int
	Worker     uuid.UUID
	Lease      uuid.UUID // chosen before the call, so that ResolveClaim finds the runs if the answer is lost
	Visibility time.Duration
	LowFirst   bool // the lowest priority first
	NoSuspects bool // leave out crash-loop suspects
	NoInputs   bool // leave the inputs out: one of them may be unreadable
}

// A ClaimedRun is a run with the data to execute it.
type ClaimedRun struct {
	RunID           uuid.UUID
	Lease           uuid.UUID
	Type            string
	Version         int
	ExternalID      string
	Attempts        int // that failed before
	Recoveries      int
	RecoveriesSince time.Time
	LoadFailures    int // failures to read its history since it was last read
	Wakeups         int64
	CancelRequested bool // its worker has to end it as cancelled
	RetryPolicy     json.RawMessage
	DeadlineAt      time.Time
	ParentRunID     uuid.UUID
	FireAt          time.Time // the tick of its schedule that it stands for
	StartedAt       time.Time
	Fresh           bool   // never started before
	Input           []byte // nil if it was left out: Load reads it
	Term            Term
}

// A Term is the time that a lease lasts, as the table said in answer to a question. Both times are this process's: the
// answer may age on its way, and in the process.
type Term struct {
	Asked time.Time // when the question was sent
	Ends  time.Time // no later than in the table
}

// termOf returns the term of a lease that ends at until, by a database whose clock said now after the question was sent.
func termOf(asked, now, until time.Time) Term { return Term{asked, asked.Add(until.Sub(now))} }

// CrashLoopSuspect reports whether the run must be executed alone.
func (r *ClaimedRun) CrashLoopSuspect() bool { return r.Recoveries >= suspectRecoveries }

// A Claim is the answer to a ClaimRequest.
type Claim struct {
	Runs  []*ClaimedRun
	Asked time.Time // when it was sent, by this process's clock
	Now   time.Time
	Next  time.Time // when the next run becomes due, as far as is known; zero if none waits, or if Runs is as long as asked
}

// One statement: lock due rows, at most $7 over all pairs of type and priority in the order given, make them RUNNING, and
// return them with their inputs. A run whose history could not be read comes without its input. A row that is still RUNNING
// belongs to a dead worker: it counts a recovery, and from the third one on it waits first.
//
// A lease ends soon after the deadline at the latest: the holder ends the run at the deadline, and has a moment for that. A
// lease taken after the deadline has the usual length.
//
// The pairs come from one unnest, because the planner would choose the order of a join of two. Times and random() are
// computed where the rows are locked, and the UPDATE copies them: a distributed Postgres refuses them there.
const claimRuns = `
WITH due AS MATERIALIZED (
	SELECT r.run_id, r.status, r.started_at, w.initial, r.now, r.set_back,
		LEAST(r.now + CASE WHEN r.set_back
			THEN LEAST(interval '1 second' * power(2::float8, LEAST(r.recoveries - 2, 20)::float8), interval '5 minutes') * (0.75 + random() / 2)
			ELSE $10::bigint * interval '1 microsecond' END,
			CASE WHEN r.deadline_at > r.now THEN r.deadline_at + CASE WHEN r.set_back THEN interval '0' ELSE interval '3 seconds' END END) AS available_at
	FROM unnest($3::text[], $4::smallint[], $5::text[], $6::int[]) AS w (workflow_type, priority, versions, initial)
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.status, q.recoveries, q.started_at, q.deadline_at, now() AS now,
			q.status = 'RUNNING' AND q.recoveries + 1 >= 3 AS set_back
		FROM kagzi.workflow_runs q
		WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
			AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND q.available_at <= now()
			AND (q.version IS NULL OR q.version = ANY (w.versions::int[]))
			AND q.recoveries < $11 AND q.outcome IS NULL
		ORDER BY q.available_at
		LIMIT $7
		FOR UPDATE SKIP LOCKED
	) r
	LIMIT $7
), claimed AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE WHEN due.set_back THEN 'PENDING' ELSE 'RUNNING' END,
		locked_by = CASE WHEN due.set_back THEN NULL ELSE $8::uuid END,
		lease = CASE WHEN NOT due.set_back THEN $9::uuid END,
		available_at = due.available_at,
		version = coalesce(r.version, due.initial),
		started_at = coalesce(r.started_at, due.now),
		recoveries = r.recoveries + CASE WHEN due.status = 'RUNNING' THEN 1 ELSE 0 END,
		recoveries_since = CASE WHEN due.status = 'RUNNING' AND r.recoveries = 0 THEN due.now ELSE r.recoveries_since END,
		waiting_on = CASE WHEN due.set_back THEN 'recovery' END
	FROM due
	WHERE r.namespace_id = $1 AND r.run_id = due.run_id
	RETURNING r.run_id, r.workflow_type, r.version, r.external_id, r.attempts, r.recoveries, r.recoveries_since, r.load_failures, r.wakeups, r.cancel_requested_at IS NOT NULL AS cancelling,
		r.retry_policy, r.deadline_at, r.parent_run_id, r.fire_at, r.started_at, due.started_at IS NULL AS fresh, due.set_back, r.available_at
)
SELECT t.now,
	CASE WHEN (SELECT count(*) FROM due) = $7 THEN (SELECT min(due.now) FROM due WHERE due.set_back) ELSE LEAST((
		SELECT min(n.available_at)
		FROM unnest($3::text[], $4::smallint[]) AS w (workflow_type, priority)
		CROSS JOIN LATERAL (
			SELECT q.available_at
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
				AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND q.available_at > now() AND q.available_at < 'infinity'
			ORDER BY q.available_at
			LIMIT 1
		) n
	), (SELECT min(s.available_at) FROM claimed s WHERE s.set_back)) END,
	c.run_id, c.workflow_type, c.version, c.external_id, c.attempts, c.recoveries, c.recoveries_since, c.load_failures, c.wakeups, c.cancelling,
	c.retry_policy, c.deadline_at, c.parent_run_id, c.fire_at, c.started_at, c.available_at, c.fresh, c.input
FROM (SELECT now() AS now) t
LEFT JOIN LATERAL (
	SELECT k.*, CASE WHEN k.load_failures = 0 AND NOT $12::bool THEN p.input END AS input
	FROM claimed k
	CROSS JOIN LATERAL (
		SELECT p.input FROM kagzi.workflow_payloads p WHERE p.run_id = k.run_id AND p.namespace_id = $1 OFFSET 0
	) p
	WHERE NOT k.set_back
) c ON true`

// Claim takes up to req.Limit due runs. After an error it may have taken some: see ResolveClaim.
func (s *Store) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	var claim Claim
	err := within(ctx, bulkTimeout, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(claimRuns, s.claimArgs(req)...)
		asked := time.Now()
		return exchange(ctx, s.pool, relaxed, b, func(rows pgx.Rows) (err error) {
			claim, err = readClaim(rows, req.Lease, asked)
			return err
		})
	})
	return claim, wrap("claim runs", err)
}

func (s *Store) claimArgs(req ClaimRequest) []any {
	types, priorities, versions, initial := req.pairs()
	below := allRuns
	if req.NoSuspects {
		below = noSuspects
	}
	return []any{
		s.namespace, req.Queue, types, priorities, versions, initial, req.Limit, req.Worker, req.Lease,
		micros(req.Visibility), below, req.NoInputs,
	}
}

// pairs returns the pairs for the statement: all types of the first priority, then of the next.
func (r *ClaimRequest) pairs() (types []string, priorities []int16, versions []string, initial []int32) {
	for i := range 4 {
		priority := int16(i + 1)
		if r.LowFirst {
			priority = int16(4 - i)
		}
		for _, h := range r.Types {
			types = append(types, h.Type)
			priorities = append(priorities, priority)
			versions = append(versions, strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(h.Versions)))
			initial = append(initial, int32(h.Default))
		}
	}
	return types, priorities, versions, initial
}

func readClaim(rows pgx.Rows, lease uuid.UUID, asked time.Time) (Claim, error) {
	defer rows.Close()
	claim := Claim{Asked: asked}
	for rows.Next() {
		r := &ClaimedRun{Lease: lease}
		var until *time.Time
		var typ, external *string
		var version, attempts, recoveries, unread *int
		var wakeups *int64
		var fresh, cancelling *bool
		if err := rows.Scan(utc(&claim.Now), utc(&claim.Next), uuidTo(&r.RunID), &typ, &version, &external, &attempts, &recoveries, utc(&r.RecoveriesSince), &unread, &wakeups, &cancelling,
			&r.RetryPolicy, utc(&r.DeadlineAt), uuidTo(&r.ParentRunID), utc(&r.FireAt), utc(&r.StartedAt), &until, &fresh, &r.Input); err != nil {
			return Claim{}, err
		}
		if r.RunID == uuid.Nil {
			continue
		}
		r.Type, r.Version, r.ExternalID = *typ, *version, deref(external)
		r.Attempts, r.Recoveries, r.Wakeups = *attempts, *recoveries, *wakeups
		r.Fresh = *fresh
		r.CancelRequested, r.LoadFailures = deref(cancelling), deref(unread)
		r.Term = termOf(asked, claim.Now, deref(until))
		claim.Runs = append(claim.Runs, r)
	}
	return claim, rows.Err()
}

// The claim moved the rows to a known part of its index: they are due within one lease timeout, or somewhat later if the
// database's clock was set back since.
const claimedUnder = `
SELECT now(), NULL::timestamptz, r.run_id, r.workflow_type, r.version, r.external_id, r.attempts, r.recoveries, r.recoveries_since, r.load_failures, r.wakeups, r.cancel_requested_at IS NOT NULL,
	r.retry_policy, r.deadline_at, r.parent_run_id, r.fire_at, r.started_at, r.available_at, false, NULL::bytea
FROM unnest($3::text[], $4::smallint[]) AS w (workflow_type, priority)
CROSS JOIN LATERAL (
	SELECT q.run_id, q.workflow_type, q.version, q.external_id, q.attempts, q.recoveries, q.recoveries_since, q.load_failures, q.wakeups, q.cancel_requested_at,
		q.retry_policy, q.deadline_at, q.parent_run_id, q.fire_at, q.started_at, q.available_at
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
		AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND q.available_at > now()
		AND q.available_at <= now() + 2 * $6::bigint * interval '1 microsecond'
		AND q.lease = $5 AND q.status = 'RUNNING'
	ORDER BY q.available_at
) r`

// ResolveClaim returns the runs that were taken by a claim whose answer was lost, without their inputs. It cannot tell which
// were fresh.
func (s *Store) ResolveClaim(ctx context.Context, req ClaimRequest) (Claim, error) {
	types, priorities, _, _ := req.pairs()
	var claim Claim
	err := within(ctx, bulkTimeout, func(ctx context.Context) error {
		args := []any{s.namespace, req.Queue, types, priorities, req.Lease, micros(req.Visibility)}
		asked := time.Now()
		return ask(ctx, s.pool, claimedUnder, args, func(rows pgx.Rows) (err error) {
			claim, err = readClaim(rows, req.Lease, asked)
			return err
		})
	})
	return claim, wrap("look for claimed runs", err)
}
