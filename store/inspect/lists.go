package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

// A Filter chooses runs. A zero field does not restrict the choice.
type Filter struct {
	Status        []string
	Type          string
	Queue         string
	ExternalID    string
	Parent        uuid.UUID
	Schedule      uuid.UUID
	Key           store.Key // with its Queue if that is set, else of any queue
	Metadata      json.RawMessage
	WaitingOn     waits.Wait // of the runs that wait for this kind, and for this name if there is one
	Created       Span
	Ended         Span
	Paused        bool // runs that are active and paused themselves
	Error         Failure
	IDs           []uuid.UUID // empty: all
	MinRecoveries int         // runs with as many recoveries or more, also those that are over
	Page
}

// A Span is from a time on, and before another one.
type Span struct{ From, Until time.Time }

// A Failure describes the errors of runs.
type Failure struct{ Kind, Text string } // the error has this text, whatever the case

// A Page is a part of the runs that a filter chooses, the newest first.
type Page struct {
	After    uuid.UUID // the last run of the previous page: only older runs follow
	Limit    int
	Payloads bool // List reads inputs and outputs
}

// The conditions of the indexes by which runs are listed. Each run fits one of them, or moves. The columns are those of
// the only table of the select around them. See the package's comment, Lists.
const (
	isCompleted = clause.IsCompleted
	isStopped   = clause.IsStopped
	isWaiting   = clause.IsWaiting

	// moves is the condition of the others: runs that are RUNNING, or were due at once. They are in the claim's index,
	// and are due or have a lease that ends soon.
	moves = `finished_at IS NULL AND NOT ` + clause.Rests
)

// inNamespace also has the namespace in the collation that it has in the indexes of lists.
const inNamespace = `r.namespace_id = $1 AND r.namespace_id = $1 COLLATE "POSIX"`

// A selection is the runs that a filter selects. Its statements are planned at each call: see pg.AskPlanned.
type selection struct {
	*Filter
	args  []any
	where string // the condition on the run r: the predicates that the filter asks for
}

// selection returns the selection of f. These are all predicates.
func (s *Lists) selection(f *Filter) *selection {
	l := &selection{Filter: f, args: []any{s.namespace}, where: "r.namespace_id = $1"}
	l.when(len(f.Status) > 0, `r.status = ANY ($%d::text[])`, f.Status)
	l.when(f.Type != "", `r.workflow_type = $%d::text`, f.Type)
	l.when(f.Queue != "", `r.task_queue = $%d::text`, f.Queue)
	l.when(f.ExternalID != "", `r.external_id = $%d::text`, f.ExternalID)
	l.when(f.Parent != uuid.Nil, `r.parent_run_id = $%d::uuid`, f.Parent.String())
	l.when(f.Schedule != uuid.Nil, `r.schedule_id = $%d::uuid`, f.Schedule.String())
	l.when(f.Key.Name != "", `r.run_key = $%d::text AND (r.key_scope = '') = $%d::bool`, f.Key.Name, f.Key.Group)
	l.when(len(f.Metadata) > 0, `r.metadata @> $%d::jsonb`, string(f.Metadata))
	l.when(f.Error.Kind != "", `r.error_kind = $%d::text`, f.Error.Kind)
	waiting, _ := json.Marshal(waits.List{f.WaitingOn}) // no value of these types fails
	l.when(f.WaitingOn.Kind != "", `r.waiting_on @> $%d::jsonb`, string(waiting))
	l.when(!f.Created.From.IsZero(), `r.created_at >= $%d::timestamptz`, f.Created.From)
	l.when(!f.Created.Until.IsZero(), `r.created_at < $%d::timestamptz`, f.Created.Until)
	l.when(!f.Ended.From.IsZero(), `r.finished_at >= $%d::timestamptz`, f.Ended.From)
	l.when(!f.Ended.Until.IsZero(), `r.finished_at < $%d::timestamptz`, f.Ended.Until)
	l.when(f.Paused, `r.paused_at IS NOT NULL AND r.finished_at IS NULL`)
	l.when(f.Error.Text != "", `strpos(lower(r.error), lower($%d::text)) > 0`, f.Error.Text)
	ids := make([]string, len(f.IDs))
	for i, id := range f.IDs {
		ids[i] = id.String()
	}
	l.when(len(ids) > 0, `r.run_id = ANY ($%d::uuid[])`, ids)
	l.when(f.MinRecoveries > 0, `r.recoveries >= $%d::bigint AND r.recoveries > 0 AND r.attempts >= 0`, f.MinRecoveries)
	l.when(f.After != uuid.Nil, `r.run_id < $%d::uuid`, f.After.String())
	return l
}

