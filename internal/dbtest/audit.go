package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// installAudit creates triggers that append every change of a run or a step to kagzi_audit.changes. The changes of one
// run are in the order in which they happened, because every writer of a run's row or steps holds a lock on the run.
// The table has a hash of each output, and no inputs.
const installAudit = `
	CREATE SCHEMA kagzi_audit;

	CREATE TABLE kagzi_audit.changes (
		change_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		at           timestamptz NOT NULL DEFAULT clock_timestamp(),
		txid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
		relation     text        NOT NULL,
		operation    text        NOT NULL,
		run_id       uuid        NOT NULL,
		step_id      text,
		attempt      integer,
		old_status   text,
		new_status   text,
		old_lease    uuid,
		new_lease    uuid,
		old          jsonb,
		new          jsonb,
		-- of the connection that made the change
		application  text        NOT NULL DEFAULT current_setting('application_name')
	);
	CREATE INDEX ON kagzi_audit.changes (run_id, change_id);

	CREATE FUNCTION kagzi_audit.record() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		o jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
		n jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
		k jsonb := coalesce(n, o);
	BEGIN
		INSERT INTO kagzi_audit.changes (relation, operation, run_id, step_id, attempt, old_status, new_status,
			old_lease, new_lease, old, new)
		VALUES (TG_TABLE_NAME, TG_OP, (k->>'run_id')::uuid, k->>'step_id', (k->>'attempt_number')::integer,
			o->>'status', n->>'status', (o->>'lease')::uuid, (n->>'lease')::uuid,
			o - 'input' || jsonb_build_object('output', md5(o->>'output')),
			n - 'input' || jsonb_build_object('output', md5(n->>'output')));
		RETURN NULL;
	END $$;

	CREATE TRIGGER kagzi_audit AFTER INSERT OR UPDATE OR DELETE ON kagzi.workflow_runs
		FOR EACH ROW EXECUTE FUNCTION kagzi_audit.record();
	CREATE TRIGGER kagzi_audit AFTER INSERT OR UPDATE OR DELETE ON kagzi.step_runs
		FOR EACH ROW EXECUTE FUNCTION kagzi_audit.record();`

// Audit records every change of a run or a step in this database from now on. [CheckInvariants], called by the test or
// after it, then checks the history as well as the tables. Audit makes writes slower. On Citus it does
// nothing, because its tables cannot have triggers.
func Audit(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if OnCitus() {
		return
	}
	if err := InstallAudit(t.Context(), Owner(t, pool)); err != nil {
		t.Fatalf("install the audit: %v", err)
	}
}

// InstallAudit is [Audit] for programs that are no tests.
func InstallAudit(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, installAudit)
	return err
}

