package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Claims gives due runs to workers.
type Claims struct{ *conn }

// SuspectRecoveries is from how many recoveries on a run is a crash-loop suspect: it may kill its workers.
const SuspectRecoveries = 3

// anyRecoveries stands for a claim that leaves out no suspect.
const anyRecoveries = 1 << 30

// WorkflowVersions are the versions of one workflow that a worker can execute.
type WorkflowVersions struct {
	Type     string
	Versions []int // with a handler
	Default  int   // the version that a run without one gets
}

// A ClaimRequest says which runs a worker takes.
type ClaimRequest struct {
	Queue  string
	Types  []WorkflowVersions // in order of preference within a priority
	Limit  int
	Worker uuid.UUID
	// chosen before the call, so that Resolve finds the runs if the answer is lost: see leaseOf
	Lease        uuid.UUID
	LeaseTimeout time.Duration
	Since        map[Pair]time.Time // per pair, the runs that were due earlier are left out; nil: none are
	Ahead        time.Duration      // how far Next looks ahead at most
	// the worker sets it at times, so that low priorities do not starve: take the lowest one first
	LowFirst  bool
	NoInputs  bool         // a claim with inputs failed: leave them out, because one of them may be unreadable
	MostInput int          // larger inputs are left out; zero: none are
	Probe     bool         // find out whether keys are due
	Keys      *KeysRequest // nil: only runs without keys, of a queue without limits

	Suspects Suspects
	Without  LeftOut

	trial *trial // nil: the claim is no trial of FindRefused
}

// A LeftOut is what a claim leaves out because the database refuses it: see FindRefused.
type LeftOut struct {
	Runs      []uuid.UUID
	Consumers []string
}

// A Pair is one of the ranges of the claim's index that a claim searches, one after the other.
type Pair struct {
	Type     string
	Priority int16
}

// A ClaimedRun is a run with the data to execute it.
type ClaimedRun struct {
	Spec            // but for the Priority and the Timeout; the metadata are those of the start
	RunID           uuid.UUID
	Lease           uuid.UUID
	ExternalID      string
	Attempts        int       // failed attempts before this one
	Recoveries      int       // claims from a dead worker since the last progress, this one included
	RecoveriesSince time.Time // the first of these
	LoadFailures    int       // failures to read its history since it was last read
	Wakeups         int64     // messages and ended children so far
	CancelRequested bool      // it was cancelled: the worker has to end it as cancelled
	DeadlineAt      time.Time
	ParentRunID     uuid.UUID
	FireAt          time.Time // the tick of its schedule that it stands for
	CreatedAt       time.Time
	StartedAt       time.Time // of its epoch
	Epoch           int       // how often it has continued with another input
	DueAt           time.Time // when it became due; zero if Resolve found it
	Fresh           bool      // this is its first claim, so that it has no history
	Input           []byte    // nil if the claim left it out: Load reads it
	Term            Term

	pair    *int64 // from 1, as claimRuns returns it; nil once the claim knows how far it got
	setBack bool   // claimRuns has left it as it was: it has to wait
}

// CrashLoopSuspect reports whether the run may kill its workers.
func (r *ClaimedRun) CrashLoopSuspect() bool { return r.Recoveries >= SuspectRecoveries }

// Suspects say which crash-loop suspects a claim takes: the others have to wait for those under way.
type Suspects struct {
	Below int          // runs with as many recoveries or more are left out; zero: none are
	Joins SuspectGroup // but for those of this group
}

// args returns s for the statement.
func (s Suspects) args() []int64 {
	return []int64{
		int64(cmp.Or(s.Below, anyRecoveries)), int64(cmp.Or(s.Joins.Recoveries, anyRecoveries)), int64(s.Joins.mask()),
		int64(s.Joins.LastBits),
	}
}

// A SuspectGroup has crash-loop suspects that begin together: those with equally many recoveries whose IDs end in the
// same bits. There is one bit at SuspectRecoveries, and twice as many with each more, up to 32.
type SuspectGroup struct {
	Recoveries int // zero: no run is in the group
	LastBits   uint32
}