// when adds a predicate to the condition if the filter asks for it.
func (l *selection) when(asked bool, predicate string, args ...any) {
	if !asked {
		return
	}
	numbers := []any{}
	for _, arg := range args {
		l.args = append(l.args, arg)
		numbers = append(numbers, len(l.args))
	}
	l.where += "\n\tAND " + fmt.Sprintf(predicate, numbers...)
}

// arg adds an argument, and returns how the statement calls it.
func (l *selection) arg(v any) string {
	l.args = append(l.args, v)
	return "$" + fmt.Sprint(len(l.args))
}

// list lists the runs r.
func (l *selection) list(from string) string {
	payloads := `NULL::bytea, NULL::bytea`
	if l.Payloads {
		payloads = clause.StoredInput + `, r.output`
	}
	return `SELECT ` + clause.RunColumns + `, ` + payloads + `
FROM ` + from + `
ORDER BY r.run_id DESC
LIMIT ` + l.arg(l.Limit) + `::int`
}

// walk lists all runs: the planner chooses between an index for the filter's fields and a walk down the key.
func (l *selection) walk() string { return l.list(`kagzi.workflow_runs r WHERE ` + l.where) }

// among lists the runs whose IDs the parts select. It leaves the planner no join to choose.
func (l *selection) among(parts ...string) string {
	return `WITH chosen AS MATERIALIZED (
	` + strings.Join(parts, "\n\tUNION ALL\n\t") + `
)
` + l.list(`chosen
CROSS JOIN LATERAL (SELECT q.* FROM kagzi.workflow_runs q WHERE q.run_id = chosen.run_id
	AND q.namespace_id = $1 OFFSET 0) r`)
}

// all selects the runs in an index for one of the filter's fields: they are few. A walk down the key would be slower.
func (l *selection) all(index string) string {
	return `SELECT r.run_id FROM kagzi.workflow_runs r WHERE ` + l.where + index
}

// The pairs of queue and workflow in an index are found by one search for each. The index's condition stands between
// these texts.
const (
	firstPair = `(
		WITH RECURSIVE pairs (task_queue, workflow_type) AS (
			(
				SELECT r.task_queue, r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` + inNamespace + ` AND `
	nextPair = `
				ORDER BY r.task_queue, r.workflow_type
				LIMIT 1
			)
			UNION ALL
			SELECT n.task_queue, n.workflow_type
			FROM pairs
			CROSS JOIN LATERAL (
				SELECT r.task_queue, r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` + inNamespace + ` AND (r.task_queue, r.workflow_type) > (pairs.task_queue, pairs.workflow_type)
					AND `
	endPairs = `
				ORDER BY r.task_queue, r.workflow_type
				LIMIT 1
			) n
		)`
)

// newest selects the newest runs of each status, queue and workflow in the index with this condition. first and last
// are the run IDs of the times given.
func (l *selection) newest(index string, statuses []string, first, last uuid.UUID) string {
	index += ` AND r.status = u.status`
	return `SELECT k.run_id
	FROM unnest(` + l.arg(statuses) + `::text[]) AS u (status)
	CROSS JOIN LATERAL ` + firstPair + index + nextPair + index + endPairs + `
		SELECT pairs.task_queue, pairs.workflow_type FROM pairs WHERE ` + l.arg(l.Queue) + `::text IN ('',
			pairs.task_queue) AND ` + l.arg(l.Type) + `::text IN ('', pairs.workflow_type)
	) t
	CROSS JOIN LATERAL (
		SELECT r.run_id
		FROM kagzi.workflow_runs r
		WHERE ` + inNamespace + ` AND r.task_queue = t.task_queue AND r.workflow_type = t.workflow_type
			` + l.within(first, last) + `AND ` + l.where + ` AND ` + index + `
		ORDER BY r.run_id DESC
		LIMIT ` + l.arg(l.Limit) + `::int
	) k`
}

