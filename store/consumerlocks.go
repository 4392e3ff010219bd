package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An application's transaction that changes a consumer locks its row until its end, however long that takes. Claims leave such a consumer
// out (startConsumers), and flushes the ends of its runs.

// Consumers that exist, and that the statement cannot lock.
const heldConsumers = `
WITH u AS MATERIALIZED (
	SELECT DISTINCT u.consumer FROM unnest($2::text[]) AS u (consumer)
), l AS MATERIALIZED (
	SELECT f.consumer
	FROM (SELECT u.consumer FROM u ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT x.consumer FROM kagzi.consumers x WHERE x.consumer = u.consumer AND x.namespace_id = $1
		FOR NO KEY UPDATE SKIP LOCKED
	) f
)
SELECT u.consumer
FROM u
CROSS JOIN LATERAL (SELECT FROM kagzi.consumers x WHERE x.consumer = u.consumer AND x.namespace_id = $1 OFFSET 0) x
WHERE (SELECT count(*) FROM l WHERE l.consumer = u.consumer) = 0`

// heldConsumers locks the consumers whose runs complete, and returns those that another transaction has locked.
func (s *Store) heldConsumers(ctx context.Context, tx pgx.Tx, finishes []*Finish) (held []string, err error) {
	ends, _ := consumerEnds(finishes)
	if len(ends) == 0 {
		return nil, nil
	}
	names := make([]string, len(ends))
	for i, e := range ends {
		names[i] = e.Consumed.Consumer
	}
	err = ask(ctx, tx, heldConsumers, []any{s.namespace, names}, collect(&held, pgx.RowTo[string]))
	return held, err
}

const lockConsumerOfRun = `
SELECT c.consumer, coalesce(c.run_id = $2, false), r.status = 'COMPLETED'
FROM (
	SELECT q.external_id, q.workflow_type, q.status FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 OFFSET 0
) r
CROSS JOIN LATERAL (
	SELECT x.consumer, x.run_id FROM kagzi.consumers x WHERE x.consumer = r.workflow_type AND x.namespace_id = $1 AND r.external_id = ` + runOfConsumer + `x.consumer
	FOR UPDATE
) c`

// A consumerOfRun is the consumer to which a run belongs.
type consumerOfRun struct {
	name      string // empty: it belongs to none
	last      bool   // no later run of the consumer has begun
	completed bool   // the run has
}

// lockConsumer locks the consumer of the run until the end of tx, so that no claim starts another one.
func (s *Store) lockConsumer(ctx context.Context, tx pgx.Tx, run uuid.UUID) (c consumerOfRun, err error) {
	err = askRow(ctx, tx, lockConsumerOfRun, []any{s.namespace, run}, &c.name, &c.last, &c.completed)
	if errors.Is(err, pgx.ErrNoRows) {
		return consumerOfRun{}, nil
	}
	return c, err
}

const adoptRun = `UPDATE kagzi.consumers x SET run_id = $3, noticed_at = NULL WHERE x.consumer = $2 AND x.namespace_id = $1`

const keepConsumersOfKey = `SELECT x.consumer FROM kagzi.consumers x WHERE x.run_key = $2 AND x.namespace_id = $1 ORDER BY x.consumer FOR KEY SHARE`

// keepConsumers locks the consumers of a group, whose pause tx changes: no claim pauses it because a run has failed. Runs end nevertheless.
func (s *Store) keepConsumers(ctx context.Context, tx pgx.Tx, p Pause) error {
	if !p.Key.Group {
		return nil
	}
	return ask(ctx, tx, keepConsumersOfKey, []any{s.namespace, p.Key.Name}, nil)
}
