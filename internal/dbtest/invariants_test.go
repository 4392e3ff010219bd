package dbtest

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// goodHistory violates no invariant, and has rows for every check.
const goodHistory = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, external_id, task_queue, workflow_type, status, available_at,
		locked_by, lease, error_kind, created_at, started_at, finished_at, schedule_id, fire_at)
	VALUES
		('00000000-0000-0000-0000-000000000001', 'ns', 'key', 'q', 'w', 'COMPLETED', NULL,
			'10000000-0000-0000-0000-000000000001', '20000000-0000-0000-0000-000000000001', NULL, '2026-01-01 10:00',
				'2026-01-01 10:00', '2026-01-01 11:00', NULL, NULL),
		('00000000-0000-0000-0000-000000000002', 'ns', 'key', 'q', 'w', 'RUNNING', '2026-01-01 10:05',
			'10000000-0000-0000-0000-000000000001', '20000000-0000-0000-0000-000000000002', NULL, '2026-01-01 10:00',
				'2026-01-01 10:00', NULL, NULL, NULL),
		('00000000-0000-0000-0000-000000000003', 'ns', NULL, 'q', 'w', 'FAILED', NULL,
			NULL, '20000000-0000-0000-0000-000000000003', 'panic', '2026-01-01 10:00', '2026-01-01 10:00',
				'2026-01-01 11:00', NULL, NULL),
		('00000000-0000-0000-0000-000000000004', 'other', 'key', 'q', 'w', 'SLEEPING', 'infinity',
			NULL, NULL, NULL, '2026-01-01 10:00', '2026-01-01 10:00', NULL, NULL, NULL),
		('00000000-0000-0000-0000-000000000006', 'ns', NULL, 'q', 'w', 'PENDING', '2026-01-01 12:00',
			NULL, NULL, NULL, '2026-01-01 10:00', NULL, NULL, '00000000-0000-0000-0000-000000000005',
				'2026-01-01 12:00'),
		('00000000-0000-0000-0000-000000000007', 'ns', NULL, 'q', 'w', 'CANCELLED', NULL,
			NULL, NULL, NULL, '2026-01-01 10:00', NULL, '2026-01-01 11:00', '00000000-0000-0000-0000-000000000005',
				'2026-01-01 11:00');

	INSERT INTO kagzi.schedules (schedule_id, namespace_id, name, cron_expr, max_catchup, timing, paused, cursor_at,
		next_at, task_queue, workflow_type, priority)
	VALUES ('00000000-0000-0000-0000-000000000005', 'ns', 'daily', '0 12 * * *', 0, '{}', false, '2026-01-01 12:00',
		'2026-01-02 12:00', 'q', 'w', 3);

	INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
		first_attempt, output, wake_at, started_at, finished_at)
	VALUES
		('00000000-0000-0000-0000-000000000001', 'ns', 'fetch', 1, 'FAILED', 'FUNCTION', 1, 1, NULL, '2026-01-01 10:02',
			'2026-01-01 10:00', '2026-01-01 10:01'),
		('00000000-0000-0000-0000-000000000001', 'ns', 'fetch', 2, 'COMPLETED', 'FUNCTION', 1, 1, 'out', NULL,
			'2026-01-01 10:02', '2026-01-01 10:03'),
		('00000000-0000-0000-0000-000000000001', 'ns', 'nap', 1, 'COMPLETED', 'SLEEP', 1, 1, NULL, '2026-01-01 10:10',
			'2026-01-01 10:03', '2026-01-01 10:10'),
		('00000000-0000-0000-0000-000000000001', 'ns', 'last', 1, 'COMPLETED', 'FUNCTION', 1, 1, 'out', NULL,
			'2026-01-01 10:59', '2026-01-01 11:00'),
		('00000000-0000-0000-0000-000000000002', 'ns', 'fetch', 1, 'RUNNING', 'FUNCTION', 1, 1, NULL, NULL,
			'2026-01-01 10:00', NULL);

	INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
		first_attempt, sequence, started_at, finished_at)
	VALUES ('00000000-0000-0000-0000-000000000002', 'ns', 'approved', 1, 'COMPLETED', 'SIGNAL', 1, 1, 1,
		'2026-01-01 10:01', '2026-01-01 10:01');

	INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, consumed_by)
	VALUES ('00000000-0000-0000-0000-000000000002', 'approved', 1, 'ns', 'one', 'approved'),
		('00000000-0000-0000-0000-000000000002', 'approved', 2, 'ns', 'two', NULL);

	INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event)
	VALUES ('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-000000000001', 'ns', 'RESUMED');`

// withoutUniqueness removes the constraints by which Postgres itself would refuse a violation.
const withoutUniqueness = `
	DROP INDEX kagzi.workflow_runs_active_external_id;
	DROP INDEX kagzi.workflow_runs_fire;
	DROP INDEX kagzi.workflow_runs_group_slot;`

// Each history differs from the good one by a violation that its check must find.
func TestTableChecks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		invariant string // of the check that reports it; "" for none
		change    string
	}{
		{"Good", "", ``},
		{
			"TwoResults", "a step has at most one recorded result",
			`UPDATE kagzi.step_runs SET status = 'COMPLETED' WHERE step_id = 'fetch' AND attempt_number = 1`,
		},
		{
			"AttemptAfterResult", "a step with a recorded result is not attempted again",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt)
			VALUES ('00000000-0000-0000-0000-000000000001', 'ns', 'fetch', 3, 'RUNNING', 'FUNCTION', 1, 1)`,
		},
		{
			"TwoActiveRuns", "an external ID has at most one active run",
			`UPDATE kagzi.workflow_runs SET external_id = 'key' WHERE status = 'PENDING'`,
		},
		{
			"SameIDInOtherNamespace", "",
			`UPDATE kagzi.workflow_runs SET external_id = 'free' WHERE status = 'PENDING'`,
		},
		{
			"TickTwice", "a tick of a schedule has at most one run",
			`UPDATE kagzi.workflow_runs SET fire_at = '2026-01-01 12:00' WHERE schedule_id IS NOT NULL`,
		},
		{
			"OverWithoutEnd", "a run has finished_at exactly if it is over",
			`UPDATE kagzi.workflow_runs SET finished_at = NULL WHERE status = 'CANCELLED'`,
		},
		{
			"EndWithoutBeingOver", "a run has finished_at exactly if it is over",
			`UPDATE kagzi.workflow_runs SET finished_at = now() WHERE status = 'SLEEPING'`,
		},
		{
			"RunningWithoutLease", "a running run has a holder, a lease and an end of it",
			`UPDATE kagzi.workflow_runs SET lease = NULL WHERE status = 'RUNNING'`,
		},
		{
			"RunningWithoutHolder", "a running run has a holder, a lease and an end of it",
			`UPDATE kagzi.workflow_runs SET locked_by = NULL WHERE status = 'RUNNING'`,
		},
		{
			"RunningForEver", "a running run has a holder, a lease and an end of it",
			`UPDATE kagzi.workflow_runs SET available_at = NULL WHERE status = 'RUNNING'`,
		},
		{
			"RunningWithoutSlot", "a running run with a key holds a slot",
			`UPDATE kagzi.workflow_runs SET run_key = 'k', key_scope = 'q' WHERE status = 'RUNNING'`,
		},
		{
			"BeforeTheCursorOfItsKey", "a claim that counts a key's slots finds all of them",
			`UPDATE kagzi.workflow_runs SET run_key = 'k', key_scope = 'q', slot = 1 WHERE status = 'RUNNING';
			INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at, slots_from)
			VALUES ('q', 'k', 'ns', 'infinity', '00000000-0000-0000-0000-00000000000f')`,
		},
		{
			"BeforeTheCursorOfItsQueue", "a claim that counts a queue's slots finds all of them",
			`UPDATE kagzi.workflow_runs SET slot = 1 WHERE status = 'RUNNING';
			INSERT INTO kagzi.queues (task_queue, namespace_id, slots_from)
			VALUES ('q', 'ns', '00000000-0000-0000-0000-00000000000f')`,
		},
		{
			"DueBeforeTheCursor", "a claim that looks at a key finds its waiting runs",
			`UPDATE kagzi.workers SET status = 'OFFLINE';
			UPDATE kagzi.workflow_runs SET run_key = 'k', key_scope = 'q' WHERE status = 'PENDING';
			INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at, waits_from)
			VALUES ('q', 'k', 'ns', 'infinity', '2026-01-02')`,
		},
		{
			"TwoOfAGroup", "a group has at most one run with its slot",
			`UPDATE kagzi.workflow_runs SET run_key = 'k', key_scope = '', slot = 2, namespace_id = 'ns',
				external_id = NULL WHERE status IN ('PENDING', 'SLEEPING')`,
		},
		{
			"PausedAndOver", "a paused run is not over, and not to be cancelled",
			`UPDATE kagzi.workflow_runs SET paused_at = now() WHERE status = 'CANCELLED'`,
		},
		{
			"PausedAndCancelled", "a paused run is not over, and not to be cancelled",
			`UPDATE kagzi.workflow_runs SET paused_at = now(), cancel_requested_at = now() WHERE status = 'PENDING'`,
		},
		{
			"PendingForEver", "a waiting run has available_at",
			`UPDATE kagzi.workflow_runs SET available_at = NULL WHERE status = 'PENDING'`,
		},
		{
			"SleepingForEver", "a waiting run has available_at",
			`UPDATE kagzi.workflow_runs SET available_at = NULL WHERE status = 'SLEEPING'`,
		},
		{
			"FailedForNoReason", "a failed run has an error kind",
			`UPDATE kagzi.workflow_runs SET error_kind = NULL WHERE status = 'FAILED'`,
		},
		{
			"NegativeWakeups", "counters are never negative",
			`UPDATE kagzi.workflow_runs SET wakeups = -1 WHERE status = 'SLEEPING'`,
		},
		{
			"NegativeRecoveries", "counters are never negative",
			`UPDATE kagzi.workflow_runs SET recoveries = -1 WHERE status = 'SLEEPING'`,
		},
		{
			"OutputOfAnActiveRun", "only a run that completed has an output, or failed with details",
			`UPDATE kagzi.workflow_runs SET output = 'out' WHERE run_id = '00000000-0000-0000-0000-000000000002'`,
		},
		{
			"OrphanedSteps", "a run's rows go when it goes",
			`DELETE FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`,
		},
		{
			"OrphanedSignal", "a run's rows go when it goes",
			`UPDATE kagzi.signals SET namespace_id = 'other' WHERE sequence = 2`,
		},
		{
			"ReadByNobody", "a message that was read is in the step that read it",
			`UPDATE kagzi.signals SET consumed_by = 'approved' WHERE sequence = 2`,
		},
		{
			"ReadByNobodyInALaterEpoch", "a message that a later epoch read is in the step that read it",
			`UPDATE kagzi.workflow_runs SET epoch = 1, continued_at = now() - interval '1 minute';
			UPDATE kagzi.signals SET consumed_by = 'approved', consumed_at = now() WHERE sequence = 2`,
		},
		{
			"SetAsideWithoutReason", "a message that was set aside is unread, and says why",
			`UPDATE kagzi.signals SET set_aside_at = now() WHERE sequence = 2`,
		},
		{
			"ReadAndNotMarked", "a step that read a message has marked it",
			`UPDATE kagzi.signals SET consumed_by = NULL`,
		},
		{
			"ReadTwice", "no two steps read one message",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, sequence)
			SELECT run_id, namespace_id, 'approved#2', 1, 'COMPLETED', 'SIGNAL', 1, 1, 1 FROM kagzi.step_runs
				WHERE step_kind = 'SIGNAL'`,
		},
		{
			"ReplyToNothing", "a reply answers a request that was read, once",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, sequence)
			SELECT run_id, namespace_id, 'approved#reply', 1, 'COMPLETED', 'REPLY', 1, 1, 1 FROM kagzi.step_runs
				WHERE step_kind = 'SIGNAL'`,
		},
		{
			"ExpiredSignal", "only a request expires, once its time has come",
			`UPDATE kagzi.signals SET consumed_by = '', consumed_at = now() WHERE sequence = 2`,
		},
		{
			"OrphanedEvent", "a run's rows go when it goes",
			`UPDATE kagzi.run_events SET namespace_id = 'other'`,
		},
		{
			"Child", "",
			`UPDATE kagzi.workflow_runs SET parent_run_id = '00000000-0000-0000-0000-000000000002',
				parent_step_id = 'child'
			WHERE run_id = '00000000-0000-0000-0000-000000000007'; INSERT INTO kagzi.step_runs (run_id, namespace_id,
				step_id, attempt_number, status, step_kind, run_attempt, first_attempt, child_run_id)
			VALUES ('00000000-0000-0000-0000-000000000002', 'ns', 'child', 1, 'RUNNING', 'CHILD_WORKFLOW', 1, 1,
				'00000000-0000-0000-0000-000000000007')`,
		},
		{
			"EndNotTold", "a run that publishes its events has one of its start, and then of its end",
			`UPDATE kagzi.workflow_runs SET publishes = true WHERE run_id = '00000000-0000-0000-0000-000000000007';
			INSERT INTO kagzi.events (topic, event_id, namespace_id, part, position, published_at)
			VALUES ('kagzi.runs', '00000000-0000-0000-0000-000000000007/started', 'ns', 0, 1, now())`,
		},
		{
			"BatchWithAGap", "a batch has items, without gaps, instead of an input, unless it has continued",
			`UPDATE kagzi.workflow_runs SET input = NULL WHERE run_id = '00000000-0000-0000-0000-000000000007';
			INSERT INTO kagzi.start_items (run_id, place, namespace_id, item_id, input)
			SELECT '00000000-0000-0000-0000-000000000007', place, 'ns', gen_random_uuid(), ''
				FROM unnest(ARRAY[0, 2]) AS place`,
		},
		{
			"ChildWithoutAStep", "a child has its parent's step",
			`UPDATE kagzi.workflow_runs SET parent_run_id = '00000000-0000-0000-0000-000000000002',
				parent_step_id = 'child'
			WHERE run_id = '00000000-0000-0000-0000-000000000007'; `,
		},
		{
			"SecondRow", "a key has one row",
			`INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, version, available_at)
			VALUES ('queue', 'twice', 'default', 0, 'infinity'), ('queue', 'twice', 'default', 1, 'infinity')`,
		},
		{
			"LaterChildWithoutAStep", "a child of a later epoch has its parent's step",
			`UPDATE kagzi.workflow_runs SET epoch = 1, continued_at = created_at - interval '1 minute';
			UPDATE kagzi.workflow_runs SET parent_run_id = '00000000-0000-0000-0000-000000000002',
				parent_step_id = 'child'
			WHERE run_id = '00000000-0000-0000-0000-000000000007'; `,
		},
		{
			"StepWithoutItsChild", "a step's child is there, and is its run's unless that is a fork",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, child_run_id)
			VALUES ('00000000-0000-0000-0000-000000000002', 'ns', 'child', 1, 'RUNNING', 'CHILD_WORKFLOW', 1, 1,
				'00000000-0000-0000-0000-000000000007')`,
		},
		{
			"OrphanedChild", "a run that is over has no active children, unless they are detached or end, or " +
				"people must look at it",
			`UPDATE kagzi.workflow_runs SET parent_run_id = '00000000-0000-0000-0000-000000000002',
				parent_step_id = 'child'
			WHERE run_id = '00000000-0000-0000-0000-000000000007'; INSERT INTO kagzi.step_runs (run_id, namespace_id,
				step_id, attempt_number, status, step_kind, run_attempt, first_attempt, child_run_id)
			VALUES ('00000000-0000-0000-0000-000000000002', 'ns', 'child', 1, 'RUNNING', 'CHILD_WORKFLOW', 1, 1,
				'00000000-0000-0000-0000-000000000007');
			UPDATE kagzi.workflow_runs SET status = 'PENDING', finished_at = NULL, available_at = now()
				WHERE run_id = '00000000-0000-0000-0000-000000000007';
			UPDATE kagzi.workflow_runs SET status = 'CANCELLED', finished_at = now(), locked_by = NULL
				WHERE run_id = '00000000-0000-0000-0000-000000000002'`,
		},
		{
			"StepAfterTheEnd", "no step ends after its run",
			`UPDATE kagzi.step_runs SET finished_at = '2026-01-01 11:00:00.000001' WHERE step_id = 'last'`,
		},
		{
			"EarlySleep", "a sleep never ends early",
			`UPDATE kagzi.step_runs SET finished_at = '2026-01-01 10:09:59.999999' WHERE step_id = 'nap'`,
		},
		{
			"EarlyRetry", "a retry never starts before its backoff",
			`UPDATE kagzi.step_runs SET started_at = '2026-01-01 10:01:59.999999' WHERE step_id = 'fetch'
				AND attempt_number = 2`,
		},
		{
			"FirstAttemptMissing", "attempts are numbered from 1 without gaps",
			`DELETE FROM kagzi.step_runs WHERE step_id = 'fetch' AND attempt_number = 1`,
		},
		{
			"AttemptZero", "attempts are numbered from 1 without gaps",
			`UPDATE kagzi.step_runs SET attempt_number = 0 WHERE step_id = 'nap'`,
		},
		{
			"GapInAttempts", "attempts are numbered from 1 without gaps",
			`UPDATE kagzi.step_runs SET attempt_number = 3 WHERE step_id = 'fetch' AND attempt_number = 2`,
		},
		{
			"DoubtOfAnEarlierEpoch", "",
			`UPDATE kagzi.step_runs SET step_id = E'\x011/fetch', status = 'RUNNING', error_kind = 'in_doubt',
				error = 'lost', wake_at = NULL, finished_at = NULL WHERE step_id = 'fetch' AND attempt_number = 2;
			DELETE FROM kagzi.step_runs WHERE step_id = 'fetch'`,
		},
		{
			"Compensated", "",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000007', 'ns', 'a#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					1, '{}', '00000000-0000-0000-0000-0000000000a1', '2026-01-01 10:00'),
				('00000000-0000-0000-0000-000000000007', 'ns', 'b#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					2, '{}', '00000000-0000-0000-0000-0000000000b1', '2026-01-01 10:00');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at, available_at) VALUES
				('00000000-0000-0000-0000-0000000000b1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'b#compensation', true, '2026-01-01 10:02',
					'2026-01-01 10:02', '2026-01-01 10:03', NULL),
				('00000000-0000-0000-0000-0000000000a1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'a#compensation', true, '2026-01-01 10:04',
					'2026-01-01 10:04', '2026-01-01 10:05', NULL)`,
		},
		{
			"HalfCompensated", "a run that ended badly is compensated, all of it",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000007', 'ns', 'a#compensation', 1, 'RUNNING', 'COMPENSATION', 1, 1, 1,
					'{}', NULL, '2026-01-01 10:00'),
				('00000000-0000-0000-0000-000000000007', 'ns', 'b#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					2, '{}', '00000000-0000-0000-0000-0000000000b1', '2026-01-01 10:00');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at, available_at) VALUES
				('00000000-0000-0000-0000-0000000000b1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'b#compensation', true, '2026-01-01 10:02',
					'2026-01-01 10:02', '2026-01-01 10:03', NULL)`,
		},
		{
			"CompensatedInTheWrongOrder", "a run is compensated from its last registration to its first",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000007', 'ns', 'a#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					1, '{}', '00000000-0000-0000-0000-0000000000a1', '2026-01-01 10:00'),
				('00000000-0000-0000-0000-000000000007', 'ns', 'b#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					2, '{}', '00000000-0000-0000-0000-0000000000b1', '2026-01-01 10:00');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at, available_at) VALUES
				('00000000-0000-0000-0000-0000000000b1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'b#compensation', true, '2026-01-01 10:02',
					'2026-01-01 10:02', '2026-01-01 10:05', NULL),
				('00000000-0000-0000-0000-0000000000a1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'a#compensation', true, '2026-01-01 10:04',
					'2026-01-01 10:04', '2026-01-01 10:05', NULL)`,
		},
		{
			"CompletedAndCompensated", "a run that completes is not compensated, unless it is rolled back",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000001', 'ns', 'a#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					1, '{}', '00000000-0000-0000-0000-0000000000a1', '2026-01-01 10:00');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at, available_at) VALUES
				('00000000-0000-0000-0000-0000000000a1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000001', 'a#compensation', true, '2026-01-01 10:02',
					'2026-01-01 10:02', '2026-01-01 10:03', NULL)`,
		},
		{
			"CompensatedBeforeItsChild", "the compensations of children are over before those of their parent begin",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000007', 'ns', 'a#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					1, '{}', '00000000-0000-0000-0000-0000000000a1', '2026-01-01 10:00'),
				('00000000-0000-0000-0000-000000000007', 'ns', 'kid', 1, 'COMPLETED', 'CHILD_WORKFLOW', 1, 1, 0, NULL,
					'00000000-0000-0000-0000-0000000000b1', '2026-01-01 10:00');
			UPDATE kagzi.step_runs SET finished_at = '2026-01-01 10:00' WHERE step_id IN ('kid', 'a#compensation');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at) VALUES
				('00000000-0000-0000-0000-0000000000b1', 'ns', 'q', 'kid', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'kid', false, '2026-01-01 10:02', '2026-01-01 10:02',
					'2026-01-01 10:05'),
				('00000000-0000-0000-0000-0000000000a1', 'ns', 'q', 'undo', 'COMPLETED',
					'00000000-0000-0000-0000-000000000007', 'a#compensation', true, '2026-01-01 10:04',
					'2026-01-01 10:04', '2026-01-01 10:05')`,
		},
		{
			"CompensationThatNobodyWaitsFor", "a compensation that is under way has a run that waits for it",
			`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
				first_attempt, position, call, child_run_id, started_at) VALUES
				('00000000-0000-0000-0000-000000000007', 'ns', 'a#compensation', 1, 'COMPLETED', 'COMPENSATION', 1, 1,
					1, '{}', '00000000-0000-0000-0000-0000000000a1', '2026-01-01 10:00');
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				parent_step_id, detached, created_at, started_at, finished_at, available_at) VALUES
				('00000000-0000-0000-0000-0000000000a1', 'ns', 'q', 'undo', 'PENDING',
					'00000000-0000-0000-0000-000000000007', 'a#compensation', true, '2026-01-01 10:02',
					'2026-01-01 10:02', NULL, now())`,
		},
	}
	pool := Pool(t, Unchecked(), AsOwner())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			exec(t, tx, goodHistory)
			exec(t, tx, withoutUniqueness)
			exec(t, tx, tt.change)
			found, err := runChecks(t.Context(), tx, slices.Concat(tableChecks, timeChecks))
			if err != nil {
				t.Fatal(err)
			}
			checkFound(t, found, tt.invariant)
		})
	}
	broken := map[string]bool{}
	for _, tt := range tests {
		broken[tt.invariant] = true
	}
	for _, c := range slices.Concat(tableChecks, timeChecks) {
		if !broken[c.invariant] {
			t.Errorf("no test breaks %q", c.invariant)
		}
	}
}

// checkFound fails the test unless found has violations of this invariant and of no other.
func checkFound(t *testing.T, found []string, invariant string) {
	t.Helper()
	if invariant == "" {
		if len(found) > 0 {
			t.Errorf("a good history was reported: %q", found)
		}
		return
	}
	if len(found) == 0 {
		t.Error("the violation was not found")
	}
	for _, violation := range found {
		t.Log(violation)
		if !strings.HasPrefix(violation, invariant+": ") {
			t.Errorf("found another violation: %s", violation)
		}
	}
}

func TestManyViolationsAreCut(t *testing.T) {
	t.Parallel()
	pool := Pool(t, Unchecked())
	for range maxReported + 7 {
		exec(t, pool, strings.Replace(pendingRun, "now()", "NULL", 1))
	}
	found, err := violations(t.Context(), pool, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != maxReported+1 || !strings.HasSuffix(found[maxReported], "and 7 more") {
		t.Errorf("got %q", found)
	}
}