// within is the condition that the run ID is between these. A bound that all IDs keep is left out: without statistics,
// the planner would take the primary key because of it.
func (l *selection) within(first, last uuid.UUID) (sql string) {
	if first != uuid.Nil {
		sql = `AND r.run_id >= ` + l.arg(first.String()) + `::uuid `
	}
	if last != uuid.Max {
		sql += `AND r.run_id <= ` + l.arg(last.String()) + `::uuid `
	}
	return sql
}

// moving selects the runs that move, with those that are due until then, in microseconds. Their queues and workflows
// are found by the same statement: a run that begins to move meanwhile may be the only one of its queue.
func (l *selection) moving(queues string, until int64) string {
	return `SELECT k.run_id
	FROM (
		SELECT u.task_queue, t.workflow_type, p.priority
		FROM (WITH RECURSIVE queues (task_queue) AS (` + queues + `) SELECT queues.task_queue FROM queues) u
		` + clause.TypesOfQueue + `
		CROSS JOIN generate_series(1, 4) AS p (priority)
		WHERE ` + l.arg(l.Queue) + `::text IN ('', u.task_queue)
			AND ` + l.arg(l.Type) + `::text IN ('', t.workflow_type)
		OFFSET 0
	) w
	CROSS JOIN LATERAL (
		SELECT r.run_id
		FROM kagzi.workflow_runs r
		WHERE r.task_queue = w.task_queue AND r.workflow_type = w.workflow_type AND r.priority = w.priority
			AND ` + clause.Claimable + `
			AND r.available_at <= timestamptz 'epoch' + ` + l.arg(until) + `::bigint * interval '1 microsecond'
			AND ` + moves + ` AND ` + l.where + `
		OFFSET 0
	) k`
}

// resting selects from the indexes of lists. A run that completed has no kind and no error, and one that is over waits
// for nothing but its deletion. See the package's comment, Lists.
func (l *selection) resting(first, last uuid.UUID) (parts []string) {
	add := func(index string, may bool, statuses ...string) {
		if statuses = slices.DeleteFunc(statuses, func(status string) bool { return !l.has(status) }); may &&
			len(statuses) > 0 {
			parts = append(parts, l.newest(index, statuses, first, last))
		}
	}
	over := l.WaitingOn.Kind == "" || l.WaitingOn.Kind == waits.Deletion
	add(isCompleted, over && l.Error.Kind == "" && l.Error.Text == "", store.Completed)
	add(isStopped, over, store.Failed, store.Cancelled)
	add(isWaiting, l.Ended.From.IsZero() && l.Ended.Until.IsZero(), store.Pending, store.Sleeping, store.Running)
	return parts
}

// has reports whether the filter selects runs of the status.
func (f *Filter) has(status string) bool {
	return len(f.Status) == 0 || slices.Contains(f.Status, status)
}

// Counts the runs that may move, up to $4. No lease is longer than twice the longest LeaseTimeout. The clock of the
// database may have been ahead, and runs of that time are due when it gets there again. In tests, now() may be ahead of
// Postgres's own clock.
const movingRuns = `
WITH horizon AS MATERIALIZED (
	SELECT GREATEST(now(), max(w.latest_at)) + GREATEST(2 * max(w.lease_timeout), interval '10 minutes') AS until,
		now() - pg_catalog.now() AS ahead
	FROM kagzi.workers w
	WHERE w.namespace_id = $1
)
SELECT (extract(epoch FROM horizon.until) * 1000000)::bigint, (extract(epoch FROM horizon.ahead) * 1000000)::bigint, (
	SELECT count(*)
	FROM (
		SELECT 1
		FROM unnest($2::text[], $3::text[]) AS w (task_queue, workflow_type)
		CROSS JOIN generate_series(1, 4) AS p (priority)
		CROSS JOIN LATERAL (
			SELECT 1
			FROM kagzi.workflow_runs r
			WHERE r.task_queue = w.task_queue AND r.namespace_id = $1 AND r.workflow_type = w.workflow_type
				AND r.priority = p.priority AND ` + clause.Claimable + `
				AND r.available_at <= horizon.until
			LIMIT $4::bigint
		) k
		LIMIT $4::bigint
	) k
)
FROM horizon`

