// # Cancel, Resume, Restart, Fork, Update, Delete
//
//	Cancel: read the family ─► lock it and the parent in order ─► read again ─┬─ grown: release, begin again
//	                                                                          └─ decide in a statement after the locks
//	  executing, may have compensations or holds a slot ─► marked; its worker ends steps until now + Grace,
//	                                                       and finishes the run
//	  has compensations ─────────────────► outcome
//	  else ──────────────────────────────► ends
//
// Each verb is a transaction, with its event:
//
//   - One statement ends runs that no flush of their own ends: for Cancel, Terminate, deadlines, ReplaceActive,
//     schedules and compensations.
//   - Events: each change of a run by an operator or a client is a row of run_events, in the transaction of the change.
//     Its ID is made before the first try. So a repetition after a lost answer finds that the change took place,
//     whatever has become of the run. The same transaction writes a row of audit_log with the same ID. A row of
//     run_events lives as long as its run. One of audit_log has a time of its own, and so tells of runs that are gone.
//     Failed attempts of a run are rows of run_events, too, and of no other table.
//   - Changes of schedules, limits, pauses, workers and consumers write to audit_log alone, and only if they change
//     something. Those that set limits read the row that is there first, under its lock.
//   - Resume clears lease, recoveries, deadline and error. Attempts go on counting.
//   - Restart locks the old run, so that it stays over and is not deleted. Timeout has a column of its own: a deadline
//     cannot be told from the delay, and is gone after Resume.
//   - In bulk, each run is changed by the same verb. A dry run does the same and takes it back (DryRun). That costs
//     more than a query, and is right whatever the verb does.
//
// # Fork
//
// Fork starts a run with a copy of the history as it was when the named step first began. It copies failures, too:
// without them the function might go another way. Copied rows have run_attempt 0. The old run keeps their
// compensations, unless InheritCompensations copies them. If the fork executes the step of a compensation that stayed
// behind, or anything before it reaches a copied record, it registers the compensation first. A run with an outcome
// cannot be forked, because its results may be undone.
//
// # Update
//
// Update locks the run and decides in Go by the row that the lock shows. The statement after it changes the row. No
// claim takes a locked run, and one that had found it before tests its conditions again, the queue among them. So
// either the update finds the run RUNNING and refuses, or the claim sees the new row.
//
// A run keeps its available_at when it moves to another queue, and so its age there. A claim that begins behind that
// time finds it with the next full claim. The change leaves a row in key_changes for the key of either queue.
//
// A slot never moves to another queue, because only a claim under the queue's lock counts slots: the run gives it up.
// The slot of a group stays, because its unique index, and not a count, says which run has it. It counts against the
// new queue's max_running. So the update locks that queue's row after the run's, as a claim does, counts in a further
// statement, and refuses a queue that is full. Claims hold this lock while they lock runs, but skip locked ones, so
// there is no circle of waits. In an application's transaction the lock stays until its end, and for so long no worker
// claims from that queue.
//
// # Delete
//
// Delete locks the run and all below it in order, as a cancel does. It refuses if one of them is active, or if a parent
// exists.
//
//	small family ──────────────► deleted in that transaction
//	a long history ────────────► marked in it, as retention marks long runs; deleted in portions, parents first
//	more than 500 runs ────────► the first transaction marks the run alone, others those below, some at a time
//	its process dies halfway ──► marked runs stay ──► each minute, a coordinator deletes the rest (FinishDeletions)
//
// Portions and their order:
//
//   - Runs below that were resumed meanwhile stay. The family is read level by level, 2,000 children in a statement, so
//     no statement grows with it. The first transaction writes the DELETED events, and only PruneDeletions deletes
//     those.
//   - Marked runs are in an index of their own, in which no other run ever is. A coordinator deletes them whatever the
//     retention is. It does not know whether the Delete still goes on. If so, both delete: the coordinator takes small
//     portions and skips locked rows, and the Delete waits for it. A transaction that deletes rows of a run has locked
//     it, so two that delete the same run never wait in a circle, and each goes on until it finds no rows.
//
// Tests: TestUpdateOfKeys, TestUpdateOfGroupsToAFullQueue, TestUpdatesBesideClaims, TestDeleteInSeveralTransactions,
// TestDeleteMeetsCoordinator, TestDeleteMeetsDelete, TestDeleteMeetsRetention, TestFinishDeletions,
// TestKillDuringADelete, TestLostUpdate, TestLostDelete, TestCancelSeesWhatItWaitedFor, TestLostVerbs,
// TestForkFromEachStep, TestRandomVerbs, TestKillAfterAVerb. They hold promise 6.
package store
