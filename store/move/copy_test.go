package move

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The indexes by which a copy finds the runs have all of them, whatever their state.
func TestFindsRunsInEveryState(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.AsOwner(), dbtest.Unchecked())
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, run_key,
			key_scope, slot, paused_at, outcome, waiting_on, started_at, finished_at, quarantined, created_at)
		SELECT gen_random_uuid(), n.name, q.name, 'w', s.status, CASE WHEN s.ended THEN NULL ELSE a.at END,
			k.scope || gen_random_uuid(), k.scope, l.slot, p.at,
			CASE WHEN o.compensates THEN '{"status": "FAILED"}'::jsonb END,
			CASE WHEN o.compensates THEN '[{"kind": "deletion"}]'::jsonb END, b.at, CASE WHEN s.ended THEN now() END,
			o.compensates, now() - interval '1 minute'
		FROM (VALUES ('acme'), ('globex')) n (name)
		CROSS JOIN (VALUES ('default'), ('other')) q (name)
		CROSS JOIN (VALUES ('PENDING', false), ('RUNNING', false), ('SLEEPING', false), ('COMPLETED', true),
			('FAILED', true), ('CANCELLED', true)) s (status, ended)
		CROSS JOIN (VALUES (now()), (now() - interval '1 minute'), (now() + interval '1 hour'), ('infinity')) a (at)
		CROSS JOIN (VALUES (NULL), (''), ('default')) k (scope)
		CROSS JOIN (VALUES (NULL), (1), (2)) l (slot)
		CROSS JOIN (VALUES (NULL), (now())) p (at)
		CROSS JOIN (VALUES (NULL), (now())) b (at)
		CROSS JOIN (VALUES (false), (true)) o (compensates)`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, sql := range []string{findRuns, analyzeRuns} {
			if sql == findRuns {
				if _, err := tx.Exec(t.Context(), setNamespace, "acme"); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		var all, found, wrong int
		err := tx.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM kagzi.workflow_runs WHERE namespace_id = 'acme'),
				(SELECT count(DISTINCT m.run_id) FROM kagzi_moving m JOIN kagzi.workflow_runs r USING (run_id)
					WHERE r.namespace_id = 'acme'),
				(SELECT count(*) FROM kagzi_moving m JOIN kagzi.workflow_runs r USING (run_id)
					WHERE r.namespace_id <> 'acme')`).
			Scan(&all, &found, &wrong)
		if all < 1000 || found != all || wrong != 0 {
			t.Errorf("found %d of %d runs, and %d of another namespace", found, all, wrong)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
