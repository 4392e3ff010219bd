package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// An ActiveWork is the active runs of one version of a workflow in one queue.
type ActiveWork struct {
	Queue   string
	Type    string
	Version int  // zero: none yet
	Count   int  // of the runs that were read
	More    bool // there may be more, of this or another version
	Oldest  time.Time
	DueAt   time.Time // of the first; zero if time alone makes none due
}

// The claim's index does not have the version, so that is read from the rows, the first due ones first.
const activeWork = `
SELECT w.task_queue, w.workflow_type, coalesce(d.version, 0), d.runs, d.oldest, d.due, d.looked
FROM unnest($2::text[], $3::text[]) AS w (task_queue, workflow_type)
CROSS JOIN LATERAL (
	SELECT k.version, count(*) AS runs, min(k.created_at) AS oldest, max(k.place) AS looked,
		min(k.available_at) FILTER (WHERE k.available_at < 'infinity') AS due
	FROM generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT q.version, q.created_at, q.available_at, row_number() OVER () AS place
		FROM (
			SELECT q.version, q.created_at, q.available_at
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type AND q.priority = p.priority
				AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND q.available_at IS NOT NULL
			ORDER BY q.available_at
			LIMIT $4
		) q
	) k
	GROUP BY k.version
) d
ORDER BY 1, 2, 3`

const (
	mostActive = 25_000  // runs of one workflow and priority are read
	allActive  = 100_000 // together, if they are of one priority
	leastEach  = 100     // however many workflows there are
)

// ActiveWork returns the active runs by queue, workflow and version. Of each workflow and priority it reads the 25,000 runs
// that are due first, or fewer if there are more than four workflows. It finds workflows and queues as DueWork does.
func (s *Store) ActiveWork(ctx context.Context) (out []ActiveWork, err error) {
	err = do(ctx, func(ctx context.Context) error {
		out = nil
		queues, types, err := s.activePairs(ctx, s.pool)
		if err != nil || len(queues) == 0 {
			return err
		}
		limit := max(leastEach, min(mostActive, allActive/len(queues)))
		return ask(ctx, s.pool, activeWork, []any{s.namespace, queues, types, limit}, func(rows pgx.Rows) error {
			out, err = readActive(rows, limit)
			return err
		})
	})
	return out, wrap("look for active runs", err)
}

// readActive reads the rows, of which those of one queue and workflow follow each other.
func readActive(rows pgx.Rows, limit int) (out []ActiveWork, err error) {
	var w ActiveWork
	var looked, first int // first is where those of the queue and workflow begin
	_, err = pgx.ForEachRow(rows, []any{&w.Queue, &w.Type, &w.Version, &w.Count, utc(&w.Oldest), utc(&w.DueAt), &looked}, func() error {
		w.More = false
		if n := len(out); n > 0 && (out[n-1].Queue != w.Queue || out[n-1].Type != w.Type) {
			first = n
		}
		out = append(out, w)
		if more := looked == limit || out[first].More; more {
			for i := first; i < len(out); i++ {
				out[i].More = true
			}
		}
		return nil
	})
	return out, err
}
