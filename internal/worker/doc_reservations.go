// # Starts in place
//
// A start whose client has a worker with a free slot inserts the run as a claim of that worker would leave it: RUNNING,
// under a lease chosen before. So the run begins with the commit of its start.
//
//	start (the shared statement)             session                          Postgres
//	  ├── Reserve(run) ───────────────────────►│ a free slot, no due run waits: keep the slot, choose a lease
//	  ├── INSERT … RUNNING, locked_by, lease ──┼────────────────────────────────►│
//	  │◄───────────────────────────────────────┼──────── inserted? started_at ───┤
//	  ├─ yes: Begin ──────────────────────────►│ execute, as a run just claimed
//	  ├─ no: Free ────────────────────────────►│ the slot is free
//	  └─ no answer: GiveBack ─────────────────►│ yield under the lease, again and again until 25 s after the insert
//
// It is one statement and not an insert and a claim, because that writes the row once less. For a run without steps, a
// claim of its own costs the server a tenth more time, a third more if many starts share it, and half as much log
// again.
//
// Such a start does no harm to other runs:
//
//   - It overtakes no run. A session keeps a slot only if the last claim from each queue found fewer runs than it asked
//     for, all of these have slots, no hint came since, and the time of the next claim has not come. Otherwise the run
//     is inserted as PENDING. So is a run for later, with a policy or messages, or in a caller's transaction. A hint
//     that comes while all slots are taken is served once one is free.
//   - A queue with limits gets the run as PENDING as well: only claims count slots. See store/doc_keys.go.
//   - After a lost answer, the caller finds its run, or inserts it as PENDING. A run that was inserted as claimed is
//     yielded: no worker executes it, and no heartbeat extends or releases its lease.
//   - Between the commit and Begin, the worker may be fenced, declared dead, or asked to drain, or the lease may end.
//     Then the run is yielded without being executed. A drain waits for reservations. A crash leaves the run to the
//     failure detector, as after a claim. Begin does not need the caller any more, and news of the run that arrives
//     before it is kept.
//
// Tests: TestStartInPlace, TestStartDoesNotOvertake, TestReservationDoesNotOvertakeRunsThatWait, TestEndOfAReservation,
// TestLateBeginOfAReservation, TestLateCommitOfAStartInPlace, TestLostStartInPlace, TestKillAfterAStartInPlace. They
// hold promise 3.
package worker
