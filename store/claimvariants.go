package store

// A claimVariant has the parts in which the variants of a statement that claims differ.
type claimVariant struct {
	pauses         string // the CTEs pauses and paused
	unpaused       string // the condition on a run x that waits for its key, after AND
	unpausedHolder string // the condition on a run q that needs no slot of its key, after AND
	unpausedPair   string // the condition on a pair w, after WHERE
	keyPaused      string // whether the key x is paused
	steady         string // the CTE steady, and the comma after it
	placeOfPaused  string // when a key is looked at again, if a pause changes under the claim
	runs           string // the table of the runs that may be taken
	someQ, someX   string // the condition on q and on x for it to be among them, after AND
}

// statements returns the variants for a queue without limits, for one that may have some, and for keys.
func (v *claimVariant) statements() claimStatements {
	return claimStatements{v.claimRuns(), v.claimLimited(), v.claimKeys()}
}

const allRuns = `kagzi.workflow_runs`

var withPauses = claimVariant{
	pauses: pausesNow, unpaused: ` AND ` + unpaused, unpausedHolder: ` AND ` + unpausedHolder,
	unpausedPair: `WHERE ` + unpausedPair, keyPaused: keyPaused, steady: steady, placeOfPaused: placeOfPaused,
	runs: allRuns,
}

var (
	claimsWithPauses = withPauses.statements()
	// For as long as nothing is paused: they take nothing if they find a pause. They spare the tests of each run, whose
	// preparation costs the server 0.1 ms at each claim.
	claimsUnpaused = (&claimVariant{
		pauses: pausesSome, keyPaused: `false`, placeOfPaused: `NULL`, runs: allRuns,
	}).statements()
	// They leave out the runs $15: see FindRefused.
	claimsWithout = withPauses.among(allRuns, ` AND q.run_id <> ALL ($15::uuid[])`,
		` AND x.run_id <> ALL ($15::uuid[])`).statements()
	// They leave out all other runs.
	claimsOnly = withPauses.among(onlyRuns, ``, ` AND x.run_id = ANY ($15::uuid[])`).statements()
)

// among returns the variant that takes only some runs.
func (v claimVariant) among(runs, someQ, someX string) *claimVariant {
	v.runs, v.someQ, v.someX = runs, someQ, someX
	return &v
}

// pausesSome stands for pausesNow in claimsUnpaused: all is paused as soon as anything is.
const pausesSome = `paused AS MATERIALIZED (
	SELECT count(*) > 0 AS some, count(*) > 0 AS everything, false AS keys FROM (SELECT FROM kagzi.pauses p
		WHERE p.run_key >= '' AND p.namespace_id = $1 LIMIT 1) p
)`
