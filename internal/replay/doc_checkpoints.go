// # Checkpoints
//
// The attempts of a step keep a checkpoint for those that follow. It is a record beside the step's, and a later one
// replaces it, as the value of a run.
//
//	Checkpoint ─► deferred record ─┬─► the next write takes it along: a failure, a drain's suspension
//	                               └─► a timer enqueues a write of its own, after a second
//	in a StepTx ─► record in its transaction ─► commit ─► another transaction
//	row "ship/#checkpoint:pack" ─► LastCheckpoint: from the history, or what this execution has kept since
//	                               in a StepTx: from the table, in its transaction
//
// The next attempt may be on another worker:
//
//   - It is written under the lease, in the order of the outbox. A worker that has lost the run changes nothing.
//   - A goroutine that an earlier call of the function has left behind keeps nothing. Neither does the StepTx of a
//     branch that has lost a Race.
//   - It goes with any write of the run, also before a Race is decided: a loser's is never read.
//   - The record of the step's success empties it. A success that comes before the checkpoint was written withdraws
//     it.
//   - A StepTx trusts only the table, because the answer to a commit may be lost: the transaction of the next attempt
//     reads what was committed. Its rows and its checkpoint are of one transaction, so neither is without the other.
//   - A fork, the next epoch of the run and a restart have none.
//
// Code: checkpoint, stepTx, store.CheckpointID. Tests: TestCheckpointAfterAFailure, TestCheckpointAfterADrain,
// TestCheckpointOfALostWorker, TestCheckpointOfAFailedStep, TestCheckpointOfARacer, TestCheckpointInATransaction,
// TestLostCheckpointInATransaction, TestCheckpointInATransactionOfALostWorker, TestCheckpointInATransactionThatEnds,
// TestCheckpointInTheMiddle, TestCheckpointOfACallThatIsOver, TestCheckpointOfARepeatableStep.
package replay
