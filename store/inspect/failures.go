package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/waits"
)

const (
	maxKinds = 50 // kinds of failures that are read: users have kinds of their own
	// failures of one kind that are counted; fewer if there are more than four kinds, but a tenth at least
	maxFailedCounted = 1000
)

// A FailureCount counts the runs of one workflow in one queue that have failed with one kind.
type FailureCount struct {
	Queue string
	Type  string
	Kind  string
	Count int
	More  bool // there may be more of the kind than were counted
	Last  time.Time
}

// The kinds of failures are found by one search for each. The budget says how many of each are read.
const kindsOfFailures = `kinds (kind) AS (
	(
		SELECT r.error_kind
		FROM kagzi.workflow_runs r
		WHERE r.namespace_id = $1 AND r.status = 'FAILED' AND r.finished_at IS NOT NULL AND r.error_kind > ''
		ORDER BY r.error_kind
		LIMIT 1
	)
	UNION ALL
	SELECT n.error_kind
	FROM kinds
	CROSS JOIN LATERAL (
		SELECT r.error_kind
		FROM kagzi.workflow_runs r
		WHERE r.namespace_id = $1 AND r.status = 'FAILED' AND r.finished_at IS NOT NULL AND r.error_kind > kinds.kind
		ORDER BY r.error_kind
		LIMIT 1
	) n
), budget AS MATERIALIZED (
	SELECT l.kind, now() - $2::bigint * interval '1 microsecond' AS since,
		LEAST($4::bigint, GREATEST($4::bigint / 10, 4 * $4::bigint / count(*) OVER ())) AS most
	FROM (SELECT kinds.kind FROM kinds LIMIT $3) l
)`

const recentFailures = `
WITH RECURSIVE ` + kindsOfFailures + `
SELECT f.task_queue, f.workflow_type, budget.kind, count(*), bool_or(f.place = budget.most), max(f.finished_at)
FROM budget
CROSS JOIN LATERAL (
	SELECT q.task_queue, q.workflow_type, q.finished_at, row_number() OVER () AS place
	FROM (
		SELECT r.task_queue, r.workflow_type, r.finished_at
		FROM kagzi.workflow_runs r
		WHERE r.namespace_id = $1 AND r.status = 'FAILED' AND r.error_kind = budget.kind
			AND r.finished_at > budget.since
		ORDER BY r.finished_at DESC
		LIMIT budget.most
	) q
) f
GROUP BY 1, 2, 3
ORDER BY 4 DESC, 3, 2, 1`

// RecentFailures counts the runs that failed within the time recent by queue, workflow and kind, the most frequent
// first. Of each kind it counts the last thousand, or fewer if there are many kinds.
func (s *Health) RecentFailures(ctx context.Context, db pg.DB, recent time.Duration) (out []FailureCount, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, recentFailures, []any{s.namespace, pg.Micros(recent), maxKinds, maxFailedCounted},
			readFailures(&out))
	})
	return out, pg.Wrap("count failures", err)
}

// readFailures returns a function that reads the rows of recentFailures into out.
func readFailures(out *[]FailureCount) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*out = nil
		more := map[string]bool{}
		var f FailureCount
		_, err := pgx.ForEachRow(rows, []any{&f.Queue, &f.Type, &f.Kind, &f.Count, &f.More, pg.UTC(&f.Last)},
			func() error {
				*out, more[f.Kind] = append(*out, f), more[f.Kind] || f.More
				return nil
			})
		for i := range *out {
			(*out)[i].More = more[(*out)[i].Kind]
		}
		return err
	}
}

// A FailedRun is a run that has failed.
type FailedRun struct {
	RunID   uuid.UUID
	Type    string
	Kind    string
	Error   string // its beginning
	EndedAt time.Time
	Ago     time.Duration // since then, by the database's clock
	More    bool          // it is the last one of its kind that was read: there may be more
}

const failedRuns = `
WITH RECURSIVE ` + kindsOfFailures + `
SELECT f.run_id, f.workflow_type, budget.kind, f.error, f.finished_at,
	(extract(epoch FROM now() - f.finished_at) * 1000000)::bigint, f.place = budget.most
FROM budget
CROSS JOIN LATERAL (
	SELECT q.*, row_number() OVER () AS place
	FROM (
		SELECT r.run_id, r.workflow_type, left(coalesce(r.error, ''), 1000) AS error, r.finished_at
		FROM kagzi.workflow_runs r
		WHERE r.namespace_id = $1 AND r.status = 'FAILED' AND r.error_kind = budget.kind
			AND r.finished_at > budget.since
		ORDER BY r.finished_at DESC
		LIMIT budget.most
	) q
) f
ORDER BY f.finished_at DESC, f.run_id DESC`

