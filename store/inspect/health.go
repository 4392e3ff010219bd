package inspect

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A LiveWorker is a worker that is not OFFLINE, with the columns that Health reads.
type LiveWorker struct {
	ID        uuid.UUID
	Queues    []string
	Types     []string
	Handlers  []string // with their versions: "checkout/2"
	Draining  bool
	Silent    bool // it has sent no heartbeat for its StaleAfter
	Heartbeat time.Time
	Active    int // runs that it executes
	Most      int // runs that it executes at once at most
	Rates     store.Rates
	Hung      *store.Hung
}

// Live reports whether the worker sends heartbeats and claims runs.
func (w *LiveWorker) Live() bool { return !w.Silent && !w.Draining }

const liveWorkers = `
SELECT w.task_queues, w.workflow_types, w.handlers, w.status = 'DRAINING',
	w.heartbeat_at < clock_timestamp() - w.stale_after, w.heartbeat_at,
	w.active_count, w.max_concurrent, w.completed_rate, w.failed_rate, w.steps_rate, w.worker_id, w.hung
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE'
LIMIT $2`

// LiveWorkers returns up to limit workers that are not OFFLINE.
func (s *Health) LiveWorkers(ctx context.Context, db pg.DB, limit int) (out []LiveWorker, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, liveWorkers, []any{s.namespace, limit}, pg.Collect(&out, readLiveWorker))
	})
	return out, pg.Wrap("read the workers", err)
}

func readLiveWorker(row pgx.CollectableRow) (w LiveWorker, err error) {
	var hung json.RawMessage
	err = row.Scan(&w.Queues, &w.Types, &w.Handlers, &w.Draining, &w.Silent, pg.UTC(&w.Heartbeat), &w.Active, &w.Most,
		&w.Rates.Completed, &w.Rates.Failed, &w.Rates.Steps, &w.ID, &hung)
	w.Hung = readHung(hung)
	return w, err
}

// A DueWork is the due runs of one workflow in one queue: those without a key and those that hold a slot, or those that
// wait for a slot of one key.
type DueWork struct {
	Queue    string
	Type     string
	Key      store.Key // zero: no key, or they hold a slot
	More     bool      // counting stopped at the limit for one priority: there may be more
	Versions []DueVersion
}

// A DueVersion is the due runs of one version of a workflow.
type DueVersion struct {
	Version int           // zero: the runs have no version yet
	Due     int           // the runs that were counted
	Since   time.Time     // when the first of them became due
	Waiting time.Duration // since then, by the database's clock
	Turn    time.Duration // since a claim could have taken one: with a key, since the key's turn came
	Holding time.Duration // since the first one became due that holds a slot of its queue; zero if none does
}

// The statement finds each queue by one search of the claim's index, for the first name after the previous one: a queue
// of a million runs costs as much as a queue of one. It returns the queues of all namespaces, because the index leads
// with the queue: with a condition on the namespace, the search would read all rows of other namespaces in each queue.
// Later statements select the namespace. So the statement cannot be routed to one node of a cluster that is distributed
// by namespace: ownQueues replaces it there.
const activeQueues = `
WITH RECURSIVE queues (task_queue) AS (` + clause.AllQueues + `
)
SELECT queues.task_queue FROM queues LIMIT $1`

// ownQueues is activeQueues for one namespace. It also reads the rows of the other namespaces in its shard.
const ownQueues = `
WITH RECURSIVE queues (task_queue) AS (` + queuesOfNamespace + `
)
SELECT queues.task_queue FROM queues LIMIT $2`

