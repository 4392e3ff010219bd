package store

import (
	"strings"

	"github.com/google/uuid"
)

// A trial is a claim that is rolled back, of these alone.
type trial struct {
	runs      []uuid.UUID
	anyRun    bool // of all runs but those that the claim leaves out
	consumers []string
}

// leavingOut makes of a statement that claims one that leaves out the runs $15. ofOnly leaves out all others: it looks
// these up, because a search would read all runs that are due.
var (
	leavingOut = strings.NewReplacer(
		"q.recoveries < $11", "q.recoveries < $11 AND q.run_id <> ALL ($15::uuid[])",
		"x.recoveries < $11", "x.recoveries < $11 AND x.run_id <> ALL ($15::uuid[])",
	)
	ofOnly = strings.NewReplacer(
		"FROM kagzi.workflow_runs q", "FROM "+onlyRuns+" q",
		"FROM kagzi.workflow_runs AS x", "FROM "+onlyRuns+" AS x",
		"x.recoveries < $11", "x.recoveries < $11 AND x.run_id = ANY ($15::uuid[])",
	)
)

const onlyRuns = `(SELECT f.* FROM kagzi.workflow_runs f WHERE f.run_id = ANY ($15::uuid[])
	AND f.namespace_id = $1 OFFSET 0)`
