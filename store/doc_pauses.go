// # Pauses
//
// A pause is a row of kagzi.pauses: of all work, a queue, a workflow, a key or a group. Each claim reads the table
// once, in the snapshot in which it takes runs. So a pause holds from its commit.
//
//	no pause ─► claims with statements that test no run for pauses
//	              │ find a pause: take nothing, and repeat with the tests, unless the first round trip has taken runs
//	              ▼
//	a pause  ─► queue, workflow: skipped before a run is read, also by the leader's search for busy queues
//	            key, group:      no place in the line
//	            a run itself:    in neither of the claims' indexes
//	            percentage, released runs: a condition on each row
//
// A percentage lets all runs of a key pass, or none: a claim does not read the line of a key that is stopped. It does
// read the paused runs of a line if a workflow is paused, or if single runs were released (released_at).
//
//   - A paused key has no place in the line. The transaction that ends a pause searches for the keys that have waiting
//     runs, and leaves a change for each. The search could miss the key of a run that commits after it, while a claim
//     still sees the pause. So claims of keys lock the pauses with SKIP LOCKED. Then either the end of the pause waits
//     for the claim, or the claim finds the pause locked, and looks at the key again in a second.
//   - A run that holds its slot is in no line. The plain claims find it, and test for the pause of its key.
//   - A run that is paused itself has paused_at. Cancel, terminate and deadlines end its pause in their update, so that
//     a worker or a coordinator ends the run. If its worker dies before it has parked the run, the run stays RUNNING,
//     with its slot if it has one, until the pause ends.
//   - Parking: the heartbeat's reading of held runs says which are paused. Their branches wait where they would begin
//     the next operation. Once none is busy, the run is suspended, PENDING, and due when the pause ends.
package store
