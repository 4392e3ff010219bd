// # Progress
//
// SetProgress sets a text that the execution shows. It is no record: on a branch that replays, it is silent, as its
// Logger is.
//
//	SetProgress ─► outbox ─┬─► the next write takes it along, at most once a second
//	                       ├─► the suspension or the end of the run takes it along in any case
//	                       └─► a timer enqueues a write of its own, if there is no other
//
// A flush sends the statement for progress only if there is some: after the records, before suspensions and ends,
// fenced by lease and status. The write is done whatever rows it changed, because a lost lease has no progress to write
// again. If the run is locked, the write is busy and stays in front, as any other. If the server refuses it, the rest
// is written without it.
//
// The change of the run's row would fail a step's transaction that is stricter than READ COMMITTED. So it waits until
// no such transaction is open.
//
// Tests: TestProgressIsSilent, TestProgressUnderItsLease, TestProgressBesideAStrictTransaction, TestLostProgress.
package engine
