package clause

// How many slots of the key c are taken, of those that it has: c.max_running. Without a limit the statement does not
// count.
const SlotsOfKey = `CASE WHEN c.max_running IS NULL THEN 0 WHEN c.key_scope = '' THEN (
			SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = c.run_key AND namespace_id = $1
				AND ` + HoldsGroup + `
		) ELSE (
			SELECT count(*) FROM (
				SELECT FROM kagzi.workflow_runs
				WHERE task_queue = c.key_scope AND namespace_id = $1 AND run_key = c.run_key
					AND ` + Holds + ` AND key_scope <> ''
				LIMIT c.max_running
			) x
		) END`

// KeyHasRoom is the condition for a run q that needs no slot of its key, or whose key has a free one.
const KeyHasRoom = `(q.run_key IS NULL OR coalesce(q.slot = 2, false) OR (
		SELECT count(*)
		FROM (
			SELECT q.key_scope, q.run_key, CASE WHEN q.key_scope = '' THEN 1 ELSE coalesce((
				SELECT f.max_running FROM kagzi.run_keys f
				WHERE f.key_scope = q.key_scope AND f.run_key = q.run_key AND f.namespace_id = $1
			), (
				SELECT t.key_max_running FROM kagzi.queues t
				WHERE t.task_queue = q.key_scope AND t.namespace_id = $1
			)) END AS max_running
		) c
		WHERE ` + SlotsOfKey + ` >= c.max_running
	) = 0)`