// GroupOf returns the group of a crash-loop suspect.
func GroupOf(run uuid.UUID, recoveries int) SuspectGroup {
	g := SuspectGroup{Recoveries: recoveries}
	g.LastBits = binary.BigEndian.Uint32(run[12:]) & g.mask()
	return g
}

func (g SuspectGroup) mask() uint32 {
	return uint32(1<<(1<<min(max(g.Recoveries-SuspectRecoveries, 0), 5)) - 1)
}

// A Claim is the answer to a ClaimRequest.
type Claim struct {
	Runs  []*ClaimedRun
	Asked time.Time // when the request was sent, by this process's clock
	Now   time.Time // by the database's clock
	// when the next run becomes due, as far as is known; zero if none does soon, or if Limit runs were taken
	Next time.Time

	Limited bool // the queue has limits: only a claim with Keys takes something from it
	Room    int  // how many more runs the limits allow now
	Keys    Keys // what the request's Keys or Probe asked for

	// Reached is how far the claim got in the pairs that it searched. It may be the Since of the next claim: that one
	// then leaves out the entries before, which may be the dead ones of all runs that were claimed while another
	// transaction holds a snapshot. The runs that it misses have become due before Reached, and were locked, or not yet
	// committed, at this claim.
	Reached map[Pair]time.Time
}

// LateCommit is how long ago a run may have become due that is only now committed, as a rule.
const LateCommit = 250 * time.Millisecond

// The statement locks due rows, at most $7 over all pairs of type and priority in the order given, makes them RUNNING,
// and returns them with their inputs. With fewer than $7, each row says when the next run is due; with none, nextDue
// does. It takes nothing from a queue that has limits: see claimLimited. A run that has to wait (set_back) is returned
// as it was: see setBackRuns. doc_claim.go explains recoveries, deadlines and dead entries of the index.
//
// The pairs come from one unnest: the planner would choose the order of a join of two. The select that locks the rows
// computes the times, and no CTE changes rows, because of Citus.
const claimRuns = `
WITH ` + pairsOfClaim + `, limits AS MATERIALIZED (
	SELECT CASE WHEN l.limited THEN 0 ELSE $7::int END AS room, NULL::smallint AS slot
	FROM (SELECT ` + isLimited + ` AS limited) l
), due AS MATERIALIZED (
	` + dueOfPairs + `
), next AS MATERIALIZED (
	SELECT CASE WHEN (SELECT count(*) FROM due) < $7 THEN ` + nextOfPairs + ` END AS available_at
)
UPDATE kagzi.workflow_runs r
SET ` + claimSet + `
FROM due CROSS JOIN next
WHERE r.namespace_id = $1 AND r.run_id = due.run_id
RETURNING due.now, false, 0, next.available_at, NULL::bigint, NULL::timestamptz,
	r.run_id, r.workflow_type, r.version, r.external_id, r.attempts, r.recoveries, r.recoveries_since, r.load_failures,
	r.wakeups, r.cancel_requested_at IS NOT NULL, r.retry_policy, r.deadline_at, r.parent_run_id, r.fire_at,
	r.created_at, coalesce(r.continued_at, r.started_at), due.since, r.available_at, r.lease, r.epoch, r.run_key,
	coalesce(r.key_scope = '', false), r.publishes, coalesce(r.first_metadata, r.metadata), r.headers,
	CASE WHEN r.load_failures = 0 AND r.recoveries < 3 AND octet_length(r.input) <= $12::bigint THEN r.input END,
	due.pair, due.set_back`

// Whether the queue $2 has limits.
const isLimited = `(SELECT count(*) FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1
		AND (c.max_running > 0 OR c.rate_interval > 0)) > 0`

// What a claim that began at $6 and has found nothing reads: whether the queue has limits, and when the next run is
// due. That may be before now.
const nextDue = `
WITH ` + clause.PausesOfRuns + `, pairs AS MATERIALIZED (
	SELECT w.workflow_type, w.priority, timestamptz 'epoch' + $6::bigint * interval '1 microsecond' AS from_time,
		now() + $5::bigint * interval '1 microsecond' AS until
	FROM unnest($3::text[], $4::smallint[]) AS w (workflow_type, priority)
	WHERE ` + unpausedPair + `
)
SELECT ` + isLimited + `, ` + nextOfPairs

