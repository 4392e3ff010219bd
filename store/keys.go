package store

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

// A FreedKey is a key of which a worker has given up slots.
type FreedKey struct {
	Key
	Ended bool // the runs that had them are over; else some may wait for a slot again
}

// groupScope is the key_scope of groups. No queue has this name.
const groupScope = ""

// insertChanges begins a CTE that leaves a change for each key in k, which has the columns run_key and key_scope: a
// claim then looks at the key. See doc_keys.go.
const insertChanges = `changes AS (
	INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key)
	SELECT DISTINCT k.key_scope, $1, k.run_key FROM`

// insertDueChanges is insertChanges for runs that wait from now on, with when they are due: k has it as due_at.
const insertDueChanges = `changes AS (
	INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key, due_at)
	SELECT k.key_scope, $1, k.run_key, min(k.due_at) FROM`

// leaveChanges leaves a change for each of the keys $3 in the scopes $2. $4 says that the runs which had their slots
// are over: else some may wait again.
const leaveChanges = `
WITH keys AS MATERIALIZED (
	SELECT u.key_scope, u.run_key, CASE WHEN u.ended THEN timestamptz 'infinity' ELSE '-infinity' END AS due_at
	FROM unnest($2::text[], $3::text[], $4::bool[]) AS u (key_scope, run_key, ended)
), ` + insertDueChanges + ` keys k WHERE k.run_key IS NOT NULL GROUP BY 1, 2, 3
)
SELECT count(*) FROM keys`
