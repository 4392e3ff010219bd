package inspect

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A RouteCount counts the runs of one workflow in one queue that have not ended.
type RouteCount struct {
	Queue    string
	Type     string
	Due      int       // runs that no worker executes, and whose time has come
	Keyed    int       // of these, the ones that wait for a slot of their key
	Since    time.Time // when the first of them became due
	DueMore  bool      // counting due runs stopped at a limit: there may be more
	Running  int
	Sleeping int
	Delayed  int  // PENDING until a time
	More     bool // counting stopped at a limit: there may be more that are running, sleeping or delayed
	Paused   int  // runs that are paused themselves, and due ones that a pause of their queue, workflow or key stops
}

// Stats are numbers of a namespace.
type Stats struct {
	Now      time.Time // by the database's clock
	Workers  []LiveWorker
	Routes   []RouteCount
	Failures []FailureCount
	Started  int           // runs that were started
	Within   time.Duration // within so long until now
}

// The statement finds each queue, then each workflow and priority in it, by one search of the claim's index. Of each it
// reads the first runs that are due, if the first of all is, and the first that are not: among these are the running
// ones, because few sleep for less time than a lease lasts. It reads $3 of both, and if that are not all, more of them,
// about $4 in all.
//
// A run that waits for its compensations is asleep, whenever the next of them is due.
const routeCounts = `
WITH RECURSIVE queues (task_queue) AS (` + allQueues + `
), ` + countsOfQueues

// ownRouteCounts is routeCounts for tables that are distributed: see ownQueues.
const ownRouteCounts = `
WITH RECURSIVE queues (task_queue) AS (` + queuesOfNamespace + `
), ` + countsOfQueues

const countsOfQueues = clause.PausesOfRuns + `, routes AS MATERIALIZED (
	SELECT u.task_queue, t.workflow_type, t.priority, t.first <= now() AS has_due
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
	LIMIT $2
), sampled AS MATERIALIZED (
	SELECT w.task_queue, w.workflow_type, w.priority, d.counted, d.due, d.since, d.paused, d.compensating,
		l.counted AS later, l.running, l.sleeping, l.delayed
	FROM routes w
	CROSS JOIN LATERAL ` + countDue + ` CASE WHEN w.has_due THEN $3::bigint ELSE 0 END` + endCount + ` d
	CROSS JOIN LATERAL ` + countLater + ` $3::bigint` + endCount + ` l
), budget AS MATERIALIZED (
	SELECT GREATEST($3::bigint,
		$4::bigint / GREATEST(count(*) FILTER (WHERE sampled.counted = $3::bigint) + count(*) FILTER
		(WHERE sampled.later = $3::bigint), 1)) AS most
	FROM sampled
), recounts AS MATERIALIZED (
	SELECT sampled.*, CASE WHEN sampled.counted = $3::bigint AND budget.most >= 2 * $3::bigint THEN budget.most
		ELSE 0 END AS more_due,
		CASE WHEN sampled.later = $3::bigint AND budget.most >= 2 * $3::bigint THEN budget.most ELSE 0 END AS more_later
	FROM budget
	CROSS JOIN sampled
)
SELECT w.task_queue, w.workflow_type, GREATEST(w.due, d.due), 0::bigint, w.since,
	GREATEST(w.counted, d.counted) >= GREATEST($3::bigint, w.more_due),
	GREATEST(w.running, l.running), GREATEST(w.sleeping, l.sleeping) + GREATEST(w.compensating, d.compensating),
		GREATEST(w.delayed, l.delayed),
	GREATEST(w.later, l.counted) >= GREATEST($3::bigint, w.more_later), GREATEST(w.paused, d.paused)
FROM recounts w
CROSS JOIN LATERAL ` + countDue + ` w.more_due` + endCount + ` d
CROSS JOIN LATERAL ` + countLater + ` w.more_later` + endCount + ` l`

// The counts of the runs of w that are due, and of those that are not; a limit follows, and endCount. The claim leaves
// out runs with an outcome.
const (
	countDue = `(
		SELECT count(*) AS counted, count(*) FILTER (WHERE k.open AND k.passes) AS due,
			min(k.available_at) FILTER (WHERE k.open AND k.passes) AS since,
			count(*) FILTER (WHERE k.open AND NOT k.passes) AS paused,
				count(*) FILTER (WHERE NOT k.open) AS compensating
		FROM (
			SELECT q.available_at, q.open, ((SELECT count(*) FROM pauses p) = 0
				OR ` + clause.Unstopped + `) AND ` + clause.KeyUnpaused + ` AS passes
			FROM (
				SELECT q.run_id, q.run_key, q.key_scope, q.task_queue, q.workflow_type, q.available_at, q.released_at,
					q.outcome IS NULL AS open
				FROM kagzi.workflow_runs q
				WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
					AND q.priority = w.priority
					AND ` + clause.Claimable + ` AND q.available_at <= now()
				ORDER BY q.available_at
				LIMIT`

	countLater = `(
		SELECT count(*) AS counted, count(*) FILTER (WHERE k.status = 'RUNNING') AS running,
			count(*) FILTER (WHERE k.status = 'SLEEPING') AS sleeping,
			count(*) FILTER (WHERE k.status = 'PENDING') AS delayed
		FROM (
			SELECT q.status
			FROM (
				SELECT q.status
				FROM kagzi.workflow_runs q
				WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
					AND q.priority = w.priority
					AND ` + clause.Claimable + ` AND q.available_at > now()
				ORDER BY q.available_at
				LIMIT`

	endCount = `
			) q
		) k
	)`
)

