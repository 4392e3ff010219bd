// # Several queues
//
// A session has one loop of claims, one set of slots and one heartbeat for all of its queues. Package internal/claims
// has the states of a queue, and the shares. A claim from a queue is due after a hint, at the time of the next due run,
// or after a PollInterval. The leader's notification says for each queue whether that last claim can be put off.
//
//	AddQueue ─► heartbeat: the row names the queue ─► claims
//	RemoveQueue ─► no claims, runs that have not begun are given back ─► heartbeat: left_queues
//	                  ─► the last run has ended ─► heartbeat: forgotten
//
// The row is ahead of the claims, and behind the runs:
//
//   - The worker's row names a queue before the first claim from it, because a coordinator searches a dead worker's
//     runs in the queues of its row. So a session claims from a new queue once a heartbeat that names it was answered.
//   - A queue that was removed stays in the row, as one of left_queues, while the session executes runs of it, a claim
//     from it is under way, or a claim whose answer was lost may still commit. The failure detector releases runs in
//     both kinds. All else (Health, DrainQueue, the leader's search) regards only the queues from which the worker
//     claims.
//   - Runs of a removed queue that the session has suspended are announced, because other workers must wait for their
//     time now.
//
// Tests: TestLeaveAQueue, TestReturnToAQueue, TestQueuesOfARunningWorker, TestReleaseInSeveralQueues, TestBusyQueues,
// TestIdleFleetIsQuiet. They hold promises 8 and 9.
package engine
