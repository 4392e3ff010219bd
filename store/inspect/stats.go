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

// The runs that wait for a slot of their key are in another index: see activeKeyed. The statement returns the first
// keys of each scope, as many of each, and whether there may be more.
const sampledKeys = `
WITH RECURSIVE ` + clause.WaitingScopes + `, shares AS MATERIALIZED (
	SELECT scopes.key_scope, GREATEST(1, $2::bigint / count(*) OVER ()) AS keys FROM scopes LIMIT $2
)
SELECT s.key_scope, t.run_key, row_number() OVER (PARTITION BY s.key_scope) = s.keys
FROM shares s
CROSS JOIN LATERAL ` + waitingKeys + `
	LIMIT s.keys
) t`

// The statement reads the first runs of each key.
const keyedCounts = `
WITH ` + clause.PausesOfRuns + `, keys AS MATERIALIZED (
	SELECT u.key_scope, u.run_key, (
			SELECT x.paused_at FROM kagzi.run_keys x WHERE x.key_scope = u.key_scope AND x.run_key = u.run_key
				AND x.namespace_id = $1
		) IS NOT NULL AS paused
	FROM unnest($2::text[], $3::text[]) AS u (key_scope, run_key)
)
SELECT d.task_queue, d.workflow_type, count(*) FILTER (WHERE d.due AND d.passes),
	min(d.available_at) FILTER (WHERE d.due AND d.passes), max(d.place) = $4::bigint,
	count(*) FILTER (WHERE NOT d.due AND d.status = 'SLEEPING'),
	count(*) FILTER (WHERE NOT d.due AND d.status = 'PENDING'), count(*) FILTER (WHERE d.due AND NOT d.passes)
FROM keys
CROSS JOIN LATERAL (
	SELECT q.task_queue, q.workflow_type, q.available_at, q.status, q.due, q.place, NOT keys.paused
		AND ` + clause.Unstopped + ` AS passes
	FROM (
		SELECT x.task_queue, x.workflow_type, x.available_at, x.status,
			x.outcome IS NULL AND x.available_at <= now() AS due, row_number() OVER () AS place
		FROM (
			SELECT y.task_queue, y.workflow_type, y.available_at, y.status, y.outcome
			FROM kagzi.workflow_runs y
			WHERE y.key_scope = keys.key_scope AND y.namespace_id = $1 AND y.run_key = keys.run_key
				AND ` + clause.Waits + `
			ORDER BY y.priority, y.available_at
			LIMIT $4
		) x
	) q
) d
GROUP BY 1, 2`

// A keySample is the keys whose waiting runs Stats counts.
type keySample struct {
	foundKeys
	cut bool // there may be more keys
}

func (k *keySample) read(rows pgx.Rows) error {
	var scope, name string
	var cut bool
	_, err := pgx.ForEachRow(rows, []any{&scope, &name, &cut}, func() error {
		k.add(scope, name)
		k.cut = k.cut || cut
		return nil
	})
	return err
}

// args returns the arguments of keyedCounts.
func (k *keySample) args(namespace string) []any {
	return []any{namespace, k.scopes, k.names, max(runsOfKey, mostOfKeys/max(len(k.names), 1))}
}

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
	runsOfKey     = 5     // waiting runs of one key that are counted, however many keys there are
	mostOfKeys    = 3000  // waiting runs that are counted, if no key has fewer than its share
	mostOfPaused  = 1000  // paused runs that are counted
	mostOfKind    = 250   // failures of one kind that are counted; see maxFailedCounted
	mostNewest    = 3000  // runs of all namespaces that are counted as started
	newestWithin  = time.Minute
	mostOfWorkers = 10_000
)

// Stats reads the numbers of the namespace in three round trips, and a bounded number of rows: the workflows, a sample
// of their runs, and more of those workflows that have more. A run that moves in between is counted where it is found.
// Failures are counted over the time recent.
func (s *Lists) Stats(ctx context.Context, db pg.DB, recent time.Duration) (out Stats, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.OnConn(ctx, db, func(conn *pgx.Conn) error {
			citus, err := pg.HasCitus(ctx, conn)
			if err != nil {
				return err
			}
			r := statsReader{namespace: s.namespace}
			err = pg.Converse(ctx, conn, pg.Untimed, r.all(citus, recent))
			out = r.Stats
			for _, l := range r.lines {
				r.counted.add(l.RouteCount)
			}
			out.Routes = r.counted.sorted()
			return err
		})
	})
	return out, pg.Wrap("read statistics", err)
}

// A statsReader reads Stats.
type statsReader struct {
	Stats
	namespace string
	lines     routeLines
	keys      keySample
	counted   routeCounter
}

func (r *statsReader) all(citus bool, recent time.Duration) pg.Step {
	routes, newest := routes, newestRuns
	if citus {
		routes, newest = ownRoutes, ownNewestRuns
	}
	b := &pgx.Batch{}
	b.Queue(liveWorkers, r.namespace, mostOfWorkers)
	b.Queue(routes, r.namespace, clause.MaxQueues)
	b.Queue(sampledKeys, r.namespace, mostKeys)
	b.Queue(activePaused, r.namespace, mostOfPaused)
	b.Queue(recentFailures, r.namespace, pg.Micros(recent), maxKinds, mostOfKind)
	b.Queue(newest, r.namespace, newestWithin.Milliseconds(), mostNewest)
	return pg.Step{Batch: b, Then: r.sample, Reads: []func(pgx.Rows) error{
		pg.Collect(&r.Workers, readLiveWorker), r.lines.read, r.keys.read, r.counted.readPaused,
		readFailures(&r.Failures), r.readNewest,
	}}
}

func (r *statsReader) sample() pg.Step {
	b := &pgx.Batch{}
	b.Queue(routeCounts, r.lines.args(r.namespace)...)
	b.Queue(keyedCounts, r.keys.args(r.namespace)...)
	return pg.Step{Batch: b, Then: r.more, Reads: []func(pgx.Rows) error{
		r.lines.readCounts, r.counted.readKeyed(r.keys.cut),
	}}
}

func (r *statsReader) more() pg.Step {
	b := &pgx.Batch{}
	larger := r.lines.larger()
	if larger == nil {
		return pg.Step{Batch: b}
	}
	b.Queue(routeCounts, larger.args(r.namespace)...)
	return pg.Step{Batch: b, Reads: []func(pgx.Rows) error{larger.readCounts}}
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

// readKeyed returns a function that adds the rows of keyedCounts, of keys of which there are more if cut is set.
func (c *routeCounter) readKeyed(cut bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var n RouteCount
		var more bool
		_, err := pgx.ForEachRow(rows, []any{
			&n.Queue, &n.Type, &n.Due, pg.UTC(&n.Since), &more, &n.Sleeping, &n.Delayed, &n.Paused,
		}, func() error {
			n.Keyed, n.DueMore, n.More = n.Due, more || cut, more || cut
			c.add(n)
			return nil
		})
		return err
	}
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