// The pairs that the claim searches. The runs of a pair that is paused are not even read.
const pairsOfClaim = clause.PausesOfRuns + `, pairs AS MATERIALIZED (
	SELECT w.*, now() AS from_time, now() + $14::bigint * interval '1 microsecond' AS until
	FROM unnest($3::text[], $4::smallint[], $5::text[], $6::int[], $13::bigint[]) WITH ORDINALITY AS w (workflow_type,
		priority, versions, initial, since, pair)
	WHERE ` + unpausedPair + `
)`

// Whether the claim takes a run with so many recoveries: see Suspects.
const notLeftOut = `(recoveries < ($11::bigint[])[1] OR recoveries = ($11::bigint[])[2] AND ` +
	lastBits + ` & ($11::bigint[])[3] = ($11::bigint[])[4])`

// The last 32 bits of a run's ID.
const lastBits = `('x' || right(run_id::text, 8))::bit(32)::bigint`

// When the due run r is available again: when its lease ends, or when it is to be recovered if it is set back.
const untilAvailable = `LEAST(r.now + CASE WHEN r.set_back
			THEN LEAST(interval '1 second' * power(2::float8, LEAST(r.recoveries - 2, 20)::float8),
				interval '5 minutes')
			ELSE $10::bigint * interval '1 microsecond' END,
			CASE WHEN r.deadline_at > r.now THEN r.deadline_at + CASE WHEN r.set_back THEN interval '0'
				ELSE interval '3 seconds' END END)`

// The deadline that a run has once it is claimed: the first claim starts the time of its ExecutionTimeout.
const claimedDeadline = `LEAST(deadline_at, CASE WHEN started_at IS NULL THEN now() + execution_timeout END)
			AS deadline_at`

// Selects and locks the due runs for which limits has room.
const dueOfPairs = `(SELECT r.run_id, r.status, r.version, r.started_at, r.deadline_at, w.initial, w.pair, r.since,
	r.now, r.set_back, r.holding, (SELECT k.slot FROM limits k) AS slot,
		` + untilAvailable + ` AS available_at
	FROM pairs w
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.status, q.version, q.recoveries, q.started_at, ` + claimedDeadline + `,
			q.available_at AS since, now() AS now, q.status = 'RUNNING' AND q.recoveries + 1 >= 3 AS set_back,
			q.status = 'RUNNING' OR coalesce(q.slot = 2, false) AS holding
		FROM kagzi.workflow_runs q
		WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type
			AND q.priority = w.priority
			AND ` + clause.Claimable + ` AND q.available_at <= now()
			AND q.available_at >= timestamptz 'epoch' + w.since * interval '1 microsecond'
			AND (q.version IS NULL OR q.version = ANY (w.versions::int[]))
			AND ` + notLeftOut + ` AND q.run_id <> ALL ($15::uuid[]) AND q.outcome IS NULL
			AND ` + clause.KeyUnpaused + `
		ORDER BY q.available_at
		LIMIT (SELECT k.room FROM limits k)
		FOR UPDATE SKIP LOCKED
	) r
	LIMIT (SELECT k.room FROM limits k))`

// What a claim writes to a run r of the CTE due.
const (
	leaseOfDue = `($9::uuid[])[1 + (due.started_at IS NULL)::int + 2 * (due.version IS NULL)::int]`
	startOfDue = `version = coalesce(r.version, due.initial), started_at = coalesce(r.started_at, due.now),
		deadline_at = due.deadline_at, recoveries_since = CASE WHEN due.status = 'RUNNING' AND r.recoveries = 0
			THEN due.now ELSE r.recoveries_since END`
	countsRecovery = `due.status = 'RUNNING' AND (r.recoveries < 3 OR r.suspect_lease = r.lease)`

	// A run that has to wait stays as it was: see setBackRuns.
	claimSet = `status = 'RUNNING', locked_by = CASE WHEN due.set_back THEN r.locked_by ELSE $8::uuid END,
	lease = CASE WHEN due.set_back THEN r.lease ELSE ` + leaseOfDue + ` END,
	available_at = CASE WHEN due.set_back THEN r.available_at ELSE due.available_at END,
	` + startOfDue + `,
	recoveries = r.recoveries + CASE WHEN ` + countsRecovery + ` AND NOT due.set_back THEN 1 ELSE 0 END,
	waiting_on = CASE WHEN due.set_back THEN r.waiting_on END,
	slot = CASE WHEN r.slot = 2 OR due.status = 'RUNNING' THEN r.slot END`
)

