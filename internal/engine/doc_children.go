// # Children
//
//	parent                              flush, one transaction under the parent's lease
//	  StartChild ─ enqueue ────────────► insert child, record CHILD_WORKFLOW RUNNING
//	  Result: wait                       child ends: its finish adds to the parent's wakeups
//	  inbox has the end ─ defer ───────► record COMPLETED or FAILED: from now on the record counts, not the child
//
// In every replay the record counts:
//
//   - No branch waits for a start, so a thousand starts are one or two inserts. Only a start with an external ID is
//     awaited, because it may be refused.
//   - A refusal that the function sees is recorded as a failure without a run: of an ID, a size, a Sealer or an
//     interceptor. Otherwise a replay, in which nothing refuses the child, would go another way. The same holds for
//     Publish and the items of Map. A wrong call is not recorded.
//   - The child's run ID is a hash of parent, step and attempt: a repeated start finds its run.
//   - The first reader of the end records it, because an operator may resume the child later. The record belongs to the
//     run's own branch, because any branch may have received it.
//   - The run's next attempt takes over a RUNNING row, unless the child has failed by then. Otherwise a child that was
//     cancelled with its parent would end the parent again after a Resume. Ends that came while the parent was over
//     woke no execution, so Resume counts as a wake-up.
//
// Code: store.Ends.CancelChildren. Tests: TestThousandChildrenOnTwoWorkersOneKilled, TestKillAFamilyAtEachPoint,
// TestChildEndsAroundTheSuspension, TestRefusedOperationIsRecorded, TestChildrenGoOnInTheNextAttempt. They hold that a
// child is started once, and that its end reaches the parent.
package engine