// queuesOfNamespace is clause.AllQueues for one namespace.
const queuesOfNamespace = `
	(
		SELECT r.task_queue
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Claimable + ` AND r.task_queue > '' AND r.namespace_id = $1
		ORDER BY r.task_queue
		LIMIT 1
	)
	UNION ALL
	SELECT n.task_queue
	FROM queues
	CROSS JOIN LATERAL (
		SELECT r.task_queue
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Claimable + ` AND r.task_queue > queues.task_queue AND r.namespace_id = $1
		ORDER BY r.task_queue
		LIMIT 1
	) n`

// Runs that are paused do not count, nor those that hold a slot of a paused key. Those of a queue or workflow that is
// paused are not even read.
const dueWork = `
WITH ` + clause.PausesOfRuns + `
SELECT w.task_queue, w.workflow_type, coalesce(d.version, 0), d.due, d.since,
	(extract(epoch FROM now() - d.since) * 1000000)::bigint,
	coalesce((extract(epoch FROM now() - d.holding) * 1000000)::bigint, 0), d.counted
FROM (
	SELECT u.task_queue, u.workflow_type
	FROM unnest($2::text[], $3::text[]) AS u (task_queue, workflow_type)
	WHERE ` + clause.Unstopped + `
	OFFSET 0
) w
CROSS JOIN LATERAL (
	SELECT k.version, count(*) AS due, max(k.place) AS counted, min(k.available_at) AS since,
		min(k.available_at) FILTER (WHERE k.holding) AS holding
	FROM generate_series(1, 4) AS n (priority)
	CROSS JOIN LATERAL (
		SELECT q.*, row_number() OVER () AS place
		FROM (
			SELECT q.run_key, q.key_scope, q.available_at, q.version,
				q.status = 'RUNNING' OR coalesce(q.slot = 2, false) AS holding
			FROM kagzi.workflow_runs q
			WHERE q.namespace_id = $1 AND q.task_queue = w.task_queue AND q.workflow_type = w.workflow_type
				AND q.priority = n.priority
				AND ` + clause.Claimable + ` AND q.available_at <= now()
			ORDER BY q.available_at
			LIMIT $4
		) q
	) k
	WHERE ` + clause.KeyUnpaused + `
	GROUP BY k.version
) d
ORDER BY 1, 2, 3`

const (
	maxDueCounted = 1000   // due runs of one workflow and priority that are counted
	maxDueTotal   = 40_000 // due runs that are counted in all, about
)

// activeQueues returns the first thousand queues that have active runs: of all namespaces, or of this namespace alone
// on Citus, where other namespaces may be on other servers.
func (s conn) activeQueues(ctx context.Context, db pg.DB) (queues []string, err error) {
	citus, err := pg.IsOnCitus(ctx, db)
	if err != nil {
		return nil, err
	}
	statement, args := activeQueues, []any{clause.MaxQueues}
	if citus {
		statement, args = ownQueues, []any{s.namespace, clause.MaxQueues}
	}
	err = pg.Ask(ctx, db, statement, args, pg.Collect(&queues, pgx.RowTo[string]))
	return queues, err
}

// activePairs returns the namespace's first thousand pairs of queue and workflow that have active runs.
func (s conn) activePairs(ctx context.Context, db pg.DB) (queues, types []string, err error) {
	all, err := s.activeQueues(ctx, db)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	err = pg.Ask(ctx, db, clause.ActiveTypes, []any{s.namespace, all, clause.MaxQueues}, func(rows pgx.Rows) error {
		var queue, typ string
		_, err := pgx.ForEachRow(rows, []any{&queue, &typ}, func() error {
			queues, types = append(queues, queue), append(types, typ)
			return nil
		})
		return err
	})
	return queues, types, err
}

// DueWork returns the due runs by queue and workflow, those without a key and those that hold a slot. It reads a
// bounded number of rows: the first thousand queues of all namespaces with active runs, the namespace's first thousand
// workflows in them, and for each workflow and priority a thousand runs, or fewer if there are many workflows.
func (s *Health) DueWork(ctx context.Context, db pg.DB) (out []DueWork, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		queues, types, err := s.activePairs(ctx, db)
		if err != nil || len(queues) == 0 {
			return err
		}
		limit := max(1, min(maxDueCounted, maxDueTotal/4/len(queues)))
		return pg.Ask(ctx, db, dueWork, []any{s.namespace, queues, types, limit}, func(rows pgx.Rows) error {
			var queue, typ string
			var v DueVersion
			var counted int
			var waiting, holding int64
			_, err := pgx.ForEachRow(rows, []any{
				&queue, &typ, &v.Version, &v.Due, pg.UTC(&v.Since), &waiting, &holding,
				&counted,
			}, func() error {
				if n := len(out); n == 0 || out[n-1].Queue != queue || out[n-1].Type != typ {
					out = append(out, DueWork{Queue: queue, Type: typ})
				}
				w := &out[len(out)-1]
				v.Waiting, v.Holding = time.Duration(waiting)*time.Microsecond, time.Duration(holding)*time.Microsecond
				v.Turn = v.Waiting
				w.More, w.Versions = w.More || counted == limit, append(w.Versions, v)
				return nil
			})
			return err
		})
	})
	return out, pg.Wrap("find due work", err)
}

// A TroubledSchedule is a schedule that needs attention.
type TroubledSchedule struct {
	Name  string
	Since time.Time // when it was due; zero if it is paused
	Error string    // why it is paused, or why the last try to fire it failed
}

const overdueSchedules = `
SELECT t.name, t.next_at, coalesce(left(t.problem, 300), '')
FROM kagzi.schedules t
WHERE t.namespace_id = $1 AND NOT t.paused AND t.next_at < now() - $2::bigint * interval '1 microsecond'
ORDER BY t.next_at
LIMIT $3`

// OverdueSchedules returns up to limit schedules that were due longer ago than late, the most overdue first.
func (s *Health) OverdueSchedules(ctx context.Context, db pg.DB, late time.Duration,
	limit int,
) ([]TroubledSchedule, error) {
	out, err := troubledSchedules(ctx, db, overdueSchedules, s.namespace, pg.Micros(late), limit)
	return out, pg.Wrap("find overdue schedules", err)
}