// Makes the runs of the CTE due RUNNING.
const claimUpdate = `claimed AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE WHEN due.set_back THEN 'PENDING' ELSE 'RUNNING' END,
		locked_by = CASE WHEN due.set_back THEN NULL ELSE $8::uuid END,
		lease = CASE WHEN NOT due.set_back THEN ` + leaseOfDue + ` END, available_at = due.available_at,
		` + startOfDue + `,
		recoveries = r.recoveries + CASE WHEN ` + countsRecovery + ` THEN 1 ELSE 0 END,
		waiting_on = CASE WHEN due.set_back THEN '` + clause.Recovery + `'::jsonb END,
		slot = CASE WHEN r.slot = 2 THEN 2::smallint WHEN due.set_back THEN NULL WHEN due.slot IS NULL
			AND due.status = 'RUNNING' THEN r.slot ELSE due.slot END
	FROM due WHERE r.namespace_id = $1 AND r.run_id = due.run_id
	RETURNING r.run_id, r.workflow_type, r.version, r.external_id, r.attempts, r.recoveries, r.recoveries_since,
		r.load_failures, r.wakeups, r.cancel_requested_at IS NOT NULL AS cancelling, r.retry_policy, r.deadline_at,
		r.parent_run_id, r.fire_at, r.created_at, coalesce(r.continued_at, r.started_at) AS started_at, r.epoch,
		r.lease, due.set_back, due.since, r.available_at, r.input, r.run_key, r.key_scope, r.publishes,
		coalesce(r.first_metadata, r.metadata) AS metadata, r.headers
), ` + insertChanges + ` claimed k WHERE k.set_back AND k.run_key IS NOT NULL
)`

// When the next run of the pairs is due. It may be of a paused key: then the claim at that time takes nothing.
const nextOfPairs = `(
		SELECT min(n.available_at)
		FROM pairs w
		CROSS JOIN LATERAL (
			SELECT q.available_at
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type
				AND q.priority = w.priority
				AND ` + clause.Claimable + ` AND q.available_at > w.from_time AND q.available_at <= w.until
			ORDER BY q.available_at
			LIMIT 1
		) n
	)`

// The columns of claimed that readClaimed reads.
const claimedColumns = `c.run_id, c.workflow_type, c.version, c.external_id, c.attempts, c.recoveries,
	c.recoveries_since, c.load_failures, c.wakeups, c.cancelling, c.retry_policy, c.deadline_at, c.parent_run_id,
	c.fire_at, c.created_at, c.started_at, c.since, c.available_at, c.lease, coalesce(c.epoch, 0), c.run_key,
	coalesce(c.key_scope = '', false), coalesce(c.publishes, false), c.metadata, c.headers,
	CASE WHEN c.load_failures = 0 AND c.recoveries < 3 AND octet_length(c.input) <= $12::bigint THEN c.input END,
	NULL::bigint, false`

// Claim takes up to req.Limit due runs. After an error it returns none, and may have taken some: see Resolve.
func (s Claims) Claim(ctx context.Context, req ClaimRequest) (claim Claim, err error) {
	err = pg.Within(ctx, bulkTimeout, func(ctx context.Context) error {
		claim, err = s.claim(ctx, req)
		return err
	})
	if err != nil {
		return Claim{}, pg.Wrap("claim runs", err) // without a part of the runs, which a caller would take for all
	}
	return claim, nil
}

