package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// An ActiveWork counts the active runs of one version of a workflow in one queue.
type ActiveWork struct {
	Queue   string
	Type    string
	Version int // zero: the runs have no version yet
	Count   int // of the runs that were read
	// reading stopped at the limit for one priority: there may be more runs, of this or another version
	More   bool
	Oldest time.Time // when the oldest run was created
	DueAt  time.Time // when the first run is due; zero if no time makes one due
}

// The claim's index does not have the version, so the statement reads the rows, the first due ones first.
const activeWork = `
SELECT w.task_queue, w.workflow_type, coalesce(d.version, 0), d.runs, d.oldest, d.due, d.counted
FROM unnest($2::text[], $3::text[]) AS w (task_queue, workflow_type)
CROSS JOIN LATERAL (
	SELECT k.version, count(*) AS runs, min(k.created_at) AS oldest, max(k.place) AS counted,
		min(k.available_at) FILTER (WHERE k.available_at < 'infinity') AS due
	FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT q.version, q.created_at, q.available_at, row_number() OVER () AS place
		FROM (
			SELECT q.version, q.created_at, q.available_at
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
				AND q.priority = p.priority
				AND ` + clause.Claimable + `
			ORDER BY q.available_at
			LIMIT $4
		) q
	) k
	GROUP BY k.version
) d
ORDER BY 1, 2, 3`

// The runs that wait for a slot of their key are in another index, which has neither their queue nor their workflow. So
// the statement reads the first runs of each key. It finds each key by one search.
const activeKeyed = `
WITH RECURSIVE ` + clause.WaitingScopes + `, keys AS MATERIALIZED (
	SELECT s.key_scope, t.run_key
	FROM scopes s
	CROSS JOIN LATERAL ` + waitingKeys + `
	) t
	LIMIT $2
), budget AS MATERIALIZED (
	SELECT count(*) = $2 AS cut, GREATEST($3::bigint, LEAST($4::bigint, $5::bigint / GREATEST(count(*), 1))) AS most
		FROM keys
)
SELECT d.task_queue, d.workflow_type, coalesce(d.version, 0), count(*), min(d.created_at),
	min(d.available_at) FILTER (WHERE d.available_at < 'infinity'),
	bool_or(d.place = budget.most OR budget.cut)
FROM budget
CROSS JOIN keys
CROSS JOIN generate_series(1, 4) AS p (priority)
CROSS JOIN LATERAL (
	SELECT q.*, row_number() OVER () AS place
	FROM (
		SELECT x.task_queue, x.workflow_type, x.version, x.created_at, x.available_at
		FROM kagzi.workflow_runs x
		WHERE x.key_scope = keys.key_scope AND x.namespace_id = $1 AND x.run_key = keys.run_key
			AND x.priority = p.priority
			AND ` + clause.Waits + `
		ORDER BY x.available_at
		LIMIT (SELECT budget.most FROM budget)
	) q
) d
GROUP BY 1, 2, 3`

// The keys of a scope s that have waiting runs.
const waitingKeys = `(
		WITH RECURSIVE of_scope (run_key) AS (
			(
				SELECT r.run_key
				FROM kagzi.workflow_runs r
				WHERE ` + clause.Waits + ` AND r.key_scope = s.key_scope AND r.namespace_id = $1 AND r.run_key > ''
				ORDER BY r.run_key
				LIMIT 1
			)
			UNION ALL
			SELECT n.run_key
			FROM of_scope
			CROSS JOIN LATERAL (
				SELECT r.run_key
				FROM kagzi.workflow_runs r
				WHERE ` +
	clause.Waits + ` AND r.key_scope = s.key_scope AND r.namespace_id = $1 AND r.run_key > of_scope.run_key
				ORDER BY r.run_key
				LIMIT 1
			) n
		)
		SELECT of_scope.run_key FROM of_scope`

