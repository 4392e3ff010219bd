package store

import (
	"encoding/json"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/waits"
)

// A Suspension ends the execution of a run, but not the run. The run sleeps, waits for its next attempt, or is yielded
// to other workers. It becomes due at the earlier of Wake and WakeAt. If it has neither, no time makes it due.
type Suspension struct {
	RunID     uuid.UUID
	Lease     uuid.UUID
	Status    string        // Sleeping or Pending
	Wake      time.Duration // counted from the write; negative for none
	WakeAt    time.Time     // as a record returned it
	Seen      int64         // the wake-ups that this execution has seen
	Need      int           // how many more wake-ups make a sleeping run due; zero: no number does
	NotBefore bool          // not due earlier, even if a cancel is pending or its deadline passes
	WaitingOn waits.List
	Failed    *FailedAttempt // this was an attempt of the run, and it failed; nil: it was none, or goes on
	History   HistoryRead
	Next      *Continuation // the run begins again with it; nil: it goes on

	Unbegun bool // nothing has been executed since the claim: the run gives up what the claim gave it, see leaseOf

	Outcome     Outcome
	AvailableAt time.Time // once Done, when the run becomes due; zero if that is unknown, or never
}

// A FailedAttempt is an attempt of a run that failed, and that another attempt follows.
type FailedAttempt struct {
	ErrorKind string
	Error     string
	Forget    []string // the steps whose failures the next attempt forgets
}

// A Continuation begins a run again, as the same run: with a new input, and without its history. It goes with a
// Suspension. See doc_continue.go.
type Continuation struct {
	Epoch   int // that ends
	Input   []byte
	Version int             // zero: that of the worker which claims the run next
	Timeout time.Duration   // of the run, from now; zero: its deadline stays
	Reopens []ReopenRequest // that were taken and have no answer
	Records int             // of the epoch, about: the write of the continuation writes each of them again
}

// A ReopenRequest is a request that the next epoch reads again.
type ReopenRequest struct {
	Name     string // as it is stored
	Sequence int64
}

// failed returns the failed attempt, the zero value if there is none.
func (p *Suspension) failed() (f FailedAttempt) {
	if p.Failed != nil {
		f = *p.Failed
	}
	return f
}

func (p *Suspension) head() head {
	return head{run: p.RunID, lease: p.Lease, outcome: &p.Outcome, forget: p.failed().Forget}
}

// A HistoryRead says whether the execution could read the run's history.
type HistoryRead int

const (
	HistoryUntried HistoryRead = -1 // the execution did not try to read it
	HistoryIsRead  HistoryRead = 0  // it was read, or is empty: earlier failures to read it no longer count
	HistoryFailed  HistoryRead = 1  // it could not be read
)

// If `awaited` wake-ups have arrived, the run is due now. The lease stays in the row, so that resolve can distinguish a
// lost answer from a lost lease. The error of a pending cancel stays, too.
const suspendRuns = `
WITH locked AS MATERIALIZED (
	SELECT r.run_id, now() AS now, u.status, u.awaited, u.not_before, u.waiting_on, u.failed, u.failed
		AND r.cancel_requested_at IS NULL AS explains, u.error_kind, u.error, u.unread, u.unstarted, u.unversioned,
		LEAST(CASE WHEN u.wake >= 0 THEN now() + u.wake * interval '1 microsecond' ELSE 'infinity' END,
			CASE WHEN u.wake_at > 0 THEN timestamptz 'epoch' + u.wake_at * interval '1 microsecond' ELSE 'infinity' END)
				AS wake_at,
		u.status = 'SLEEPING' AND r.wakeups >= u.awaited OR r.cancel_requested_at IS NOT NULL
			AND NOT u.not_before AS due
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bool[],
		$10::text[], $11::text[], $12::bool[], $13::int[], $14::bool[], $15::bool[])
		AS u (run_id, lease, status, wake, wake_at, awaited, waiting_on, failed, error_kind, error, not_before, unread,
			unstarted, unversioned)
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.wakeups, q.cancel_requested_at
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'
		FOR UPDATE
	) r
)
UPDATE kagzi.workflow_runs r
SET status = locked.status,
	available_at = LEAST(CASE WHEN locked.due THEN locked.now ELSE locked.wake_at END, CASE WHEN NOT locked.not_before
		THEN r.deadline_at END),
	wakeups_awaited = locked.awaited,
	locked_by = NULL,
	waiting_on = NULLIF(locked.waiting_on, '')::jsonb,
	started_at = CASE WHEN NOT locked.unstarted THEN r.started_at END,
	version = CASE WHEN NOT locked.unversioned THEN r.version END,
	attempts = r.attempts + CASE WHEN locked.failed THEN 1 ELSE 0 END,
	load_failures = CASE WHEN locked.unread = 0 THEN 0 ELSE r.load_failures + GREATEST(locked.unread, 0) END,
	error_kind = CASE WHEN locked.explains THEN locked.error_kind ELSE r.error_kind END,
	error = CASE WHEN locked.explains THEN locked.error ELSE r.error END
FROM locked
WHERE r.run_id = locked.run_id AND r.namespace_id = $1
RETURNING r.run_id, NULLIF(r.available_at, 'infinity')`

var suspendColumns = columnsOf(suspendRuns,
	uuids("run_id", func(p *Suspension) uuid.UUID { return p.RunID }),
	uuids("lease", func(p *Suspension) uuid.UUID { return p.Lease }),
	texts("status", func(p *Suspension) string { return p.Status }),
	bigints("wake", func(p *Suspension) int64 { return wakeIn(p.Wake) }),
	bigints("wake_at", func(p *Suspension) int64 { return pg.Epoch(p.WakeAt) }),
	bigints("awaited", (*Suspension).awaited),
	texts("waiting_on", func(p *Suspension) string { return waitsJSON(p.WaitingOn) }),
	bools("failed", func(p *Suspension) bool { return p.Failed != nil }),
	texts("error_kind", func(p *Suspension) string { return p.failed().ErrorKind }),
	texts("error", func(p *Suspension) string { return p.failed().Error }),
	bools("not_before", func(p *Suspension) bool { return p.NotBefore }),
	ints("unread", func(p *Suspension) int { return int(p.History) }),
	bools("unstarted", func(p *Suspension) bool { return p.Unbegun && isFirst(p.Lease) }),
	bools("unversioned", func(p *Suspension) bool { return p.Unbegun && gaveVersion(p.Lease) }),
)

// waitsJSON is what the table has of a run's waits; "" if it waits for nothing.
func waitsJSON(l waits.List) string {
	if l == nil {
		return ""
	}
	raw, _ := json.Marshal(l) // no value of these types fails
	return string(raw)
}

// awaited is the number of wake-ups at which the run becomes due.
func (p *Suspension) awaited() int64 {
	if p.Need == 0 {
		return math.MaxInt64
	}
	return p.Seen + int64(p.Need)
}

// readSuspended marks the suspensions that the statement wrote, which are sorted by run, and fills in when the runs
// become due.
func readSuspended(suspensions []*Suspension) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id uuid.UUID
		var available time.Time
		_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&id), pg.UTC(&available)}, func() error {
			if p, ok := ofRun(suspensions, id); ok {
				p.Outcome, p.AvailableAt = Done, available
			}
			return nil
		})
		return err
	}
}