func (s Claims) claim(ctx context.Context, req ClaimRequest) (claim Claim, err error) {
	if req.Keys != nil {
		return s.claimKeyed(ctx, req)
	}
	b := &pgx.Batch{}
	b.Queue(claimRuns, s.claimArgs(req)...)
	var began time.Time
	asked := time.Now()
	var wait []uuid.UUID
	reads := []func(pgx.Rows) error{func(rows pgx.Rows) (err error) {
		claim, _, err = readClaim(rows, &req, asked)
		wait = req.settle(&claim)
		return err
	}}
	if req.Probe {
		b.Queue(nextKeys, s.nextKeysArgs(req)...)
		reads = append(reads, func(rows pgx.Rows) error { return claim.Keys.readNext(rows) })
	}
	mode := req.mode(pg.Relaxed)
	mode.Began = &began
	if err = pg.Exchange(ctx, s.pool, mode, b, reads...); err != nil {
		return claim, err
	}
	if claim.Now.IsZero() {
		claim.Now = began
		err = s.readNext(ctx, req, &claim)
		return claim, err
	}
	if len(wait) > 0 {
		err = s.setBack(ctx, req, &claim, wait)
	}
	return claim, err
}

// readNext completes a claim that has taken nothing.
func (s Claims) readNext(ctx context.Context, req ClaimRequest, claim *Claim) error {
	types, priorities, _, _ := req.pairs()
	b := &pgx.Batch{}
	b.Queue(nextDue, s.namespace, req.Queue, types, priorities, pg.Micros(req.Ahead), pg.Epoch(claim.Now))
	err := pg.Exchange(ctx, s.pool, req.mode(pg.Relaxed), b, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&claim.Limited, pg.UTC(&claim.Next)}, func() error { return nil })
		return err
	})
	claim.Reached = req.reached(*claim, lastClaimed{})
	return err
}

// setBack lets runs wait that the claim has found, and that may kill their workers. Until then they are due for all
// workers, so a failure does no harm. It is an error only if the claim has taken nothing else: that must not be lost.
// The next claim searches again for those that are not set back.
func (s Claims) setBack(ctx context.Context, req ClaimRequest, claim *Claim, runs []uuid.UUID) error {
	var next time.Time
	var n int
	b := &pgx.Batch{}
	b.Queue(setBackRuns, s.tryArgs(req, runs)...)
	err := pg.Exchange(ctx, s.pool, req.mode(pg.Relaxed), b, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{pg.UTC(&next), &n}, func() error { return nil })
		return err
	})
	if err != nil || n < len(runs) {
		claim.Reached = map[Pair]time.Time{}
	}
	if err != nil && len(claim.Runs) > 0 {
		claim.Next, err = claim.Now, nil
	}
	if !next.IsZero() && (claim.Next.IsZero() || next.Before(claim.Next)) {
		claim.Next = next
	}
	return err
}

// settle puts the runs in the order of the search, sets how far the claim got, and removes the runs that have to wait
// from it. It returns these.
func (r *ClaimRequest) settle(claim *Claim) (wait []uuid.UUID) {
	// Citus returns them in any order
	slices.SortStableFunc(claim.Runs, func(a, b *ClaimedRun) int {
		return cmp.Or(cmp.Compare(*a.pair, *b.pair), a.DueAt.Compare(b.DueAt))
	})
	var last lastClaimed
	full := len(claim.Runs) == r.Limit
	if n := len(claim.Runs); full && n > 0 {
		last = lastClaimed{claim.Runs[n-1].pair, claim.Runs[n-1].DueAt}
	}
	var taken []*ClaimedRun
	for _, run := range claim.Runs {
		run.pair = nil
		if run.setBack {
			wait = append(wait, run.RunID)
		} else {
			taken = append(taken, run)
		}
	}
	claim.Runs, claim.Reached = taken, r.reached(*claim, last)
	if full && len(wait) > 0 {
		claim.Next = claim.Now
	}
	return wait
}

// reads returns a function that reads the answer of claimLimited into claim.
func (r *ClaimRequest) reads(claim *Claim, asked time.Time) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		var last lastClaimed
		*claim, last, err = readClaim(rows, r, asked)
		claim.Reached = r.reached(*claim, last)
		return err
	}
}

