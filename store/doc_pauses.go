// # Pauses
//
// A pause belongs to what a claim searches, and stands where the claim reads it anyway. So each claim statement has one
// text, and no process remembers whether something is paused.
//
//	queue, workflow, all   rows of kagzi.pauses, which filter the claim's pairs: the runs of these are not even read
//	key, group             a time in the row of run_keys, which the claim has locked
//	run                    paused_at: the run is in neither of the claims' indexes
//
// A pause holds from its commit: the statement that takes runs reads it in its own snapshot.
//
//   - Claims of keys test each run for pauses of its workflow, and read over the paused runs of a line. A key without
//     other runs, and one whose queue is paused, has no place in the line. The transaction that ends such a pause
//     searches for the keys that have waiting runs, and leaves a change for each. The search could miss the key of a
//     run that commits after it, while a claim still sees the pause. So claims of keys lock the pauses with SKIP
//     LOCKED. Then either the end of the pause waits for the claim, or the claim finds the pause locked, and looks at
//     the key again in a second.
//   - A key's pause is written under the lock of its row, as claims have it. So no claim decides about the key
//     meanwhile, and the end of the pause leaves one change. While a caller's transaction pauses a key, claims leave
//     that key alone, and wait for nothing: a row that is missing is inserted before, in a transaction of its own.
//   - A run that holds its slot is in no line. The plain claims find it, and read the row of its key.
//   - A run that is paused itself has paused_at. Cancel, terminate and deadlines end its pause in their update, so that
//     a worker or a coordinator ends the run. If its worker dies before it has parked the run, the run stays RUNNING,
//     with its slot if it has one, until the pause ends.
//   - Parking: the heartbeat's reading of held runs says which are paused. Their branches wait where they would begin
//     the next operation. Once none is busy, the run is suspended, PENDING, and due when the pause ends.
package store
