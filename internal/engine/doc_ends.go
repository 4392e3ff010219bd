// # The end of an execution
//
// An execution stops once, for one reason. It settles when its goroutines are gone. Then its end is written, and the
// session removes it.
//
//	reason                                            write
//	returned without an error                         finish COMPLETED
//	returned an error, attempts left                  suspension PENDING after the backoff, attempts + 1
//	returned an error, none left or permanent;        finish FAILED, after its compensations
//	deadline
//	any of these, after a refused write               finish FAILED, kind.Database, after its compensations
//	nondeterminism; crash loop; bad input;            finish FAILED, quarantined: no compensation runs
//	unreadable
//	cancel of a run that may have compensations       finish CANCELLED, after its compensations
//	all branches wait                                 suspension SLEEPING
//	shutdown; fence                                   suspension PENDING, due now, no attempt counted, under the lease
//	unfounded: the server has lost what the run       suspension PENDING, due now, without anything else
//	builds on
//	lease lost; cancelled otherwise                   nothing: the table says how the run went on
//
// A finish is refused while a cancel is pending. It wakes the parent in the same statement. It keeps the lease in the
// row, so that a lost acknowledgement differs from a lost lease. The slot is free before the end is written.
//
// # Deadlines
//
// Every write of available_at is bounded by deadline_at. So a claim finds the run at its deadline and fails it
// (kind.Deadline) without executing it. The lease of a holder lasts three seconds longer: the holder ends the run
// itself, and must not race with a claim. A lease that is taken or extended after the deadline has its usual length.
//
// If no worker serves the run, a coordinator ends it five seconds late, with its children, in one transaction. It takes
// all its locks with SKIP LOCKED, so their order does not matter. It leaves a family that another transaction has
// locked to the next pass.
//
// Code: store.Ends.EndOverdue. Tests: TestKillAtEachPoint, TestFinishSeesWhatItWaitedFor, TestDeadlinePassesWithoutAWorker,
// TestOverdueRunsPassOverLocks, TestDeadlineGoesByTheClock. They hold promises 1 and 6.
package engine