const brokenSchedules = `
SELECT t.name, NULL::timestamptz, left(t.problem, 300)
FROM kagzi.schedules t
WHERE t.namespace_id = $1 AND t.paused AND t.problem IS NOT NULL AND t.problem <> '' AND t.name >= ''
ORDER BY t.name
LIMIT $2`

// BrokenSchedules returns up to limit schedules that a coordinator paused because of an error, by name.
func (s *Health) BrokenSchedules(ctx context.Context, db pg.DB, limit int) ([]TroubledSchedule, error) {
	out, err := troubledSchedules(ctx, db, brokenSchedules, s.namespace, limit)
	return out, pg.Wrap("find broken schedules", err)
}

func troubledSchedules(ctx context.Context, db pg.DB, sql string, args ...any) (out []TroubledSchedule, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, sql, args, func(rows pgx.Rows) error {
			var name *string
			var since time.Time
			var reason string
			_, err := pgx.ForEachRow(rows, []any{&name, pg.UTC(&since), &reason}, func() error {
				out = append(out, TroubledSchedule{pg.Deref(name), since, reason})
				return nil
			})
			return err
		})
	})
	return out, err
}

// A QuarantinedRun is a run that failed for a reason that only people can remove.
type QuarantinedRun struct {
	RunID      uuid.UUID
	Type       string
	Kind       string
	FinishedAt time.Time
}

const quarantined = `
WITH newest AS MATERIALIZED (
	SELECT r.run_id, r.workflow_type, r.error_kind, r.finished_at,
		r.finished_at > now() - $3::bigint * interval '1 microsecond' AS recent
	FROM unnest(ARRAY['crash_loop', 'nondeterminism', 'bad_input', 'unreadable']) AS k (kind)
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.workflow_type, q.error_kind, q.finished_at
		FROM kagzi.workflow_runs q
		WHERE q.quarantined AND q.error_kind = k.kind
			AND q.namespace_id = $1
		ORDER BY q.finished_at DESC
		LIMIT $2
	) r
)
SELECT (SELECT count(*) FROM newest), (SELECT count(*) FROM newest WHERE newest.recent), newest.run_id,
	newest.workflow_type, newest.error_kind, newest.finished_at
FROM newest
ORDER BY newest.finished_at DESC
LIMIT $4`

// Quarantined returns in all how many runs are quarantined, counting at most limit of each kind, in lately how many of
// these failed within the time recent, and the newest few.
func (s *Health) Quarantined(ctx context.Context, db pg.DB, recent time.Duration, limit,
	few int,
) (all, lately int, newest []QuarantinedRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		all, lately, newest = 0, 0, nil
		return pg.Ask(ctx, db, quarantined, []any{s.namespace, limit, pg.Micros(recent), few},
			func(rows pgx.Rows) error {
				var r QuarantinedRun
				_, err := pgx.ForEachRow(rows, []any{&all, &lately, &r.RunID, &r.Type, &r.Kind, pg.UTC(&r.FinishedAt)},
					func() error {
						newest = append(newest, r)
						return nil
					})
				return err
			})
	})
	return all, lately, newest, pg.Wrap("find quarantined runs", err)
}

// A Suspect is a run that waits because it was under way when its workers died.
type Suspect struct {
	RunID      uuid.UUID
	Type       string
	Recoveries int
	NextAt     time.Time
}

const suspects = `
SELECT r.run_id, r.workflow_type, r.recoveries, r.available_at
FROM kagzi.workflow_runs r
WHERE r.recoveries >= 3 AND r.status = 'PENDING' AND r.waiting_on = '` + clause.Recovery + `'
	AND r.namespace_id = $1
ORDER BY r.recoveries DESC, r.run_id
LIMIT $2`

// Suspects returns up to limit crash-loop suspects that wait for their next try, the most recoveries first.
func (s *Health) Suspects(ctx context.Context, db pg.DB, limit int) (out []Suspect, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, suspects, []any{s.namespace, limit}, pg.Collect(&out, pgx.RowToStructByPos[Suspect]))
	})
	return out, pg.Wrap("find crash-loop suspects", err)
}

// An UnreadRun is a run that waits because its history could not be read.
type UnreadRun struct {
	RunID    uuid.UUID
	Type     string
	Failures int
}

const unreadRuns = `
SELECT r.run_id, r.workflow_type, r.load_failures
FROM kagzi.workflow_runs r
WHERE r.load_failures > 0 AND r.status = 'PENDING' AND r.namespace_id = $1
ORDER BY r.load_failures DESC
LIMIT $2`

// UnreadRuns returns up to limit runs that wait because their histories could not be read, the most failures first.
func (s *Health) UnreadRuns(ctx context.Context, db pg.DB, limit int) (out []UnreadRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, unreadRuns, []any{s.namespace, limit}, pg.Collect(&out, pgx.RowToStructByPos[UnreadRun]))
	})
	return out, pg.Wrap("find runs whose history cannot be read", err)
}
