package inspect

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// readHung reads the column that a worker has written; nil if it has written none.
func readHung(raw json.RawMessage) *store.Hung {
	var h *store.Hung
	if json.Unmarshal(raw, &h) != nil {
		return nil
	}
	return h
}

const hungOfWorker = `SELECT w.worker_id, w.hung FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1
	AND w.status <> 'OFFLINE'`

// The row of a run that is over names no worker.
const hungOfEnded = `
SELECT w.worker_id, w.hung
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.hung IS NOT NULL AND w.hung @> jsonb_build_object('codes',
	jsonb_build_array(jsonb_build_object('run', $2::uuid)))
ORDER BY w.worker_id`

// HungCode returns the functions of the run that hang in the worker that executes it, or, once it is over, in any
// worker.
func (s *Lists) HungCode(ctx context.Context, r *store.Run) (codes []store.HungCode, err error) {
	statement, args := hungOfWorker, []any{s.namespace, r.LockedBy}
	over := r.Status == store.Completed || r.Status == store.Failed || r.Status == store.Cancelled
	switch {
	case over && !r.StartedAt.IsZero():
		statement, args = hungOfEnded, []any{s.namespace, r.RunID}
	case r.Status != store.Running || r.LockedBy == uuid.Nil:
		return nil, nil
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		codes = nil
		return pg.Ask(ctx, s.pool, statement, args, func(rows pgx.Rows) error {
			var worker uuid.UUID
			var raw json.RawMessage
			_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&worker), &raw}, func() error {
				h := readHung(raw)
				if h == nil {
					return nil
				}
				for _, c := range h.Codes {
					if c.RunID == r.RunID && (over || c.Lease == r.Lease) {
						c.Worker = worker
						codes = append(codes, c)
					}
				}
				return nil
			})
			return err
		})
	})
	return codes, pg.Wrap("find code that hangs", err)
}

// The row that shows an attempt stays after the death of its worker.
const stepsUnderWay = `
SELECT s.step_id
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.status = 'RUNNING' AND s.step_kind = 'FUNCTION' AND s.worker_id = $3
	AND ` + clause.OwnEpoch + `
ORDER BY s.step_id
LIMIT $4`

// StepsUnderWay returns up to limit of the steps that the run's worker shows as under way.
func (s *Lists) StepsUnderWay(ctx context.Context, r *store.Run, limit int) (steps []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, stepsUnderWay, []any{s.namespace, r.RunID, r.LockedBy, limit},
			pg.Collect(&steps, pgx.RowTo[string]))
	})
	return steps, pg.Wrap("find the steps under way", err)
}
