package dbtest

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CheckInvariants fails the test for each violation of Kagzi's invariants in the tables. If [Audit] was called for this
// database, it also checks the recorded history.
func CheckInvariants(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout) // t.Context has ended when cleanups run
	defer cancel()
	found, err := violations(ctx, pool, true)
	if err != nil {
		t.Fatalf("check the invariants: %v", err)
	}
	report(t, found)
}

// Violations is [CheckInvariants] for programs that are no tests. It returns the violations, each as "invariant:
// where", at most a few of each invariant. If no fault has set the server's clock, it is steady; else the invariants
// about times are left out.
func Violations(ctx context.Context, pool *pgxpool.Pool, steady bool) ([]string, error) {
	return violations(ctx, pool, steady)
}

// violations returns the violations that the checks find, each as "invariant: where".
func violations(ctx context.Context, db interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}, steady bool,
) (found []string, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if OnCitus() {
		options.AccessMode = pgx.ReadWrite // for the copy
	}
	// All checks use one snapshot, because another process may still write.
	err = pgx.BeginTxFunc(ctx, db, options,
		func(tx pgx.Tx) error {
			checks := slices.Clone(tableChecks)
			if steady {
				checks = append(checks, timeChecks...)
			}
			var audited bool
			if err := tx.QueryRow(ctx, `SELECT to_regclass('kagzi_audit.changes') IS NOT NULL`).
				Scan(&audited); err != nil {
				return err
			}
			if audited {
				checks = append(checks, auditChecks...)
			}
			if OnCitus() {
				if checks, err = onCopy(ctx, tx, checks); err != nil {
					return err
				}
			}
			found, err = runChecks(ctx, tx, checks)
			return err
		})
	return found, err
}

