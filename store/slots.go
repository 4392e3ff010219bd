package store

// The conditions of the indexes of kagzi.workflow_runs that claims use. A statement must repeat the condition of an
// index to use it. The columns are those of the only table of the select around it.
const (
	// claimable is the condition of the claim's index: due runs that need no slot of a key, or hold one.
	claimable = `status IN ('PENDING', 'SLEEPING', 'RUNNING') AND available_at IS NOT NULL AND (run_key IS NULL OR status = 'RUNNING' OR slot = 2) AND paused_at IS NULL`

	// waits is the condition of the index of runs that wait for a slot of their key.
	waits = `run_key IS NOT NULL AND status IN ('PENDING', 'SLEEPING') AND available_at IS NOT NULL
		AND slot IS DISTINCT FROM 2 AND paused_at IS NULL`

	// holds is the condition of the index of runs that hold a slot.
	holds = `slot IS NOT NULL AND (status = 'RUNNING' OR slot = 2 AND status IN ('PENDING', 'SLEEPING'))`

	// holdsGroup is the condition of the unique index of those whose key is a group. They hold their slot until they
	// end.
	holdsGroup = `key_scope = '' AND slot = 2 AND status IN ('PENDING', 'SLEEPING', 'RUNNING')`
)

// A Key is the key of runs, for limits and turns. Within a queue it is the queue's own; a group spans queues. A run
// without a key has the zero Key.
type Key struct {
	Name  string
	Group bool
}

// scope returns the key_scope of the key in a queue.
func (k Key) scope(queue string) string {
	if k.Group {
		return groupScope
	}
	return queue
}

// groupScope is the key_scope of groups. No queue has this name.
const groupScope = ""

// insertChanges begins a CTE that leaves a change for each key in k, which has the columns run_key and key_scope: a
// claim then looks at the key. See docs/architecture.md, Keys and slots.
const insertChanges = `changes AS (
	INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key)
	SELECT DISTINCT k.key_scope, $1, k.run_key FROM`