func (s Claims) claimArgs(req ClaimRequest) []any {
	types, priorities, versions, initial := req.pairs()
	mostInput := cmp.Or(int64(req.MostInput), NoLimit)
	if req.NoInputs {
		mostInput = -1
	}
	return []any{
		s.namespace, req.Queue, types, priorities, versions, initial, req.Limit, req.Worker, array(leasesOf(req.Lease)),
		pg.Micros(req.LeaseTimeout), req.Suspects.args(), mostInput, req.sinces(types, priorities),
		pg.Micros(req.Ahead), array(req.Without.Runs),
	}
}

// consumers returns the consumers that the claim leaves out; with only it leaves out all others.
func (r *ClaimRequest) consumers() (names []string, only bool) {
	if r.trial != nil {
		return append([]string{}, r.trial.consumers...), true
	}
	return append([]string{}, r.Without.Consumers...), false
}

func (r *ClaimRequest) mode(m pg.Mode) pg.Mode {
	m.Trial = r.trial != nil
	return m
}

// lastClaimed is the last row of a claim that took as many as were asked for, or allowed. Otherwise it is zero.
type lastClaimed struct {
	pair  *int64 // from 1
	since time.Time
}

// reached returns how far the claim got. It has searched all of the pairs before that of the last row, and none of the
// pairs after it.
func (r *ClaimRequest) reached(claim Claim, last lastClaimed) map[Pair]time.Time {
	out := make(map[Pair]time.Time, 4*len(r.Types))
	if r.Keys != nil && claim.Room == 0 && last.pair == nil { // it had no room, and has searched nothing
		return out
	}
	n := int64(0)
	for _, priority := range r.priorities() {
		for _, h := range r.Types {
			n++
			pair := Pair{h.Type, priority}
			out[pair] = claim.Now.Add(-LateCommit)
			if last.pair != nil && *last.pair == n {
				if last.since.Before(out[pair]) {
					out[pair] = last.since
				}
				return out
			}
		}
	}
	return out
}

// Pairs returns the pairs that the claim searches, in its order: all types with the first priority, then all with the
// next.
func (r *ClaimRequest) Pairs() (pairs []Pair) {
	for _, priority := range r.priorities() {
		for _, h := range r.Types {
			pairs = append(pairs, Pair{h.Type, priority})
		}
	}
	return pairs
}

// pairs returns the pairs for the statement.
func (r *ClaimRequest) pairs() (types []string, priorities []int16, versions []string, initial []int32) {
	for _, priority := range r.priorities() {
		for _, h := range r.Types {
			types = append(types, h.Type)
			priorities = append(priorities, priority)
			versions = append(versions, strings.NewReplacer("[", "{", "]", "}", " ", ",").
				Replace(fmt.Sprint(h.Versions)))
			initial = append(initial, int32(h.Default))
		}
	}
	return types, priorities, versions, initial
}

// sinces returns Since of the pairs for the statement.
func (r *ClaimRequest) sinces(types []string, priorities []int16) []int64 {
	out := make([]int64, len(types))
	for i := range out {
		out[i] = pg.Epoch(r.Since[Pair{types[i], priorities[i]}])
	}
	return out
}

func (r *ClaimRequest) priorities() []int16 {
	if r.LowFirst {
		return []int16{4, 3, 2, 1}
	}
	return []int16{1, 2, 3, 4}
}

func readClaim(rows pgx.Rows, req *ClaimRequest, asked time.Time) (claim Claim, last lastClaimed, err error) {
	claim.Asked = asked
	claim.Runs, err = readClaimed(rows, req, asked, &claim.Now, &claim.Limited, &claim.Room,
		pg.UTC(&claim.Next), &last.pair, pg.UTC(&last.since))
	return claim, last, err
}