// tableChecks are the checks of the tables alone.
var tableChecks = []check{
	// A group is decided anew once a failure in it, or that it was too late, is forgotten.
	{"a step has at most one recorded result", `
		SELECT concat_ws(' ', 'run', run_id, 'step', step_id, 'attempts', string_agg(attempt_number::text, ', '
			ORDER BY attempt_number))
		FROM kagzi.step_runs WHERE status = 'COMPLETED'
			AND NOT (step_kind = 'MARKER' AND step_id !~ '#patched:')
		GROUP BY namespace_id, run_id, step_id HAVING count(*) > 1`},

	{"a step with a recorded result is not attempted again", `
		SELECT concat_ws(' ', 'run', s.run_id, 'step', s.step_id, 'attempt', s.attempt_number,
			'follows the result of attempt', c.attempt_number)
		FROM kagzi.step_runs s JOIN kagzi.step_runs c USING (run_id, step_id, namespace_id)
		WHERE c.status = 'COMPLETED' AND s.status <> 'COMPLETED' AND s.attempt_number > c.attempt_number
			AND NOT (c.step_kind = 'MARKER' AND c.step_id !~ '#patched:')`},

	{"an external ID has at most one active run", `
		SELECT concat_ws(' ', 'namespace', namespace_id, 'ID', external_id, 'runs', string_agg(run_id::text, ', '
			ORDER BY run_id))
		FROM kagzi.workflow_runs
		WHERE external_id IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING')
		GROUP BY namespace_id, external_id HAVING count(*) > 1`},

	{"a tick of a schedule has at most one run", `
		SELECT concat_ws(' ', 'schedule', schedule_id, 'tick', fire_at, 'runs', string_agg(run_id::text, ', '
			ORDER BY run_id))
		FROM kagzi.workflow_runs
		WHERE schedule_id IS NOT NULL AND fire_at IS NOT NULL
		GROUP BY namespace_id, schedule_id, fire_at HAVING count(*) > 1`},

	{"a run has finished_at exactly if it is over", `
		SELECT concat_ws(' ', 'run', run_id, 'is', status, 'with finished_at', coalesce(finished_at::text, 'NULL'))
		FROM kagzi.workflow_runs
		WHERE (finished_at IS NOT NULL) <> (status IN ('COMPLETED', 'FAILED', 'CANCELLED'))`},

	{"a running run has a holder, a lease and an end of it", `
		SELECT concat_ws(' ', 'run', run_id, 'has locked_by', coalesce(locked_by::text, 'NULL'),
			'lease', coalesce(lease::text, 'NULL'), 'available_at', coalesce(available_at::text, 'NULL'))
		FROM kagzi.workflow_runs
		WHERE status = 'RUNNING' AND (locked_by IS NULL OR lease IS NULL OR available_at IS NULL)`},

	{"a running run with a key holds a slot", `
		SELECT concat_ws(' ', 'run', run_id, 'with key', run_key, 'of', key_scope)
		FROM kagzi.workflow_runs
		WHERE status = 'RUNNING' AND run_key IS NOT NULL AND slot IS NULL`},

	{"a key has one row", `
		SELECT concat_ws(' ', 'namespace', namespace_id, 'key', run_key, 'of', key_scope, 'has', count(*))
		FROM kagzi.run_keys GROUP BY namespace_id, key_scope, run_key HAVING count(*) > 1`},

	{"a claim that counts a key's slots finds all of them", `
		SELECT concat_ws(' ', 'run', r.run_id, 'with key', r.run_key, 'of', r.key_scope, 'is before', k.slots_from)
		FROM kagzi.workflow_runs r JOIN kagzi.run_keys k USING (key_scope, run_key, namespace_id)
		WHERE r.slot IS NOT NULL AND (r.status = 'RUNNING' OR r.slot = 2 AND r.status IN ('PENDING', 'SLEEPING'))
			AND r.run_id < k.slots_from`},

	{"a claim that counts a queue's slots finds all of them", `
		SELECT concat_ws(' ', 'run', r.run_id, 'of queue', r.task_queue, 'is before', q.slots_from)
		FROM kagzi.workflow_runs r JOIN kagzi.queues q USING (task_queue, namespace_id)
		WHERE r.slot IS NOT NULL AND (r.status = 'RUNNING' OR r.slot = 2 AND r.status IN ('PENDING', 'SLEEPING'))
			AND r.run_id < q.slots_from`},

	// A worker that has not stopped may hand the key to its next claim.
	{"a claim that looks at a key finds its waiting runs", `
		SELECT concat_ws(' ', 'run', r.run_id, 'with key', r.run_key, 'of', r.key_scope, 'is due at', r.available_at,
			'before', k.waits_from)
		FROM kagzi.workflow_runs r JOIN kagzi.run_keys k USING (key_scope, run_key, namespace_id)
		WHERE r.status IN ('PENDING', 'SLEEPING') AND r.slot IS DISTINCT FROM 2 AND r.paused_at IS NULL
			AND r.outcome IS NULL AND r.available_at < k.waits_from
			AND NOT EXISTS (SELECT FROM kagzi.key_changes c WHERE c.key_scope = r.key_scope AND c.run_key = r.run_key
				AND c.namespace_id = r.namespace_id AND c.due_at <= r.available_at)
			AND NOT EXISTS (SELECT FROM kagzi.workers w WHERE w.namespace_id = r.namespace_id
				AND (w.status <> 'OFFLINE' OR w.recheck_keys))`},

	{"a group has at most one run with its slot", `
		SELECT concat_ws(' ', 'namespace', namespace_id, 'group', run_key, 'runs', string_agg(run_id::text, ', '
			ORDER BY run_id))
		FROM kagzi.workflow_runs
		WHERE key_scope = '' AND (status = 'RUNNING' OR slot = 2 AND status IN ('PENDING', 'SLEEPING'))
		GROUP BY namespace_id, run_key HAVING count(*) > 1`},

	{"a paused run is not over, and not to be cancelled", `
		SELECT concat_ws(' ', 'run', run_id, 'is', status, 'and paused since', paused_at, 'cancel requested',
			cancel_requested_at)
		FROM kagzi.workflow_runs
		WHERE paused_at IS NOT NULL AND (finished_at IS NOT NULL OR cancel_requested_at IS NOT NULL)`},

	{"a waiting run has available_at", `
		SELECT concat_ws(' ', 'run', run_id, 'is', status)
		FROM kagzi.workflow_runs
		WHERE status IN ('PENDING', 'SLEEPING') AND available_at IS NULL`},

	{"a failed run has an error kind", `
		SELECT concat_ws(' ', 'run', run_id)
		FROM kagzi.workflow_runs WHERE status = 'FAILED' AND coalesce(error_kind, '') = ''`},

	{"counters are never negative", `
		SELECT concat_ws(' ', 'run', run_id, 'wakeups', wakeups, 'recoveries', recoveries, 'attempts', attempts)
		FROM kagzi.workflow_runs WHERE wakeups < 0 OR recoveries < 0 OR attempts < 0 OR load_failures < 0`},

	{"only a run that completed has an output, or failed with details", `
		SELECT concat_ws(' ', 'run', run_id, 'is', status)
		FROM kagzi.workflow_runs
		WHERE status NOT IN ('COMPLETED', 'FAILED') AND output IS NOT NULL
			AND (status = 'CANCELLED' OR outcome ->> 'status' IS DISTINCT FROM 'FAILED')`},

	{"a run's rows go when it goes", `
		SELECT concat_ws(' ', a.what, 'of run', a.run_id, 'in namespace', a.namespace_id)
		FROM (
			SELECT 'step ' || step_id AS what, run_id, namespace_id FROM kagzi.step_runs
			UNION ALL SELECT 'signal ' || name, run_id, namespace_id FROM kagzi.signals
			UNION ALL SELECT 'event ' || event, run_id, namespace_id FROM kagzi.run_events WHERE event <> 'DELETED'
			UNION ALL SELECT 'item ' || place, run_id, namespace_id FROM kagzi.start_items
		) a LEFT JOIN kagzi.workflow_runs r USING (run_id, namespace_id)
		WHERE r.run_id IS NULL`},

	{"a run that publishes its events has one of its start, and then of its end", `
		SELECT concat_ws(' ', 'run', r.run_id, 'is', r.status, 'start', coalesce(b.position::text, 'NULL'), 'end',
			coalesce(e.position::text, 'NULL'))
		FROM kagzi.workflow_runs r
		LEFT JOIN kagzi.events b ON b.topic = 'kagzi.runs' AND b.namespace_id = r.namespace_id
			AND b.event_id = r.run_id || '/started'
		LEFT JOIN kagzi.events e ON e.topic = 'kagzi.runs' AND e.namespace_id = r.namespace_id
			AND e.event_id = r.run_id || '/ended/' || (extract(epoch FROM r.finished_at) * 1000000)::bigint
		WHERE r.publishes AND (b.position IS NULL OR e.position < b.position
			OR (r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')) <> (e.position IS NOT NULL))`},

	{"a batch has items, without gaps, instead of an input, unless it has continued", `
		SELECT concat_ws(' ', 'run', r.run_id, 'has', i.items, 'items up to', i.last)
		FROM kagzi.workflow_runs r
		CROSS JOIN LATERAL (
			SELECT count(*) AS items, coalesce(max(i.place), -1) AS last FROM kagzi.start_items i
				WHERE i.run_id = r.run_id AND i.namespace_id = r.namespace_id
		) i
		WHERE i.last <> i.items - 1 OR r.input IS NOT NULL AND i.items > 0 AND r.epoch = 0`},

	{"a child has its parent's step", childrenWithoutStep + `p.epoch = 0`},

	{"a step's child is there, and is its run's unless that is a fork", `
		SELECT concat_ws(' ', 'run', s.run_id, 'step', s.step_id, 'attempt', s.attempt_number, 'is', s.status,
			'and its child',
			coalesce(s.child_run_id::text, 'NULL'), CASE WHEN c.run_id IS NULL THEN 'is not there'
				ELSE 'has parent ' || c.parent_run_id END)
		FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id, namespace_id)
		LEFT JOIN kagzi.workflow_runs c ON c.run_id = s.child_run_id AND c.namespace_id = s.namespace_id
		WHERE s.step_kind = 'CHILD_WORKFLOW' AND s.status IN ('RUNNING', 'COMPLETED') AND r.origin_run_id IS NULL
			AND (c.run_id IS NULL OR c.parent_run_id IS DISTINCT FROM s.run_id
				OR c.parent_step_id IS DISTINCT FROM regexp_replace(s.step_id, E'^\x01[0-9]+/', ''))`},

	{"a run that is over has no active children, unless they are detached or end, or people must look at it", `
		SELECT concat_ws(' ', 'run', c.run_id, 'is', c.status, 'and its parent', p.run_id, p.status)
		FROM kagzi.workflow_runs c JOIN kagzi.workflow_runs p ON p.run_id = c.parent_run_id
			AND p.namespace_id = c.namespace_id
		WHERE c.parent_step_id IS NOT NULL AND NOT c.detached AND c.status IN ('PENDING', 'SLEEPING', 'RUNNING')
			AND c.cancel_requested_at IS NULL AND NOT (c.status = 'SLEEPING' AND c.outcome IS NOT NULL)
			AND p.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
			AND NOT p.quarantined
			AND NOT EXISTS (SELECT FROM kagzi.step_runs s WHERE s.run_id = p.run_id AND s.namespace_id = p.namespace_id
				AND s.child_run_id = c.run_id AND s.status <> 'RUNNING')`},

	{"a message that was read is in the step that read it", messagesWithoutStep + `r.epoch = 0`},

	{"a message that was set aside is unread, and says why", `
		SELECT concat_ws(' ', 'run', g.run_id, 'signal', g.name, 'message', g.sequence, 'read by', g.consumed_by)
		FROM kagzi.signals g
		WHERE (g.set_aside_at IS NULL) <> (g.set_aside IS NULL) OR g.set_aside_at IS NOT NULL
			AND g.consumed_by IS NOT NULL`},

	{"a step that read a message has marked it", `
		SELECT concat_ws(' ', 'run', s.run_id, 'step', s.step_id, 'message', s.sequence)
		FROM kagzi.step_runs s
		WHERE s.step_kind IN ('SIGNAL', 'REQUEST', 'ASK', 'EVENT', 'FUNCTION') AND s.sequence IS NOT NULL
			AND s.step_id > E'\x02'
			AND NOT EXISTS (
			SELECT FROM kagzi.signals g
			WHERE g.run_id = s.run_id AND g.namespace_id = s.namespace_id AND g.sequence = s.sequence
				AND g.consumed_by IS NOT NULL)`},

	{"no two steps read one message", `
		SELECT concat_ws(' ', 'run', run_id, 'message', sequence, 'steps', string_agg(step_id, ', ' ORDER BY step_id))
		FROM kagzi.step_runs
		WHERE step_kind IN ('SIGNAL', 'REQUEST', 'ASK', 'EVENT', 'FUNCTION') AND sequence IS NOT NULL
			AND step_id > E'\x02'
		GROUP BY namespace_id, run_id, sequence HAVING count(*) > 1`},

	{"only a request expires, once its time has come", `
		SELECT concat_ws(' ', 'run', g.run_id, 'message', g.sequence)
		FROM kagzi.signals g
		WHERE g.consumed_by = ''
			AND NOT coalesce(g.payload_hash IS NOT NULL AND g.consumed_at >= g.expires_at, false)`},

	{"a reply answers a request that was read, once", `
		SELECT concat_ws(' ', 'run', s.run_id, 'request', s.sequence, 'steps', string_agg(s.step_id, ', '
			ORDER BY s.step_id))
		FROM kagzi.step_runs s
		LEFT JOIN kagzi.signals g ON g.run_id = s.run_id AND g.namespace_id = s.namespace_id AND g.sequence = s.sequence
			AND g.payload_hash IS NOT NULL AND g.consumed_by <> ''
		WHERE s.step_kind = 'REPLY'
		GROUP BY s.namespace_id, s.run_id, s.sequence HAVING count(*) > 1 OR count(g.run_id) = 0`},

	{"attempts are numbered from 1 without gaps", `
		SELECT concat_ws(' ', 'run', run_id, 'step', step_id, 'attempts', string_agg(attempt_number::text, ', '
			ORDER BY attempt_number))
		FROM kagzi.step_runs
		WHERE step_id NOT LIKE E'\x01%' -- of an earlier epoch an attempt may be left that was in doubt
		GROUP BY namespace_id, run_id, step_id HAVING min(attempt_number) <> 1 OR max(attempt_number) <> count(*)`},

	{"a run that ended badly is compensated, all of it", `
		SELECT concat_ws(' ', 'run', r.run_id, 'is', r.status, r.error_kind, 'and its compensation', c.step_id, 'is',
			c.status)
		FROM kagzi.workflow_runs r JOIN (
			SELECT DISTINCT ON (run_id, step_id) * FROM kagzi.step_runs
			WHERE step_kind = 'COMPENSATION' AND call IS NOT NULL ORDER BY run_id, step_id, attempt_number DESC
		) c USING (run_id, namespace_id)
		WHERE c.status <> 'COMPLETED'
			AND (r.status = 'CANCELLED' AND coalesce(r.error, '') NOT LIKE 'run was terminated%'
			OR r.status = 'FAILED' AND NOT r.quarantined AND r.error_kind <> 'compensation'
			OR r.status = 'COMPLETED' AND r.outcome IS NOT NULL)`},

	{"a run that completes is not compensated, unless it is rolled back", `
		SELECT concat_ws(' ', 'run', r.run_id, 'compensation', c.step_id, 'run', c.child_run_id)
		FROM kagzi.workflow_runs r JOIN kagzi.step_runs c USING (run_id, namespace_id)
		WHERE r.status = 'COMPLETED' AND c.step_kind = 'COMPENSATION' AND c.child_run_id IS NOT NULL
			AND r.outcome ->> 'status' IS DISTINCT FROM 'COMPLETED'`},

	{"a compensation that is under way has a run that waits for it", `
		SELECT concat_ws(' ', 'run', c.run_id, 'is', c.status, 'and its parent', r.run_id, r.status)
		FROM kagzi.workflow_runs c JOIN kagzi.workflow_runs r ON r.run_id = c.parent_run_id
			AND r.namespace_id = c.namespace_id
		WHERE c.parent_step_id LIKE '%#compensation' AND c.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
			AND (r.status <> 'SLEEPING' OR r.outcome IS NULL)
			AND NOT EXISTS (SELECT FROM kagzi.run_events e WHERE e.run_id = c.run_id AND e.event = 'RESUMED')`},
}

