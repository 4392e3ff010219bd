package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// valueID precedes a value's name in the IDs of its records. Names of steps and branches do not contain '#'.
const valueID = "#value:"

// ValueID returns the ID of the record of a value, below those of the branches around the function that sets it.
func ValueID(name string) string { return valueID + name }

// A ValueKey names a value of a run, and the version of it that a caller knows.
type ValueKey struct {
	RunID uuid.UUID
	Name  string
	Known int64 // zero: none
}

// A Value is what a run has set a value to.
type Value struct {
	ValueKey
	Version int64 // zero: the run has not set it, or has not changed it since Known
	Output  []byte
	SetAt   time.Time
	NoRun   bool  // there is no such run
	End     Ended // of the run, without its output; its Status is empty while the run is active
}

// One row for each value that has another version than the caller knows, or will have none, because its run is over.
const findValues = `
SELECT u.place, r.status IS NULL, coalesce(v.position, 0), v.output, v.finished_at,
	CASE WHEN r.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN r.status ELSE '' END, coalesce(r.workflow_type, ''),
	coalesce(r.error_kind, ''), coalesce(r.error, '')
FROM unnest($2::uuid[], $3::text[], $4::bigint[]) WITH ORDINALITY AS u (run_id, step_id, known, place)
LEFT JOIN LATERAL (
	SELECT q.status, q.workflow_type, q.error_kind, q.error
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1
	OFFSET 0
) r ON true
LEFT JOIN LATERAL (
	SELECT s.position, s.output, s.finished_at
	FROM kagzi.step_runs s
	WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_kind = 'VALUE' AND s.position > u.known
		AND (s.step_id = u.step_id OR right(s.step_id, length(u.step_id) + 1) = '/' || u.step_id)
	ORDER BY s.position DESC
	LIMIT 1
) v ON true
WHERE v.position IS NOT NULL OR r.status IS NULL OR r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')`

// Values returns those of the values that have another version than is known, and those that will have none. It takes
// at most the time given; zero means the timeout of every call.
func (s Runs) Values(ctx context.Context, keys []ValueKey, most time.Duration) (found []Value, err error) {
	mode := pg.Mode{Statements: most, Locks: pg.CallTimeout}
	if most == 0 {
		mode = pg.Untimed
	}
	runs, ids, known := make([]uuid.UUID, len(keys)), make([]string, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		runs[i], ids[i], known[i] = k.RunID, ValueID(k.Name), k.Known
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		found = nil
		b := &pgx.Batch{}
		b.Queue(findValues, s.namespace, array(runs), ids, known)
		return pg.Exchange(ctx, s.pool, mode, b, func(rows pgx.Rows) error {
			for rows.Next() {
				var v Value
				var place int
				if err := rows.Scan(&place, &v.NoRun, &v.Version, &v.Output, pg.UTC(&v.SetAt), &v.End.Status,
					&v.End.Type, &v.End.ErrorKind, &v.End.Error); err != nil {
					return err
				}
				v.ValueKey = keys[place-1]
				v.End.RunID = v.RunID
				found = append(found, v)
			}
			return nil
		})
	})
	return found, pg.Wrap("find values", err)
}