// The runs that wait for a slot of their key are in another index: see activeKeyed. The statement reads the first runs
// of the first keys, as many keys of each queue.
const keyedCounts = `
WITH RECURSIVE ` + clause.PausesOfRuns + `, ` + waitingScopes + `, shares AS MATERIALIZED (
	SELECT scopes.key_scope, GREATEST(1, $2::bigint / count(*) OVER ()) AS keys FROM scopes LIMIT $2
), keys AS MATERIALIZED (
	SELECT s.key_scope, t.run_key, row_number() OVER (PARTITION BY s.key_scope) = s.keys AS cut, (
			SELECT count(*) FROM (
				SELECT FROM kagzi.pauses p WHERE p.run_key = t.run_key AND p.key_scope = s.key_scope
					AND p.namespace_id = $1 LIMIT 1
			) p
		) > 0 AS paused
	FROM shares s
	CROSS JOIN LATERAL ` + waitingKeys + `
		LIMIT s.keys
	) t
), budget AS MATERIALIZED (
	SELECT bool_or(keys.cut) AS cut, GREATEST($3::bigint, $4::bigint / GREATEST(count(*), 1)) AS most FROM keys
)
SELECT d.task_queue, d.workflow_type, count(*) FILTER (WHERE d.due AND d.passes), count(*) FILTER (WHERE d.due
	AND d.passes),
	min(d.available_at) FILTER (WHERE d.due AND d.passes), bool_or(d.place = budget.most OR budget.cut), 0::bigint,
		count(*) FILTER (WHERE NOT d.due AND d.status = 'SLEEPING'),
	count(*) FILTER (WHERE NOT d.due AND d.status = 'PENDING'), bool_or(d.place = budget.most OR budget.cut),
		count(*) FILTER (WHERE d.due AND NOT d.passes)
FROM budget
CROSS JOIN keys
CROSS JOIN LATERAL (
	SELECT q.task_queue, q.workflow_type, q.available_at, q.status, q.due, q.place, NOT keys.paused
		AND ((SELECT count(*) FROM pauses p) = 0 OR ` + clause.Unstopped + `) AS passes
	FROM (
		SELECT x.run_id, x.run_key, x.task_queue, x.workflow_type, x.available_at, x.released_at, x.status,
			x.outcome IS NULL AND x.available_at <= now() AS due, row_number() OVER () AS place
		FROM (
			SELECT y.run_id, y.run_key, y.task_queue, y.workflow_type, y.available_at, y.released_at, y.status,
				y.outcome
			FROM kagzi.workflow_runs y
			WHERE y.key_scope = keys.key_scope AND y.namespace_id = $1 AND y.run_key = keys.run_key
				AND ` + clause.Waits + `
			ORDER BY y.priority, y.available_at
			LIMIT (SELECT budget.most FROM budget)
		) x
	) q
) d
GROUP BY 1, 2`

// A run's ID begins with the time of its start, by the clock of who started it. The statement reads the last runs of
// all namespaces, because the primary key leads with the ID, and counts those of one. IDs of the future are of a clock
// that is fast.
const newestRuns = `
WITH ` + newestBounds + `, newest AS MATERIALIZED (
	SELECT r.run_id, r.namespace_id
	FROM kagzi.workflow_runs r
	WHERE r.run_id > (SELECT bounds.since FROM bounds) AND r.run_id <= (SELECT bounds.until FROM bounds)
	ORDER BY r.run_id DESC
	LIMIT $3` + countNewest

// ownNewestRuns is newestRuns for tables that are distributed: see ownQueues.
const ownNewestRuns = `
WITH ` + newestBounds + `, newest AS MATERIALIZED (
	SELECT r.run_id, r.namespace_id
	FROM kagzi.workflow_runs r
	WHERE r.run_id > (SELECT bounds.since FROM bounds) AND r.run_id <= (SELECT bounds.until FROM bounds)
		AND r.namespace_id = $1
	ORDER BY r.run_id DESC
	LIMIT $3` + countNewest