// The records of a run's past epochs may be gone. That a row is of its present one, only times say.
const (
	childrenWithoutStep = `
		SELECT concat_ws(' ', 'run', c.run_id, 'of parent', c.parent_run_id, 'step', c.parent_step_id)
		FROM kagzi.workflow_runs c JOIN kagzi.workflow_runs p ON p.run_id = c.parent_run_id
			AND p.namespace_id = c.namespace_id
		WHERE c.parent_step_id IS NOT NULL AND p.waiting_on IS DISTINCT FROM '[{"kind": "deletion"}]'
			AND NOT EXISTS (SELECT FROM kagzi.step_runs s WHERE s.run_id = p.run_id AND s.namespace_id = p.namespace_id
				AND s.step_id = c.parent_step_id AND (s.step_kind = 'CHILD_WORKFLOW' AND s.child_run_id = c.run_id
					OR s.step_kind = 'COMPENSATION')) AND `

	messagesWithoutStep = `
		SELECT concat_ws(' ', 'run', g.run_id, 'signal', g.name, 'message', g.sequence, 'read by', g.consumed_by)
		FROM kagzi.signals g JOIN kagzi.workflow_runs r USING (run_id, namespace_id)
		WHERE g.consumed_by <> '' AND NOT EXISTS (
			SELECT FROM kagzi.step_runs s
			WHERE s.run_id = g.run_id AND s.namespace_id = g.namespace_id AND s.step_id = g.consumed_by
				AND (s.step_kind IN ('SIGNAL', 'REQUEST', 'ASK', 'EVENT') AND s.status = 'COMPLETED'
					OR s.step_kind = 'FUNCTION') AND s.sequence = g.sequence) AND `
)