// FailedRuns returns the runs that failed within the time recent, the newest failures first. Of each kind it reads the
// last thousand, or fewer if there are many kinds.
func (s *Health) FailedRuns(ctx context.Context, recent time.Duration) (out []FailedRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, s.pool, failedRuns, []any{s.namespace, pg.Micros(recent), maxKinds, maxFailedCounted},
			pg.Collect(&out, func(row pgx.CollectableRow) (r FailedRun, err error) {
				var ago int64
				err = row.Scan(&r.RunID, &r.Type, &r.Kind, &r.Error, pg.UTC(&r.EndedAt), &ago, &r.More)
				r.Ago = time.Duration(ago) * time.Microsecond
				return r, err
			}))
	})
	return out, pg.Wrap("find failed runs", err)
}

// A worker that lived longer counts with its average.
const recentEnds = `
SELECT coalesce(sum((w.completed_count + w.failed_count) * w.part), 0)::bigint, coalesce(sum(w.failed_count * w.part),
	0)::bigint
FROM (
	SELECT v.completed_count, v.failed_count,
		CASE WHEN v.started_at >= v.since THEN 1 ELSE extract(epoch FROM v.heartbeat_at - v.since) / extract(epoch
			FROM v.heartbeat_at - v.started_at) END AS part
	FROM (
		SELECT u.completed_count, u.failed_count, u.heartbeat_at, u.started_at,
			now() - $2::bigint * interval '1 microsecond' AS since
		FROM kagzi.workers u
		WHERE u.namespace_id = $1
	) v
	WHERE v.heartbeat_at > v.since
) w`

// RecentEnds estimates from the counters in the registry how many runs ended within the time recent, and how many of
// these failed.
func (s *Health) RecentEnds(ctx context.Context, db pg.DB, recent time.Duration) (ended, failed int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.AskRow(ctx, db, recentEnds, []any{s.namespace, pg.Micros(recent)}, &ended, &failed)
	})
	return ended, failed, pg.Wrap("count ends", err)
}

// An UncompensatedRun is a run that has failed because a compensation failed for good.
type UncompensatedRun struct {
	RunID uuid.UUID
	Type  string
	Step  string // one of the compensations that failed
}

// A run may also fail with this kind because of a child, or because its code declares a kind of the same name. So the
// statement looks for the failed compensation.
const uncompensatedRuns = `
SELECT r.run_id, r.workflow_type, s.step_id
FROM (
	SELECT q.run_id, q.workflow_type, q.finished_at
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.status = 'FAILED' AND q.error_kind = 'compensation' AND q.finished_at IS NOT NULL
	ORDER BY q.finished_at DESC
	LIMIT $2
) r
CROSS JOIN LATERAL (
	SELECT c.step_id
	FROM kagzi.step_runs c
	WHERE c.run_id = r.run_id AND c.namespace_id = $1 AND c.step_kind = 'COMPENSATION' AND c.status = 'FAILED'
	ORDER BY c.step_id
	LIMIT 1
) s
ORDER BY r.finished_at DESC`

// UncompensatedRuns returns the runs of which a compensation failed for good, the newest failures first. It looks at
// limit runs that failed with this kind.
func (s *Health) UncompensatedRuns(ctx context.Context, db pg.DB, limit int) (out []UncompensatedRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, uncompensatedRuns, []any{s.namespace, limit},
			pg.Collect(&out, pgx.RowToStructByPos[UncompensatedRun]))
	})
	return out, pg.Wrap("find failed compensations", err)
}

// Compensate writes the refusals.
const refusedCompensations = `
SELECT r.run_id, r.workflow_type, r.waiting_on
FROM kagzi.workflow_runs r
WHERE r.namespace_id = $1 AND r.outcome IS NOT NULL AND r.finished_at IS NULL AND r.available_at < 'infinity'
	AND r.waiting_on -> 0 ->> 'refused' IS NOT NULL
ORDER BY r.available_at
LIMIT $2`

// A RefusedCompensation is a run whose next compensation, or whose end after them, the server refuses.
type RefusedCompensation struct {
	RunID     uuid.UUID
	Type      string
	WaitingOn waits.List
}

// RefusedCompensations returns up to limit runs whose compensations do not go on because the server refuses that.
func (s *Health) RefusedCompensations(ctx context.Context, db pg.DB, limit int) (out []RefusedCompensation, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, refusedCompensations, []any{s.namespace, limit},
			pg.Collect(&out, pgx.RowToStructByPos[RefusedCompensation]))
	})
	return out, pg.Wrap("find refused compensations", err)
}