// Runs that are paused themselves are in neither of the two indexes. No time makes one due.
const activePaused = `
SELECT q.task_queue, q.workflow_type, coalesce(q.version, 0), count(*), min(q.created_at), NULL::timestamptz,
	max(q.place) >= $2
FROM (
	SELECT r.*, row_number() OVER () AS place
	FROM (
		SELECT x.task_queue, x.workflow_type, x.version, x.created_at
		FROM kagzi.workflow_runs x
		WHERE x.namespace_id = $1 AND x.paused_at IS NOT NULL AND x.finished_at IS NULL
		ORDER BY x.paused_at
		LIMIT $2
	) r
) q
GROUP BY 1, 2, 3`

const (
	maxActiveRead  = 25_000 // runs of one workflow and priority that are read
	maxActiveTotal = 50_000 // runs that are read in all, if they are of one priority
	minActiveRead  = 100    // runs of one workflow and priority that are read, however many workflows there are
	maxActiveKeys  = 10_000 // keys whose waiting runs are read
	minKeyRead     = 10     // runs of one key and priority that are read, however many keys there are
)

// ActiveWork counts the active runs by queue, workflow and version. For each workflow and priority it reads the 25,000
// runs that are due first, or fewer if there are more than two workflows. It finds workflows and queues as DueWork
// does. Of the runs that wait for a slot of their key it reads as many of each key and priority, and of paused runs
// those that were paused first.
func (s *Health) ActiveWork(ctx context.Context) (out []ActiveWork, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var found activeWorks
		queues, types, err := s.activePairs(ctx, s.pool)
		if err == nil && len(queues) > 0 {
			limit := max(minActiveRead, min(maxActiveRead, maxActiveTotal/len(queues)))
			err = pg.Ask(ctx, s.pool, activeWork, []any{s.namespace, queues, types, limit}, found.readPairs(limit))
		}
		if err == nil {
			err = pg.Ask(ctx, s.pool, activeKeyed, []any{
				s.namespace, maxActiveKeys, minKeyRead, maxActiveRead,
				maxActiveTotal,
			}, found.read)
		}
		if err == nil {
			err = pg.Ask(ctx, s.pool, activePaused, []any{s.namespace, maxActiveRead}, found.read)
		}
		out = found
		slices.SortFunc(out, compareActive)
		return err
	})
	return out, pg.Wrap("find active runs", err)
}

func compareActive(a, b ActiveWork) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Version, b.Version))
}

// activeWorks are the results of several statements about different runs.
type activeWorks []ActiveWork

// readPairs returns a function that reads the rows of activeWork, which are sorted by queue and workflow.
func (all *activeWorks) readPairs(limit int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var w ActiveWork
		var read, first int // first is the index of the first row of the current queue and workflow
		_, err := pgx.ForEachRow(rows, []any{
			&w.Queue, &w.Type, &w.Version, &w.Count, pg.UTC(&w.Oldest), pg.UTC(&w.DueAt),
			&read,
		}, func() error {
			out := *all
			w.More = false
			if n := len(out); n > 0 && (out[n-1].Queue != w.Queue || out[n-1].Type != w.Type) {
				first = n
			}
			out = append(out, w)
			if more := read == limit || out[first].More; more {
				for i := first; i < len(out); i++ {
					out[i].More = true
				}
			}
			*all = out
			return nil
		})
		return err
	}
}

// read adds the rows of a statement whose order does not follow workflows: if it stopped at a limit, there may be more
// of each.
func (all *activeWorks) read(rows pgx.Rows) error {
	var found []ActiveWork
	var w ActiveWork
	more := false
	_, err := pgx.ForEachRow(rows, []any{
		&w.Queue, &w.Type, &w.Version, &w.Count, pg.UTC(&w.Oldest), pg.UTC(&w.DueAt),
		&w.More,
	}, func() error {
		found, more = append(found, w), more || w.More
		return nil
	})
	for _, w := range found {
		w.More = more
		i := slices.IndexFunc(*all, func(a ActiveWork) bool { return compareActive(a, w) == 0 })
		if i < 0 {
			*all = append(*all, w)
			continue
		}
		a := &(*all)[i]
		a.Count, a.More, a.Oldest = a.Count+w.Count, a.More || w.More, earlier(a.Oldest, w.Oldest)
		a.DueAt = earlier(a.DueAt, w.DueAt)
	}
	return err
}

// earlier returns the earlier of two times; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