// timeChecks are the checks that compare times. They tell nothing if a fault has set the server's clock.
var timeChecks = []check{
	{"a child of a later epoch has its parent's step", childrenWithoutStep + `c.created_at > p.continued_at`},

	{"a message that a later epoch read is in the step that read it", messagesWithoutStep +
		`g.consumed_at > r.continued_at`},

	{"no step ends after its run", `
		SELECT concat_ws(' ', 'run', r.run_id, 'ended', r.finished_at, 'step', s.step_id, 'attempt', s.attempt_number,
			'ended', s.finished_at)
		FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id, namespace_id)
		WHERE r.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND s.finished_at > r.finished_at`},

	{"a sleep never ends early", `
		SELECT concat_ws(' ', 'run', run_id, 'step', step_id, 'to wake', wake_at, 'ended',
			coalesce(finished_at::text, 'NULL'))
		FROM kagzi.step_runs
		WHERE step_kind = 'SLEEP' AND status = 'COMPLETED' AND wake_at IS NOT NULL
			AND (finished_at IS NULL OR finished_at < wake_at)`},

	{"a retry never starts before its backoff", `
		SELECT concat_ws(' ', 'run', run_id, 'step', step_id, 'attempt', k.attempt_number, 'to be followed at',
			k.wake_at,
			'was followed at', next.started_at)
		FROM kagzi.step_runs k JOIN kagzi.step_runs next USING (run_id, step_id, namespace_id)
		WHERE next.attempt_number = k.attempt_number + 1 AND k.status = 'FAILED' AND k.step_kind = 'FUNCTION'
			AND next.started_at < k.wake_at`},

	{"a run is compensated from its last registration to its first", `
		SELECT concat_ws(' ', 'run', a.run_id, 'compensation', a.step_id, 'at position', a.position, 'began before',
			b.step_id, 'at position', b.position, 'was over')
		FROM kagzi.step_runs a JOIN kagzi.step_runs b USING (run_id, namespace_id, step_kind)
		JOIN kagzi.workflow_runs ca ON ca.run_id = a.child_run_id AND ca.namespace_id = a.namespace_id
		JOIN kagzi.workflow_runs cb ON cb.run_id = b.child_run_id AND cb.namespace_id = b.namespace_id
		WHERE step_kind = 'COMPENSATION' AND a.position < b.position AND ca.created_at < coalesce(cb.finished_at,
			'infinity')
			AND NOT EXISTS (SELECT FROM kagzi.run_events e WHERE e.run_id IN (a.run_id, cb.run_id)
				AND e.event = 'RESUMED')`},

	{"the compensations of children are over before those of their parent begin", `
		SELECT concat_ws(' ', 'run', c.parent_run_id, 'compensation', c.parent_step_id, 'began before child', k.run_id,
			'was over')
		FROM kagzi.workflow_runs c JOIN kagzi.workflow_runs k ON k.parent_run_id = c.parent_run_id
			AND k.namespace_id = c.namespace_id
		WHERE c.parent_step_id LIKE '%#compensation' AND k.parent_step_id NOT LIKE '%#compensation' AND NOT k.detached
			AND c.created_at < coalesce(k.finished_at, 'infinity')
			AND NOT EXISTS (SELECT FROM kagzi.run_events e WHERE e.run_id = k.run_id AND e.event = 'RESUMED')`},
}
