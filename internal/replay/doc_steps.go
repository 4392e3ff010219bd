// # Steps
//
//	may the worker act? ─► call function ─► outbox ─► flush: INSERT … ON CONFLICT DO UPDATE WHERE status = 'RUNNING'
//	  (lease, standing)                                      FOR SHARE on the run's row: my lease, RUNNING
//	                                           written ─► return      not written ─► resolve: adopt a result, or lost
//
// A record is written once, by the holder of the run:
//
//   - FOR SHARE keeps the next claim out until the commit. With a mere join, a worker that was declared dead could
//     commit its record after the next holder has read the history.
//   - An attempt that ended stays as it is: the first result counts. An execution that finds attempt k RUNNING executes
//     k again, under the same number.
//   - A step whose context ended for lease loss, shutdown or cancellation records no error, because that error says
//     nothing of the step. It records a success, if the lease holds.
//   - A failed attempt is recorded with the start of the next one. Without a next one it is final: the same StepError
//     in every replay.
//
// The write that ends a failed attempt of the run marks the failures that the next attempt retries: those in the
// error's chain, and those that no operation followed. The mark is in the table, so that a retry and a later Resume
// forget the same failures.
//
// # Transactional steps
//
// StepTx runs the function in a transaction of the pool, whose last statement is the record, so the run's row is locked
// only briefly. The transaction commits only if the record was written. All that the execution has enqueued and
// deferred is written before it begins, because it commits by itself.
//
// After a lost acknowledgement, the step's row decides. If it is there, the step is done. If it is not, and the lease
// holds, the step is executed again. For up to a minute, a lost connection is not counted as an attempt, nor is a
// record that waited for a lock in vain. At most MaxConns − 2 transactions of steps are under way, which leaves
// connections for the engine.
//
// # Early results
//
// The function gets the result of a step before it is written: the record is deferred. So the last step and the end of
// the run are one commit. Every effect outside of the run comes after that commit, or is part of it:
//
//	next comes                                          why a crash cannot change a result that others saw
//	a write: a record, a wait with a timeout, a sleep,  it takes all these records along in one transaction, or it
//	a group's decision, a child's start, a suspension,  follows the write that has
//	the end of the run
//	the function of another step or of a StepTx,        it waits until all of them are in the table
//	a question to another run, the cancel of children
//	a repeatable step, a message taken,                 it is in memory only, and a replay does it again
//	a branch begun
//	nothing for a millisecond (outbox.soonPause)        the record gets a write of its own, unless it is repeatable
//
// So a step waits for the results before it, and not for its own: n steps and the end are n commits. The function of a
// Repeatable step does not wait: five of them and the end are one commit.
//
// "All" are the records of the execution and not of the branch, because branches may share variables. So a record must
// be free to go with any write. In an undecided Race it is not (see doc_flush.go), so there the step waits for its
// record. So does one whose success changes other rows: with a compensation, a limit, or AtMostOnce.
//
// The answer to a record may say that the run was paused. So a step waits for the results first, and then asks whether
// it may begin.
//
// A replay after a crash has all records up to some point of the run, and no record that follows from a missing one. If
// a write is lost, the execution stops before the write leaves the outbox: otherwise an empty outbox could be taken for
// "all is written". At most 100 results or 256 KiB wait; the next step waits for its record. The row that shows a step
// which takes longer than a second takes them along. The time of such a record is the estimate of the database's clock,
// which a replay reads back from the table.
//
// Code: store.Records.WriteIn, for StepTx. Tests: TestTheFunctionGoesOnBeforeTheCommit,
// TestAResultIsCommittedThoughNothingFollows, TestAZombiesRecordKeepsTheNextClaimOut, TestZombieChangesNothing,
// TestLostStepTx, TestARecordOfAStepTxThatWaitsInVainIsNotCounted, TestResultsAreWrittenBeforeTheyAreSeen,
// TestCrashBeforeResultsAreWritten, TestWhatANewAttemptForgets. They hold promises 2, 3 and 5.
package replay
