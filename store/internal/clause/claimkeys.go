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