const (
	maxMoving = 20_000         // runs that move, or are due soon: if there are more, lists walk down the key
	clockSlip = 24 * time.Hour // how far the time in a run's ID may be from the time at which it was created
)

// List returns runs from new to old. A tx that is not nil reads them.
func (s *Lists) List(ctx context.Context, tx pgx.Tx, f Filter) (out []*store.Run, err error) {
	read := func(ctx context.Context, db pg.DB) error {
		statement, args, err := s.listing(ctx, db, f)
		if err != nil || statement == "" {
			return err
		}
		return pg.AskPlanned(ctx, db, statement, args, func(rows pgx.Rows) (err error) {
			out, err = store.ReadRuns(rows)
			return err
		})
	}
	if tx != nil {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return read(ctx, tx) })
	} else {
		err = pg.Do(ctx, func(ctx context.Context) error { return read(ctx, s.pool) })
	}
	return out, pg.Wrap("list runs", err)
}

// listing returns the statement that lists the runs that f selects; none if there can be no such run.
func (s *Lists) listing(ctx context.Context, db pg.DB, f Filter) (statement string, args []any, err error) {
	l := s.selection(&f)
	switch {
	case f.ExternalID != "": // its runs are in two indexes
		statement = l.among(l.all(` AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING')`),
			l.all(` AND r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')`))
	case f.Parent != uuid.Nil: // its index has them in their order, so a page of ten thousand children is read alone
		statement = l.among(`(` + l.all(` ORDER BY r.run_id DESC LIMIT `+l.arg(l.Limit)+`::int`) + `)`)
	case f.Schedule != uuid.Nil, f.Paused, f.MinRecoveries > 0, len(f.IDs) > 0:
		statement = l.among(l.all(""))
	case len(f.Metadata) > 0, f.Key.Name != "":
		statement = l.walk()
	default:
		statement, err = s.merging(ctx, db, l)
	}
	return statement, l.args, err
}

// merging merges the newest runs of each queue and workflow in each of three indexes with those that move, of which
// there are few: if there are many, it walks.
func (s *Lists) merging(ctx context.Context, db pg.DB, l *selection) (string, error) {
	var queues, types []string
	moves := l.has(store.Pending) || l.has(store.Running)
	if moves {
		var err error
		if queues, types, err = s.activePairs(ctx, db); err != nil {
			return "", err
		}
		if len(queues) == clause.MaxQueues {
			return l.walk(), nil
		}
		queues, types = l.pairs(queues, types)
	}
	var until, ahead int64
	var moving int
	if err := pg.AskRow(ctx, db, movingRuns, []any{s.namespace, queues, types, maxMoving}, &until, &ahead,
		&moving); err != nil {
		return "", err
	}
	if moving == maxMoving {
		return l.walk(), nil
	}
	first, last := l.ids(time.Duration(ahead) * time.Microsecond)
	parts := l.resting(first, last)
	if moves {
		citus, err := pg.IsOnCitus(ctx, db)
		if err != nil {
			return "", err
		}
		of := clause.AllQueues
		if citus {
			of = queuesOfNamespace
		}
		parts = append(parts, l.moving(of, until))
	}
	if parts == nil {
		return "", nil
	}
	return l.among(parts...), nil
}

// pairs returns the pairs of queue and workflow that f selects.
func (f *Filter) pairs(queues, types []string) (ofQueues, ofTypes []string) {
	for i := range queues {
		if (f.Queue == "" || queues[i] == f.Queue) && (f.Type == "" || types[i] == f.Type) {
			ofQueues, ofTypes = append(ofQueues, queues[i]), append(ofTypes, types[i])
		}
	}
	return ofQueues, ofTypes
}

// ids returns the first and the last ID that runs created in the time of f may have. Clients make the IDs, by their own
// clocks.
func (f *Filter) ids(ahead time.Duration) (first, last uuid.UUID) {
	last = uuid.Max
	if !f.Created.From.IsZero() {
		first = pg.IDAt(f.Created.From.Add(-clockSlip - ahead))
	}
	for _, t := range []time.Time{f.Created.Until, f.Ended.Until} {
		if id := pg.IDAt(t.Add(clockSlip)); !t.IsZero() && id.String() < last.String() {
			last = id
		}
	}
	return first, last
}
