package store

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// FirstPosition returns the position before those of an epoch's records. Positions grow from epoch to epoch.
func FirstPosition(epoch int) int64 { return int64(epoch) << 32 }

// Leaves of u the runs whose continuations this transaction, or an earlier flush of the same, has written.
const ofContinued = `CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'PENDING'
			AND q.epoch = u.epoch + 1
		OFFSET 0
	) r`

const continuedRuns = `unnest($2::uuid[], $3::uuid[], $4::int[]) AS u (run_id, lease, epoch)
	` + ofContinued

// An earlier statement has suspended the runs. The code of the next epoch sees the metadata as they are now.
const continueRuns = `
WITH ended AS MATERIALIZED (
	SELECT u.*, clock_timestamp() AS now, NULLIF(u.timeout, 0) * interval '1 microsecond' AS lasts,
		now() + NULLIF(u.timeout, 0) * interval '1 microsecond' AS deadline_at
	FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::bytea[], $6::int[], $7::bigint[])
		AS u (run_id, lease, epoch, input, version, timeout)
)
UPDATE kagzi.workflow_runs r
SET epoch = ended.epoch + 1, continued_at = ended.now, input = ended.input, version = NULLIF(ended.version, 0),
	attempts = 0, recoveries = 0, recoveries_since = NULL, first_metadata = NULL,
	timeout = coalesce(ended.lasts, r.timeout),
	deadline_at = coalesce(ended.deadline_at, r.deadline_at),
	error_kind = CASE WHEN r.cancel_requested_at IS NOT NULL THEN r.error_kind END,
	error = CASE WHEN r.cancel_requested_at IS NOT NULL THEN r.error END
FROM ended
WHERE r.run_id = ended.run_id AND r.namespace_id = $1 AND r.lease = ended.lease AND r.status = 'PENDING'
	AND r.epoch = ended.epoch`

// The records of the epoch before the one that ends. Answers stay for those who ask again.
const deleteBefore = `
DELETE FROM kagzi.step_runs k
USING (
	SELECT s.*
	FROM ` + continuedRuns + `
	CROSS JOIN LATERAL (
		SELECT s.run_id, s.step_id, s.attempt_number
		FROM kagzi.step_runs s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id >= E'\x01' || (u.epoch - 1)::text || '/'
			AND s.step_id < E'\x01' || (u.epoch - 1)::text || '0' AND s.step_kind <> 'REPLY'
			AND NOT (s.status = 'RUNNING' AND s.error_kind IS NOT NULL)
		OFFSET 0
	) s
	OFFSET 0
) s
WHERE ` + thatRecord

const thatRecord = `k.run_id = s.run_id AND k.step_id = s.step_id AND k.attempt_number = s.attempt_number
	AND k.namespace_id = $1`

// From now on a mark and the number of their epoch precede the IDs of its records.
const keepPast = `
UPDATE kagzi.step_runs k
SET step_id = E'\x01' || s.epoch::text || '/' || k.step_id
FROM (
	SELECT s.*, u.epoch
	FROM ` + continuedRuns + `
	CROSS JOIN LATERAL (
		SELECT s.run_id, s.step_id, s.attempt_number
		FROM kagzi.step_runs s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND ` + clause.OwnEpoch + ` AND s.step_kind <> 'VALUE'
		OFFSET 0
	) s
	OFFSET 0
) s
WHERE ` + thatRecord

// The records of the values of the runs. place counts those of one value, from the last change on. kept is the ID under
// which that stays.
const continuedValues = `(
	SELECT s.*
	FROM ` + continuedRuns + `
	CROSS JOIN LATERAL (
		SELECT v.*, row_number() OVER (PARTITION BY v.kept ORDER BY v.position DESC) AS place
		FROM (
			SELECT s.run_id, s.step_id, s.attempt_number, s.position,
				E'\x01/' || substring(s.step_id FROM '#value:[^/]*$') AS kept
			FROM kagzi.step_runs s
			WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_kind = 'VALUE'
			OFFSET 0
		) v
	) s
	OFFSET 0
) s`

