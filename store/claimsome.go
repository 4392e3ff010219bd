package store

import "github.com/google/uuid"

// A trial is a claim that is rolled back, of these alone.
type trial struct {
	runs      []uuid.UUID
	anyRun    bool // of all runs but those that the claim leaves out
	consumers []string
}

// The runs $15: a search would read all runs that are due.
const onlyRuns = `(SELECT f.* FROM kagzi.workflow_runs f WHERE f.run_id = ANY ($15::uuid[])
	AND f.namespace_id = $1 OFFSET 0)`
