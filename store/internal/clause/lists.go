package clause

// The conditions of the indexes by which runs are listed. A run that fits none of them is in the claim's index. The
// columns are those of the only table of the select around them.
const (
	IsCompleted = `finished_at IS NOT NULL AND status = 'COMPLETED' AND attempts >= 0`
	IsStopped   = `finished_at IS NOT NULL AND status IN ('FAILED', 'CANCELLED') AND attempts >= 0`
	IsWaiting   = `finished_at IS NULL AND ` + Rests + ` AND attempts >= 0`

	Rests = `(status = 'SLEEPING' OR paused_at IS NOT NULL OR status = 'PENDING' AND (run_key IS NOT NULL
		OR CASE WHEN available_at = 'infinity' THEN true ELSE available_at - created_at > interval '1 second' END))`
)

// AllQueues is the body of a recursive CTE queues with the column task_queue: the queues of all namespaces that have
// runs in the claim's index, each by one search.
const AllQueues = `
	(
		SELECT r.task_queue
		FROM kagzi.workflow_runs r
		WHERE ` + Claimable + ` AND r.task_queue > ''
		ORDER BY r.task_queue
		LIMIT 1
	)
	UNION ALL
	SELECT n.task_queue
	FROM queues
	CROSS JOIN LATERAL (
		SELECT r.task_queue
		FROM kagzi.workflow_runs r
		WHERE ` + Claimable + ` AND r.task_queue > queues.task_queue
		ORDER BY r.task_queue
		LIMIT 1
	) n`
