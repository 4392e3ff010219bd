// # Runs that continue
//
// A run that continues begins again as the same run: with another input, and without its history. An epoch is what lies
// between. The row of the run stays, and with it whatever refers to the run.
//
//	the function returns Continue(next)
//	  └─ one flush: records, REPLY, VALUE ─► suspendRuns: PENDING, due now
//	       continueRuns     epoch + 1, the input, no attempts, no version
//	       deleteBefore     the history of the epoch before this one goes, but for its REPLYs
//	       keepPast         "step" becomes "\x01<epoch>/step"
//	       deleteValues,    of each value the last change stays, as "\x01/#value:name"
//	       keepValues
//	       reopenRequests   those that were taken and not answered are unread again
//	  next claim ─► reads the records from "\x02" on: those of its own epoch
//
// Everything else follows from that.
//
//   - The statements after suspendRuns look for the lease, PENDING and the next epoch. So a flush that is repeated
//     after a lost answer writes them once, and a worker that has lost the run writes none. A claim changes the lease.
//   - U+0001 is in no name of a step, and in front of all of them in the order of the key. So histories, searches and
//     lists read the own epoch by one bound, and a million epochs cost them nothing.
//   - One earlier epoch stays readable. REPLYs stay as long as the run, because who asks again gets the same answer.
//   - Positions begin at FirstPosition, so the versions of a value grow.
//   - What must not be the same in two epochs has the epoch in its key (replay.identity.keyOf): the keys of steps, by
//     which other services recognise a call, and the answers that a run gets.
//   - Children of earlier epochs stay the run's. Their ends wake it, and it ignores them. It cancels those that are
//     active when it ends: see replay.Env.Prepare.
//   - Compensations are refused: the next epoch does not know their steps.
//
// Tests: test/epochs, TestEpochsAndRequests. They hold promises 1 to 10 for a run that continues.
package store