const (
	newestBounds = `bounds AS MATERIALIZED (
	SELECT x.now, (lpad(to_hex(x.now / 1000 - $2::bigint), 12, '0') || repeat('0', 20))::uuid AS since,
		(lpad(to_hex(x.now / 1000 + 1000), 12, '0') || repeat('0', 20))::uuid AS until
	FROM (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now) x
)`
	countNewest = `
)
SELECT bounds.now, (SELECT count(*) FROM newest), (SELECT count(*) FROM newest WHERE newest.namespace_id = $1),
	(SELECT newest.run_id FROM newest ORDER BY newest.run_id LIMIT 1)
FROM bounds`
)

const (
	// due and other runs of one workflow and priority that are counted, however many workflows there are
	routeSample   = 10
	mostOfRoutes  = 5_000 // runs that are counted beyond that, about
	mostKeys      = 300   // keys whose waiting runs are counted
	keySample     = 5     // waiting runs of one key that are counted, however many keys there are
	mostOfKeys    = 3000  // waiting runs that are counted, if no key has fewer than its share
	mostOfPaused  = 1000  // paused runs that are counted
	mostOfKind    = 250   // failures of one kind that are counted; see maxFailedCounted
	mostNewest    = 3000  // runs of all namespaces that are counted as started
	newestWithin  = time.Minute
	mostOfWorkers = 10_000
)

// Stats reads the numbers of the namespace in one round trip, and a bounded number of rows. Failures are counted over
// the time recent.
func (s *Lists) Stats(ctx context.Context, db pg.DB, recent time.Duration) (out Stats, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.OnConn(ctx, db, func(conn *pgx.Conn) error {
			citus, err := pg.HasCitus(ctx, conn)
			if err != nil {
				return err
			}
			routes, newest := routeCounts, newestRuns
			if citus {
				routes, newest = ownRouteCounts, ownNewestRuns
			}
			out = Stats{}
			var counted routeCounter
			b := &pgx.Batch{}
			b.Queue(liveWorkers, s.namespace, mostOfWorkers)
			b.Queue(routes, s.namespace, clause.MaxQueues, routeSample, mostOfRoutes)
			b.Queue(keyedCounts, s.namespace, mostKeys, keySample, mostOfKeys)
			b.Queue(activePaused, s.namespace, mostOfPaused)
			b.Queue(recentFailures, s.namespace, pg.Micros(recent), maxKinds, mostOfKind)
			b.Queue(newest, s.namespace, newestWithin.Milliseconds(), mostNewest)
			err = pg.Exchange(ctx, conn, pg.Untimed, b, pg.Collect(&out.Workers, readLiveWorker), counted.read,
				counted.read,
				counted.readPaused, readFailures(&out.Failures), out.readNewest)
			out.Routes = counted.sorted()
			return err
		})
	})
	return out, pg.Wrap("read statistics", err)
}

// A routeCounter sums up the results of several statements.
type routeCounter map[[2]string]*RouteCount

func (c *routeCounter) add(n RouteCount) {
	if *c == nil {
		*c = routeCounter{}
	}
	r := (*c)[[2]string{n.Queue, n.Type}]
	if r == nil {
		(*c)[[2]string{n.Queue, n.Type}] = &n
		return
	}
	r.Due, r.Keyed, r.Since, r.DueMore = r.Due+n.Due, r.Keyed+n.Keyed, earlier(r.Since, n.Since), r.DueMore || n.DueMore
	r.Running, r.Sleeping, r.Delayed, r.More, r.Paused = r.Running+n.Running, r.Sleeping+n.Sleeping, r.Delayed+
		n.Delayed, r.More || n.More, r.Paused+n.Paused
}

func (c *routeCounter) read(rows pgx.Rows) error {
	var n RouteCount
	_, err := pgx.ForEachRow(rows, []any{
		&n.Queue, &n.Type, &n.Due, &n.Keyed, pg.UTC(&n.Since), &n.DueMore, &n.Running,
		&n.Sleeping, &n.Delayed, &n.More, &n.Paused,
	}, func() error {
		c.add(n)
		return nil
	})
	return err
}

// readPaused adds the rows of activePaused.
func (c *routeCounter) readPaused(rows pgx.Rows) error {
	var paused activeWorks
	err := paused.read(rows)
	for _, p := range paused {
		c.add(RouteCount{Queue: p.Queue, Type: p.Type, Paused: p.Count})
	}
	return err
}

// sorted returns the counts by queue and workflow.
func (c *routeCounter) sorted() (out []RouteCount) {
	for _, r := range *c {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b RouteCount) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// readNewest reads the row of newestRuns. If that stopped at its limit, the runs are those since the oldest that it
// read.
func (st *Stats) readNewest(rows pgx.Rows) error {
	var now int64
	var all int
	var oldest uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{&now, &all, &st.Started, pg.UUIDTo(&oldest)}, func() error { return nil })
	st.Now, st.Within = time.UnixMicro(now).UTC(), newestWithin
	if all == mostNewest {
		since := time.UnixMilli(int64(binary.BigEndian.Uint64(oldest[:8]) >> 16))
		st.Within = max(time.Millisecond, st.Now.Sub(since))
	}
	return err
}
