package inspect

import (
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// The statement finds each queue, then each workflow and priority in it, by one search of the claim's index.
const routes = `
WITH RECURSIVE queues (task_queue) AS (` + clause.AllQueues + linesOfQueues

// ownRoutes is routes for tables that are distributed: see ownQueues.
const ownRoutes = `
WITH RECURSIVE queues (task_queue) AS (` + queuesOfNamespace + linesOfQueues

const linesOfQueues = `
)
SELECT u.task_queue, t.workflow_type, t.priority, t.first <= now()
FROM (SELECT queues.task_queue FROM queues LIMIT $2) u
CROSS JOIN LATERAL (
	WITH RECURSIVE lines (workflow_type, priority, first) AS (
		(
			SELECT r.workflow_type, r.priority, r.available_at
			FROM kagzi.workflow_runs r
			WHERE ` +
	clause.Claimable + ` AND r.task_queue = u.task_queue AND r.namespace_id = $1 AND r.workflow_type > ''
			ORDER BY r.workflow_type, r.priority, r.available_at
			LIMIT 1
		)
		UNION ALL
		SELECT n.workflow_type, n.priority, n.available_at
		FROM lines
		CROSS JOIN LATERAL (
			SELECT r.workflow_type, r.priority, r.available_at
			FROM kagzi.workflow_runs r
			WHERE ` + clause.Claimable + ` AND r.task_queue = u.task_queue AND r.namespace_id = $1
				AND (r.workflow_type, r.priority) > (lines.workflow_type, lines.priority)
			ORDER BY r.workflow_type, r.priority, r.available_at
			LIMIT 1
		) n
	)
	SELECT lines.workflow_type, lines.priority, lines.first FROM lines
) t
LIMIT $2`

// The statement counts the first runs of each line that are due, and the first that are not: among these are the
// running ones, because few sleep for less time than a lease lasts. A run that waits for its compensations is asleep,
// whenever the next of them is due: no claim takes a run with an outcome.
const routeCounts = `
WITH ` + clause.PausesOfRuns + `
SELECT w.place, d.counted, d.due, d.since, d.paused, d.compensating, l.counted, l.running, l.sleeping, l.delayed
FROM unnest($2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[]) WITH ORDINALITY
	AS w (task_queue, workflow_type, priority, most_due, most_later, place)
CROSS JOIN LATERAL (
	SELECT count(*) AS counted, count(*) FILTER (WHERE k.open AND k.passes) AS due,
		min(k.available_at) FILTER (WHERE k.open AND k.passes) AS since,
		count(*) FILTER (WHERE k.open AND NOT k.passes) AS paused,
		count(*) FILTER (WHERE NOT k.open) AS compensating
	FROM (
		SELECT q.available_at, q.open, ` + clause.Unstopped + ` AND ` + clause.KeyUnpaused + ` AS passes
		FROM (
			SELECT q.run_key, q.key_scope, q.task_queue, q.workflow_type, q.available_at, q.outcome IS NULL AS open
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
				AND q.priority = w.priority
				AND ` + clause.Claimable + ` AND q.available_at <= now()
			ORDER BY q.available_at
			LIMIT w.most_due
		) q
	) k
) d
CROSS JOIN LATERAL (
	SELECT count(*) AS counted, count(*) FILTER (WHERE k.status = 'RUNNING') AS running,
		count(*) FILTER (WHERE k.status = 'SLEEPING') AS sleeping,
		count(*) FILTER (WHERE k.status = 'PENDING') AS delayed
	FROM (
		SELECT q.status
		FROM kagzi.workflow_runs q
		WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
			AND q.priority = w.priority
			AND ` + clause.Claimable + ` AND q.available_at > now()
		ORDER BY q.available_at
		LIMIT w.most_later
	) k
) l`

// A routeLine is the runs of one workflow and priority in one queue.
type routeLine struct {
	RouteCount
	priority int32
	due      lineCount // the runs that are due
	later    lineCount // the others
}

// A lineCount says how far routeCounts reads.
type lineCount struct {
	most    int // runs that it counts; zero: the counts of before stay
	counted int
	asleep  int // of these, runs that sleep, or wait for their compensations
}

// again lets so many be counted, if counting stopped at its limit; otherwise none.
func (c *lineCount) again(most int) {
	if c.counted < c.most {
		most = 0
	}
	c.most = most
}

// routeLines are the lines of a namespace.
type routeLines []*routeLine

// read reads the rows of routes. Of each line, a sample is to be counted.
func (all *routeLines) read(rows pgx.Rows) error {
	var l routeLine
	var hasDue bool
	_, err := pgx.ForEachRow(rows, []any{&l.Queue, &l.Type, &l.priority, &hasDue}, func() error {
		line := l
		line.later.most = routeSample
		if hasDue {
			line.due.most = routeSample
		}
		*all = append(*all, &line)
		return nil
	})
	return err
}

// args returns the arguments of routeCounts.
func (all routeLines) args(namespace string) []any {
	var queues, types []string
	var priorities []int32
	var due, later []int
	for _, l := range all {
		queues, types, priorities = append(queues, l.Queue), append(types, l.Type), append(priorities, l.priority)
		due, later = append(due, l.due.most), append(later, l.later.most)
	}
	return []any{namespace, queues, types, priorities, due, later}
}

// readCounts reads the rows of routeCounts.
func (all routeLines) readCounts(rows pgx.Rows) error {
	var place int
	var due, later lineCount
	var n RouteCount
	_, err := pgx.ForEachRow(rows, []any{
		&place, &due.counted, &n.Due, pg.UTC(&n.Since), &n.Paused, &due.asleep, &later.counted, &n.Running,
		&later.asleep, &n.Delayed,
	}, func() error {
		l := all[place-1]
		if due.most = l.due.most; due.most > 0 {
			l.due, l.Due, l.Since, l.Paused, l.DueMore = due, n.Due, n.Since, n.Paused, due.counted == due.most
		}
		if later.most = l.later.most; later.most > 0 {
			l.later, l.Running, l.Delayed, l.More = later, n.Running, n.Delayed, later.counted == later.most
		}
		l.Sleeping = l.due.asleep + l.later.asleep
		return nil
	})
	return err
}

// larger returns the lines of which a sample is not all. The rest of the bound is to be counted of them. If that is
// less than two samples, it returns none.
func (all routeLines) larger() (out routeLines) {
	cut := 0
	for _, l := range all {
		for _, c := range []lineCount{l.due, l.later} {
			if c.most > 0 && c.counted == c.most {
				cut++
			}
		}
	}
	most := mostOfRoutes / max(cut, 1)
	if most < 2*routeSample {
		return nil
	}
	for _, l := range all {
		l.due.again(most)
		l.later.again(most)
		if l.due.most > 0 || l.later.most > 0 {
			out = append(out, l)
		}
	}
	return out
}
