package clause

// The conditions of the indexes of kagzi.workflow_runs that claims use. A statement must repeat the condition of an
// index to use it. The columns are those of the only table of the select around it.
const (
	// Claimable is the condition of the claim's index: due runs that need no slot of a key, or hold one.
	Claimable = `status IN ('PENDING', 'SLEEPING', 'RUNNING') AND available_at IS NOT NULL
		AND (run_key IS NULL OR status = 'RUNNING' OR slot = 2) AND paused_at IS NULL`

	// Waits is the condition of the index of runs that wait for a slot of their key.
	Waits = `run_key IS NOT NULL AND status IN ('PENDING', 'SLEEPING') AND available_at IS NOT NULL
		AND slot IS DISTINCT FROM 2 AND paused_at IS NULL`

	// Holds is the condition of the index of runs that hold a slot.
	Holds = `slot IS NOT NULL AND (status = 'RUNNING' OR slot = 2 AND status IN ('PENDING', 'SLEEPING'))`

	// HoldsGroup is the condition of the unique index of those whose key is a group. They hold their slot until they
	// end.
	HoldsGroup = `key_scope = '' AND slot = 2 AND status IN ('PENDING', 'SLEEPING', 'RUNNING')`
)

// WaitingScopes is a recursive CTE of the scopes of keys that have waiting runs. It finds each by one search.
const WaitingScopes = `scopes (key_scope) AS (
	(
		SELECT r.key_scope
		FROM kagzi.workflow_runs r
		WHERE ` + Waits + ` AND r.namespace_id = $1 AND r.key_scope >= ''
		ORDER BY r.key_scope
		LIMIT 1
	)
	UNION ALL
	SELECT n.key_scope
	FROM scopes
	CROSS JOIN LATERAL (
		SELECT r.key_scope
		FROM kagzi.workflow_runs r
		WHERE ` + Waits + ` AND r.namespace_id = $1 AND r.key_scope > scopes.key_scope
		ORDER BY r.key_scope
		LIMIT 1
	) n
)`
