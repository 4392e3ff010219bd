package clause

const ActiveTypes = `
SELECT u.task_queue, t.workflow_type
FROM unnest($2::text[]) AS u (task_queue)
` + TypesOfQueue + `
LIMIT $3`

// The workflows t of the queue u.
const TypesOfQueue = `CROSS JOIN LATERAL (
	WITH RECURSIVE types (workflow_type) AS (
		(
			SELECT r.workflow_type
			FROM kagzi.workflow_runs r
			WHERE ` + Claimable + ` AND r.task_queue = u.task_queue AND r.namespace_id = $1
				AND r.workflow_type > ''
			ORDER BY r.workflow_type
			LIMIT 1
		)
		UNION ALL
		SELECT n.workflow_type
		FROM types
		CROSS JOIN LATERAL (
			SELECT r.workflow_type
			FROM kagzi.workflow_runs r
			WHERE ` + Claimable + ` AND r.task_queue = u.task_queue AND r.namespace_id = $1
				AND r.workflow_type > types.workflow_type
			ORDER BY r.workflow_type
			LIMIT 1
		) n
	)
	SELECT types.workflow_type FROM types
) t`

// MaxQueues is how many queues are read, and pairs of queue and workflow.
const MaxQueues = 1000