// readClaimed reads rows of now, the columns for head, and claimedColumns.
func readClaimed(rows pgx.Rows, req *ClaimRequest, asked time.Time, now *time.Time,
	head ...any,
) (runs []*ClaimedRun, err error) {
	defer rows.Close()
	for rows.Next() {
		r := &ClaimedRun{Spec: Spec{Queue: req.Queue}}
		var until *time.Time
		var typ, external, key *string
		var version, attempts, recoveries, loadFailures *int
		var wakeups *int64
		var cancelling *bool
		if err := rows.Scan(append(append([]any{pg.UTC(now)}, head...), pg.UUIDTo(&r.RunID), &typ, &version, &external,
			&attempts, &recoveries, pg.UTC(&r.RecoveriesSince), &loadFailures, &wakeups, &cancelling,
			&r.RetryPolicy, pg.UTC(&r.DeadlineAt), pg.UUIDTo(&r.ParentRunID), pg.UTC(&r.FireAt), pg.UTC(&r.CreatedAt),
			pg.UTC(&r.StartedAt), pg.UTC(&r.DueAt), &until, pg.UUIDTo(&r.Lease), &r.Epoch, &key, &r.Key.Group,
			&r.Publishes, &r.Metadata, &r.Headers, &r.Input, &r.pair, &r.setBack)...); err != nil {
			return nil, err
		}
		if r.RunID == uuid.Nil {
			continue
		}
		r.Type, r.Version, r.ExternalID, r.Key.Name = *typ, *version, pg.Deref(external), pg.Deref(key)
		r.Attempts, r.Recoveries, r.Wakeups = *attempts, *recoveries, *wakeups
		r.Fresh = isFirst(r.Lease)
		r.CancelRequested, r.LoadFailures = pg.Deref(cancelling), pg.Deref(loadFailures)
		r.Term = termOf(asked, *now, pg.Deref(until)).within(req.LeaseTimeout)
		runs = append(runs, r)
	}
	return runs, rows.Err()
}

// The claimed rows are in a known part of the claim's index: their leases end within one lease timeout, or somewhat
// later if the database's clock was set back since. Two timeouts cover both.
const runsOfClaim = `
SELECT now(), false, 0, NULL::timestamptz, NULL::bigint, NULL::timestamptz, r.run_id, r.workflow_type, r.version,
	r.external_id, r.attempts, r.recoveries, r.recoveries_since, r.load_failures, r.wakeups,
	r.cancel_requested_at IS NOT NULL, r.retry_policy, r.deadline_at, r.parent_run_id, r.fire_at, r.created_at,
		coalesce(r.continued_at, r.started_at), NULL::timestamptz, r.available_at, r.lease, r.epoch, r.run_key,
		coalesce(r.key_scope = '', false), r.publishes,
		coalesce(r.first_metadata, r.metadata), r.headers, NULL::bytea, NULL::bigint, false
FROM unnest($3::text[], $4::smallint[]) AS w (workflow_type, priority)
CROSS JOIN LATERAL (
	SELECT q.run_id, q.workflow_type, q.version, q.external_id, q.attempts, q.recoveries, q.recoveries_since,
		q.load_failures, q.wakeups, q.cancel_requested_at,
		q.retry_policy, q.deadline_at, q.parent_run_id, q.fire_at, q.created_at, q.started_at, q.continued_at, q.epoch,
			q.available_at, q.lease, q.run_key, q.key_scope, q.publishes, q.first_metadata, q.metadata, q.headers
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
		AND ` + clause.Claimable + ` AND q.available_at > now()
		AND q.available_at <= now() + 2 * $6::bigint * interval '1 microsecond'
		AND q.lease = ANY ($5::uuid[]) AND q.status = 'RUNNING'
	ORDER BY q.available_at
) r`

// Resolve returns the runs that a claim took whose answer was lost, without their inputs.
func (s Claims) Resolve(ctx context.Context, req ClaimRequest) (Claim, error) {
	types, priorities, _, _ := req.pairs()
	var claim Claim
	err := pg.Within(ctx, bulkTimeout, func(ctx context.Context) error {
		args := []any{
			s.namespace, req.Queue, types, priorities, array(leasesOf(req.Lease)),
			pg.Micros(req.LeaseTimeout),
		}
		asked := time.Now()
		return pg.Ask(ctx, s.pool, runsOfClaim, args, func(rows pgx.Rows) (err error) {
			claim, _, err = readClaim(rows, &req, asked)
			return err
		})
	})
	if err != nil {
		// without a part of the runs: the caller would not look for the others
		return Claim{}, pg.Wrap("find claimed runs", err)
	}
	return claim, nil
}