// auditChecks are the checks of the history that Audit recorded.
var auditChecks = []check{
	{"a run's status changes along a legal edge", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, coalesce(old_status, '(none)'), '→',
			new_status)
		FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND operation <> 'DELETE' AND old_status IS DISTINCT FROM new_status
			AND (coalesce(old_status, ''), new_status) NOT IN (VALUES
				('', 'PENDING'), ('', 'RUNNING'), -- the latter by a start whose process executes the run at once
				('PENDING', 'RUNNING'), ('PENDING', 'SLEEPING'), ('PENDING', 'CANCELLED'), ('PENDING', 'FAILED'),
				('SLEEPING', 'RUNNING'), ('SLEEPING', 'PENDING'), ('SLEEPING', 'CANCELLED'), ('SLEEPING', 'FAILED'),
				('RUNNING', 'PENDING'), ('RUNNING', 'SLEEPING'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'),
					('RUNNING', 'CANCELLED'),
				('FAILED', 'PENDING'), ('FAILED', 'SLEEPING'), ('CANCELLED', 'PENDING'), ('CANCELLED', 'SLEEPING'))
			AND NOT (old_status = 'SLEEPING' AND new_status = 'COMPLETED'
				AND coalesce(old->'outcome'->>'status' = 'COMPLETED', false)) -- it was rolled back
		ORDER BY change_id`},

	{"a run that nobody executes fails only at its deadline, or once its compensations have run", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, old_status, '→', new_status,
			new->>'error_kind', 'deadline', new->>'deadline_at')
		FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND old_status IN ('PENDING', 'SLEEPING') AND new_status = 'FAILED'
			AND NOT (new->>'error_kind' = 'deadline' AND coalesce((new->>'deadline_at')::timestamptz <= at, false))
			AND old->>'outcome' IS NULL
		ORDER BY change_id`},

	{"a run that is over does not change", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, old_status, 'changed', string_agg(key, ', '
			ORDER BY key))
		FROM kagzi_audit.changes, LATERAL (SELECT key FROM jsonb_each(old) o FULL JOIN jsonb_each(new) n USING (key)
			WHERE o.value IS DISTINCT FROM n.value) k
		WHERE relation = 'workflow_runs' AND operation = 'UPDATE'
			AND old_status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND new_status = old_status
			AND key IN ('lease', 'finished_at', 'error_kind', 'error', 'attempts', 'version', 'output')
		GROUP BY change_id ORDER BY change_id`},

	{"a run stays in its namespace", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, relation, 'run', run_id, old->>'namespace_id', '→',
			new->>'namespace_id')
		FROM kagzi_audit.changes
		WHERE operation = 'UPDATE' AND (old->>'namespace_id' <> new->>'namespace_id'
			OR old->>'run_id' <> new->>'run_id')
		ORDER BY change_id`},

	{"a lease begins with a claim", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, old_status, '→', new_status, 'lease',
			coalesce(old_lease::text, 'NULL'), '→', new_lease)
		FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND new_lease IS NOT NULL AND new_lease IS DISTINCT FROM old_lease
			AND new_status <> 'RUNNING'
		ORDER BY change_id`},

	{"a lease that ended does not come back", `
		SELECT concat_ws(' ', 'change', c.change_id, 'at', c.at, 'run', c.run_id, 'lease', c.new_lease)
		FROM kagzi_audit.changes c
		WHERE c.relation = 'workflow_runs' AND c.new_lease IS NOT NULL AND c.new_lease IS DISTINCT FROM c.old_lease
			AND EXISTS (SELECT FROM kagzi_audit.changes b WHERE b.relation = 'workflow_runs' AND b.run_id = c.run_id
				AND b.change_id < c.change_id AND b.new_lease = c.new_lease)
		ORDER BY c.change_id`},

	{"a step is written only while its run runs, but for the compensations of one that has an outcome", `
		SELECT concat_ws(' ', 'change', s.change_id, 'at', s.at, 'run', s.run_id, 'step', s.step_id, s.new_status,
			'while the run is', r.new_status)
		FROM kagzi_audit.changes s CROSS JOIN LATERAL (
			SELECT new_status, new->>'outcome' AS outcome, txid FROM kagzi_audit.changes r
			WHERE r.relation = 'workflow_runs' AND r.run_id = s.run_id AND r.change_id < s.change_id
			ORDER BY r.change_id DESC LIMIT 1) r
		WHERE s.relation = 'step_runs' AND s.operation <> 'DELETE' AND r.new_status <> 'RUNNING'
			AND r.txid <> s.txid -- a transaction that writes both may do so in any order
			AND NOT (s.new->>'step_kind' = 'COMPENSATION' AND r.outcome IS NOT NULL)
		ORDER BY s.change_id`},

	{"a recorded result never changes", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, 'step', step_id, 'attempt', attempt,
			old_status, '→', new_status,
			CASE WHEN old->'output' <> new->'output' THEN 'with other output' END)
		FROM kagzi_audit.changes
		WHERE relation = 'step_runs' AND operation = 'UPDATE'
			AND new->>'step_kind' NOT IN ('COMPENSATION', 'VALUE', 'CHECKPOINT')
			AND (old_status IN ('COMPLETED', 'FAILED') AND new_status <> old_status
				OR old_status = 'COMPLETED' AND old->'output' IS DISTINCT FROM new->'output')
		ORDER BY change_id`},

	{"a recorded result goes only with its run", `
		SELECT concat_ws(' ', 'change', s.change_id, 'at', s.at, 'run', s.run_id, 'step', s.step_id, 'attempt',
			s.attempt, s.old_status)
		FROM kagzi_audit.changes s
		WHERE s.relation = 'step_runs' AND s.operation = 'DELETE' AND s.old_status = 'COMPLETED'
			-- records of past epochs, and values that have changed since
			AND left(s.step_id, 1) <> E'\x01' AND s.old->>'step_kind' NOT IN ('VALUE', 'CHECKPOINT')
			AND NOT EXISTS (SELECT FROM kagzi_audit.changes r WHERE r.relation = 'workflow_runs'
				AND r.operation = 'DELETE'
				AND r.run_id = s.run_id AND r.txid = s.txid)
			AND NOT EXISTS (SELECT FROM kagzi_audit.changes r WHERE r.relation = 'workflow_runs' AND r.run_id = s.run_id
				AND r.change_id < s.change_id
				AND r.new->>'waiting_on' = '[{"kind": "deletion"}]') -- a run that cannot be resumed any more
		ORDER BY s.change_id`},

	{"a run that is being deleted stays over", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, old_status, '→', new_status)
		FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND operation = 'UPDATE' AND old->>'waiting_on' = '[{"kind": "deletion"}]'
			AND (new_status <> old_status OR new->>'waiting_on' IS DISTINCT FROM '[{"kind": "deletion"}]')
		ORDER BY change_id`},

	{"a run is deleted after its parent", `
		SELECT concat_ws(' ', 'change', c.change_id, 'at', c.at, 'run', c.run_id, 'parent', c.old->>'parent_run_id')
		FROM kagzi_audit.changes c
		WHERE c.relation = 'workflow_runs' AND c.operation = 'DELETE' AND c.old->>'parent_run_id' IS NOT NULL
			AND (SELECT p.operation FROM kagzi_audit.changes p WHERE p.relation = 'workflow_runs'
				AND p.run_id = (c.old->>'parent_run_id')::uuid AND p.change_id < c.change_id
				ORDER BY p.change_id DESC LIMIT 1) IN ('INSERT', 'UPDATE')
			AND NOT EXISTS (SELECT FROM kagzi_audit.changes p WHERE p.relation = 'workflow_runs'
				AND p.operation = 'DELETE'
				AND p.run_id = (c.old->>'parent_run_id')::uuid AND p.txid = c.txid)
		ORDER BY c.change_id`},

	{"only a run that is over is deleted", `
		SELECT concat_ws(' ', 'change', change_id, 'at', at, 'run', run_id, old_status)
		FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND operation = 'DELETE' AND old_status IN ('PENDING', 'RUNNING', 'SLEEPING')
		ORDER BY change_id`},
}
