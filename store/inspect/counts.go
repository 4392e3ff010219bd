package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// The fields by which Counts groups, apart from times.
const (
	ByStatus   = "status"
	ByWorkflow = "workflow"
	ByQueue    = "queue"
	ByKind     = "kind"
	ByStep     = "step"
)

// A Grouping says how Counts groups runs. The zero value makes one group of all.
type Grouping struct {
	By      []string
	Started time.Duration // the length of a group's time of starts; zero: they do not matter
	Ended   time.Duration // the same for ends
}

// A RunCount counts the runs of one group. Fields by which it does not group are zero.
type RunCount struct {
	Status  string
	Type    string
	Queue   string
	Kind    string
	Step    string
	Started time.Time // the group has the runs that started from then on
	Ended   time.Time // zero also if the runs are not over
	Runs    int
}

// stepOfRun is the step that a run is at. The failures that ended a run are those that its last attempt has forgotten.
// If it had compensations to run, it has forgotten none: then it is the last one of the same kind. A run that is active
// waits for a step or has one under way.
const stepOfRun = `CASE WHEN r.status = 'FAILED' THEN (
		SELECT s.step_id
		FROM kagzi.step_runs s
		WHERE s.run_id = r.run_id AND s.namespace_id = $1 AND s.status = 'FAILED' AND ` + clause.OwnEpoch + `
			AND s.step_kind IN ('FUNCTION', 'CHILD_WORKFLOW', 'BRANCH')
			AND (s.forgotten_by = r.attempts OR r.outcome IS NOT NULL AND s.forgotten_by IS NULL AND s.wake_at IS NULL
				AND s.error_kind = r.error_kind)
		ORDER BY s.step_kind = 'BRANCH', s.position DESC, s.step_id DESC
		LIMIT 1
	) WHEN r.finished_at IS NULL AND r.waiting_on -> 0 ->> 'kind' = 'limit' THEN (
		SELECT regexp_replace(p.step_id, '#[0-9]+$', '')
		FROM kagzi.limit_places p
		WHERE p.run_id = r.run_id AND p.namespace_id = $1
		ORDER BY p.asked_at
		LIMIT 1
	) WHEN r.finished_at IS NULL AND r.waiting_on -> 0 ->> 'kind' IN ('timer', 'signal', 'child', 'retry',
		'compensation') THEN r.waiting_on -> 0 ->> 'name'
	WHEN r.status = 'RUNNING' THEN (
		SELECT s.step_id
		FROM kagzi.step_runs s
		WHERE s.run_id = r.run_id AND s.namespace_id = $1 AND s.status = 'RUNNING' AND s.step_kind = 'FUNCTION'
			AND ` + clause.OwnEpoch + `
		ORDER BY s.position DESC, s.step_id DESC
		LIMIT 1
	) END`

// counting returns the statement that counts the runs in groups. The namespace has its second collation for the indexes
// of lists. first and last are the run IDs of the times given.
func (l *selection) counting(g Grouping, first, last uuid.UUID) string {
	by, started, ended := l.arg(append([]string{}, g.By...)), l.arg(pg.Micros(g.Started)), l.arg(pg.Micros(g.Ended))
	return `SELECT coalesce(g.status, ''), coalesce(g.workflow_type, ''), coalesce(g.task_queue, ''),
	coalesce(g.error_kind, ''), coalesce(g.step_id, ''), g.started, g.ended, count(*)
FROM (
	SELECT CASE WHEN 'status' = ANY (` + by + `::text[]) THEN r.status END AS status,
		CASE WHEN 'workflow' = ANY (` + by + `::text[]) THEN r.workflow_type END AS workflow_type,
		CASE WHEN 'queue' = ANY (` + by + `::text[]) THEN r.task_queue END AS task_queue,
		CASE WHEN 'kind' = ANY (` + by + `::text[]) THEN r.error_kind END AS error_kind,
		CASE WHEN 'step' = ANY (` + by + `::text[]) THEN ` + stepOfRun + ` END AS step_id,
		CASE WHEN ` + started + `::bigint > 0 THEN date_bin(` + started + `::bigint * interval '1 microsecond',
			r.created_at, timestamptz 'epoch') END AS started,
		CASE WHEN ` + ended + `::bigint > 0 THEN date_bin(` + ended + `::bigint * interval '1 microsecond',
			r.finished_at, timestamptz 'epoch') END AS ended
	FROM kagzi.workflow_runs r
	WHERE r.namespace_id = $1 COLLATE "POSIX" AND ` + l.where + `
		AND r.run_id >= ` + l.arg(first.String()) + `::uuid AND r.run_id <= ` + l.arg(last.String()) + `::uuid
) g
GROUP BY g.status, g.workflow_type, g.task_queue, g.error_kind, g.step_id, g.started, g.ended
ORDER BY 8 DESC, 1, 2, 3, 4, 5, 6, 7
LIMIT ` + l.arg(maxGroups+1) + `::int`
}

// maxGroups is how many groups Counts returns at most.
const maxGroups = 10_000

// ErrTooMuchToCount reports that Counts found more than 10,000 groups, or did not finish in time.
var ErrTooMuchToCount = errors.New("too much to count")

// Counts counts the runs that f selects by the fields and times of g, the largest group first. It ignores After and
// Limit.
func (s *Lists) Counts(ctx context.Context, f Filter, g Grouping) (out []RunCount, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		first, last, err := s.idsOf(ctx, f)
		if err != nil {
			return err
		}
		l := s.selection(&f)
		return pg.AskPlanned(ctx, s.pool, l.counting(g, first, last), l.args, func(rows pgx.Rows) error {
			var c RunCount
			dest := []any{&c.Status, &c.Type, &c.Queue, &c.Kind, &c.Step, pg.UTC(&c.Started), pg.UTC(&c.Ended), &c.Runs}
			_, err := pgx.ForEachRow(rows, dest, func() error {
				out = append(out, c)
				c = RunCount{}
				return nil
			})
			return err
		})
	})
	switch {
	case pg.Code(err) == "57014", errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w in time: %w", ErrTooMuchToCount, err)
	case len(out) > maxGroups:
		out, err = nil, fmt.Errorf("%w: there are more than %d groups", ErrTooMuchToCount, maxGroups)
	}
	return out, pg.Wrap("count runs", err)
}

// In tests, now() may be ahead of Postgres's own clock.
const clockAhead = `SELECT (extract(epoch FROM now() - pg_catalog.now()) * 1000000)::bigint`

// idsOf returns the first and the last ID that runs of f's times may have, so that a count of a day does not read those
// of all years.
func (s *Lists) idsOf(ctx context.Context, f Filter) (first, last uuid.UUID, err error) {
	var ahead int64
	if !f.Created.From.IsZero() || !f.Created.Until.IsZero() || !f.Ended.Until.IsZero() {
		err = pg.AskRow(ctx, s.pool, clockAhead, nil, &ahead)
	}
	first, last = f.ids(time.Duration(ahead) * time.Microsecond)
	return first, last, err
}
