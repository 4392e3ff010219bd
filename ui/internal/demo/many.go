package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Half of the runs have ended, and the rest sleeps but for the newest. Their times are spread evenly. Those that are
// running have lost their workers.
const insertMany = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		error_kind, error, waiting_on, started_at, finished_at, created_at,
		external_id, input, output, metadata)
	SELECT (lpad(to_hex((extract(epoch FROM k.at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(g % 4096), 3,
		'0') || '8' || substr(md5(g::text), 4, 15))::uuid,
		'default', 'queue-' || g % 3, 'workflow-' || g % 6, 1, k.status,
		CASE k.status WHEN 'SLEEPING' THEN now() + g % 1000000 * interval '1 second' WHEN 'PENDING' THEN k.at
			WHEN 'RUNNING' THEN k.at + interval '5 minutes' END,
		CASE k.status WHEN 'FAILED' THEN (ARRAY['network', 'timeout', 'unavailable', 'card_declined'])[1 + g / 11 % 4]
			WHEN 'CANCELLED' THEN 'cancelled' END,
		CASE k.status WHEN 'FAILED' THEN 'the carrier gave no answer' WHEN 'CANCELLED' THEN 'the customer called' END,
		CASE WHEN k.status = 'SLEEPING' THEN CASE WHEN g % 100 = 1
			THEN '[{"kind": "signal", "name": "approved"}]'::jsonb
			ELSE '[{"kind": "timer", "name": "cooling-off"}]' END END, k.at,
		CASE WHEN k.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN least(k.at + interval '2 seconds', now()) END,
			k.at, CASE WHEN g % 2 = 1 THEN 'order-' || g END,
		'{"order": "42", "note": "an input of the usual length"}', CASE WHEN k.status = 'COMPLETED'
			THEN '{"receipt": 43}'::bytea END,
		CASE WHEN g % 10 = 1 THEN '{"customer": "ada"}'::jsonb END
	FROM generate_series(1, $1::int) AS g
	CROSS JOIN LATERAL (
		SELECT now() - $2::interval + g * ($2::interval / $1::int) AS at, CASE
			WHEN g > $1::int - 1000 AND g % 3 = 0 THEN 'RUNNING' WHEN g > $1::int - 1000 AND g % 3 = 1 THEN 'PENDING'
				WHEN g > $1::int / 4 AND g <= $1::int * 3 / 4 THEN 'SLEEPING'
			WHEN g % 50 = 1 THEN 'FAILED' WHEN g % 70 = 2 THEN 'CANCELLED' ELSE 'COMPLETED' END AS status
		OFFSET 0
	) k
	ON CONFLICT DO NOTHING`

// Many inserts n runs of the time until now, without steps. A million takes about half a minute.
func Many(ctx context.Context, pool *pgxpool.Pool, n int, within time.Duration) error {
	if _, err := pool.Exec(ctx, insertMany, n, within); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `VACUUM ANALYZE kagzi.workflow_runs`)
	return err
}
