package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// An application's transaction that changes a consumer locks its row until its end, however long that takes. Claims
// leave such a consumer out (startConsumers), and flushes the ends of its runs.

// runOfConsumer is the external ID of a consumer's runs, of which one is active at a time, without its name.
const runOfConsumer = `'consumer ' || `

// RunOfConsumer returns the external ID of a consumer's runs.
func RunOfConsumer(consumer string) string { return "consumer " + consumer }

const lockConsumerOfRun = `
SELECT c.consumer, coalesce(c.run_id = $2, false), r.status = 'COMPLETED'
FROM (
	SELECT q.external_id, q.workflow_type, q.status FROM kagzi.workflow_runs q WHERE q.run_id = $2
		AND q.namespace_id = $1 OFFSET 0
) r
CROSS JOIN LATERAL (
	SELECT x.consumer, x.run_id FROM kagzi.consumers x WHERE x.consumer = r.workflow_type AND x.namespace_id = $1
		AND r.external_id = ` + runOfConsumer + `x.consumer
	FOR UPDATE
) c`

// A consumerOfRun is the consumer to which a run belongs.
type consumerOfRun struct {
	name      string // empty: it belongs to none
	last      bool   // no later run of the consumer has begun
	completed bool   // the run has
}

// lockConsumer locks the consumer of the run until the end of tx, so that no claim starts another one.
func (s *conn) lockConsumer(ctx context.Context, tx pgx.Tx, run uuid.UUID) (c consumerOfRun, err error) {
	err = pg.AskRow(ctx, tx, lockConsumerOfRun, []any{s.namespace, run}, &c.name, &c.last, &c.completed)
	if errors.Is(err, pgx.ErrNoRows) {
		return consumerOfRun{}, nil
	}
	return c, err
}

const adoptRun = `UPDATE kagzi.consumers x SET run_id = $3, noticed_at = NULL WHERE x.consumer = $2
	AND x.namespace_id = $1`
