package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// An ActiveWork counts the active runs of one version of a workflow in one queue.
type ActiveWork struct {
	Queue   string
	Type    string
	Version int       // zero: the runs have no version yet
	Count   int       // of the runs that were read
	More    bool      // reading stopped at the limit for one priority: there may be more runs, of this or another version
	Oldest  time.Time // when the oldest run was created
	DueAt   time.Time // when the first run is due; zero if no time makes one due
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
			WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type AND q.priority = p.priority
				AND ` + claimable + `
			ORDER BY q.available_at
			LIMIT $4
		) q
	) k
	GROUP BY k.version
) d
ORDER BY 1, 2, 3`

const (
	maxActiveRead  = 25_000  // runs of one workflow and priority that are read
	maxActiveTotal = 100_000 // runs that are read in all, if they are of one priority
	minActiveRead  = 100     // runs of one workflow and priority that are read, however many workflows there are
)

// ActiveWork counts the active runs by queue, workflow and version. For each workflow and priority it reads the 25,000 runs
// that are due first, or fewer if there are more than four workflows. It finds workflows and queues as DueWork does.
func (s *Store) ActiveWork(ctx context.Context) (out []ActiveWork, err error) {
	err = do(ctx, func(ctx context.Context) error {
		out = nil
		queues, types, err := s.activePairs(ctx, s.pool)
		if err != nil || len(queues) == 0 {
			return err
		}
		limit := max(minActiveRead, min(maxActiveRead, maxActiveTotal/len(queues)))
		return ask(ctx, s.pool, activeWork, []any{s.namespace, queues, types, limit}, func(rows pgx.Rows) error {
			out, err = readActive(rows, limit)
			return err
		})
	})
	return out, wrap("find active runs", err)
}

// readActive reads the rows, which are sorted by queue and workflow.
func readActive(rows pgx.Rows, limit int) (out []ActiveWork, err error) {
	var w ActiveWork
	var read, first int // first is the index in out of the first row of the current queue and workflow
	_, err = pgx.ForEachRow(rows, []any{&w.Queue, &w.Type, &w.Version, &w.Count, utc(&w.Oldest), utc(&w.DueAt), &read}, func() error {
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
		return nil
	})
	return out, err
}