// The waits for events that its records have not ended.
const leaveWaits = `
DELETE FROM kagzi.event_waits k
USING (
	SELECT s.*
	FROM ` + continuedRuns + `
	CROSS JOIN LATERAL (
		SELECT s.topic, s.event_id, s.run_id, s.step_hash
		FROM kagzi.event_waits s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1
		OFFSET 0
	) s
	OFFSET 0
) s
WHERE k.topic = s.topic AND k.event_id = s.event_id AND k.run_id = s.run_id AND k.step_hash = s.step_hash
	AND k.namespace_id = $1`

// The answers and events that its records have not read: no step of a later epoch has their names.
const dropAnswers = `
DELETE FROM kagzi.signals k
USING (
	SELECT s.*
	FROM ` + continuedRuns + `
	CROSS JOIN LATERAL (
		SELECT s.run_id, s.name, s.sequence
		FROM kagzi.signals s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.name >= '##' AND s.name < '#$'
			AND s.consumed_by IS NULL
		OFFSET 0
	) s
	OFFSET 0
) s
WHERE k.run_id = s.run_id AND k.name = s.name AND k.sequence = s.sequence AND k.namespace_id = $1`

const deleteValues = `
DELETE FROM kagzi.step_runs k
USING ` + continuedValues + `
WHERE s.place > 1 AND ` + thatRecord

const keepValues = `
UPDATE kagzi.step_runs k
SET step_id = s.kept
FROM ` + continuedValues + `
WHERE s.step_id <> s.kept AND ` + thatRecord

const reopenRequests = `
UPDATE kagzi.signals g
SET consumed_by = NULL, consumed_at = NULL
FROM (
	SELECT u.run_id, u.name, u.sequence
	FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::bigint[])
		AS u (run_id, lease, epoch, name, sequence)
	` + ofContinued + `
	CROSS JOIN LATERAL (
		SELECT count(*) AS answers
		FROM kagzi.step_runs s
		WHERE s.run_id = u.run_id AND s.sequence = u.sequence AND s.step_kind = 'REPLY' AND s.namespace_id = $1
		OFFSET 0
	) a
	WHERE a.answers = 0
	OFFSET 0
) c
WHERE g.run_id = c.run_id AND g.name = c.name AND g.sequence = c.sequence AND g.namespace_id = $1`

// endedEpochs are the columns by which a statement finds the runs of continuations.
func endedEpochs[T any](of func(T) *Suspension) columns[T] {
	return columns[T]{
		uuids("run_id", func(t T) uuid.UUID { return of(t).RunID }),
		uuids("lease", func(t T) uuid.UUID { return of(t).Lease }),
		ints("epoch", func(t T) int { return of(t).Next.Epoch }),
	}
}

func itself(p *Suspension) *Suspension { return p }

var (
	continueColumns = columnsOf(continueRuns, append(endedEpochs(itself),
		byteas("input", func(p *Suspension) []byte { return p.Next.Input }),
		ints("version", func(p *Suspension) int { return p.Next.Version }),
		bigints("timeout", func(p *Suspension) int64 { return pg.Micros(p.Next.Timeout) }),
	)...)
	deleteBeforeColumns = columnsOf(deleteBefore, endedEpochs(itself)...)
	keepPastColumns     = columnsOf(keepPast, endedEpochs(itself)...)
	deleteValuesColumns = columnsOf(deleteValues, endedEpochs(itself)...)
	leaveWaitsColumns   = columnsOf(leaveWaits, endedEpochs(itself)...)
	dropAnswersColumns  = columnsOf(dropAnswers, endedEpochs(itself)...)
	keepValuesColumns   = columnsOf(keepValues, endedEpochs(itself)...)
	reopenColumns       = columnsOf(reopenRequests, append(endedEpochs(func(r reopened) *Suspension { return r.by }),
		texts("name", func(r reopened) string { return r.Name }),
		bigints("sequence", func(r reopened) int64 { return r.Sequence }),
	)...)
)

// A reopened is a request that a continuation reopens.
type reopened struct {
	ReopenRequest
	by *Suspension
}

// splitContinued returns those of the suspensions that continue their runs, and the requests that these reopen.
func splitContinued(suspensions []*Suspension) (ended []*Suspension, requests []reopened) {
	ended, _ = part(suspensions, func(p *Suspension) bool { return p.Next != nil })
	for _, p := range ended {
		for _, r := range p.Next.Reopens {
			requests = append(requests, reopened{r, p})
		}
	}
	return ended, requests
}
