package clause

// PausesOfRuns are the pauses of queues and workflows of the namespace $1. The columns have names of their own, because
// Unstopped compares them with those of a run.
const PausesOfRuns = `pauses AS MATERIALIZED (
	SELECT p.task_queue AS in_queue, p.workflow_type AS of_type
	FROM kagzi.pauses p
	WHERE p.task_queue >= '' AND p.namespace_id = $1
)`

// Unstopped is the condition for a run whose queue and workflow are not paused. It needs PausesOfRuns.
const Unstopped = `(
		SELECT count(*)
		FROM pauses p
		WHERE p.in_queue IN ('', task_queue) AND p.of_type IN ('', workflow_type)
	) = 0`

// KeyUnpaused is the condition for a run whose key is not paused. A claim that is about to be refused may have inserted
// a second row of the key before.
const KeyUnpaused = `(run_key IS NULL OR (
		SELECT count(*) FILTER (WHERE k.paused_at IS NOT NULL)
		FROM (SELECT f.run_key AS of_key, f.key_scope AS of_scope, f.paused_at FROM kagzi.run_keys f
			WHERE f.namespace_id = $1) k
		WHERE k.of_key = run_key AND k.of_scope = key_scope
	) = 0)`
