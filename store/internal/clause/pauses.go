package clause

// The pauses of queues and workflows of the namespace $1. The columns have names of their own, because unstopped
// compares them with those of a run.
const PausesOfRuns = `pauses AS MATERIALIZED (
	SELECT p.task_queue AS in_queue, p.workflow_type AS of_type, p.percent, p.releases, p.percent = 0
		AND NOT p.releases AS whole, p.paused_at AS since
	FROM kagzi.pauses p
	WHERE p.run_key = '' AND p.namespace_id = $1
)`

// Unstopped is unpaused without a short cut if nothing is paused. It needs only pausesOfRuns.
const Unstopped = `(
		SELECT count(*)
		FROM pauses p
		WHERE p.in_queue IN ('', task_queue) AND p.of_type IN ('', workflow_type) AND ` + Applies + `
	) = 0`

// KeyUnpaused is the condition for a run whose key is not paused.
const KeyUnpaused = `(run_key IS NULL OR (
		SELECT count(*)
		FROM (SELECT p.run_key AS of_key, p.key_scope AS of_scope FROM kagzi.pauses p WHERE p.run_key > ''
			AND p.namespace_id = $1) k
		WHERE k.of_key = run_key AND k.of_scope = key_scope
	) = 0)`

// Applies is the condition for a pause p of a run's queue or workflow to stop the run.
const Applies = PassesAt + ` >= p.percent AND coalesce(released_at < p.since, true)`

// PassesAt is the percentage from which on a run passes: a larger one lets the runs of a smaller one pass, too. The
// runs of a key pass together, because they begin in order. So a claim need not read those of a key that does not pass.
const PassesAt = `(CASE WHEN run_key IS NULL THEN pg_catalog.uuid_hash(run_id)
	ELSE pg_catalog.hashtext(run_key) END & 2147483647) % 100`
