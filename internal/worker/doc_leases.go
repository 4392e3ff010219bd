// # Leases and heartbeats
//
//	heartbeater, own connection                       Postgres
//	  ├─ 1. the worker's row, alone ───────────────►│  only a number higher than all before: a late heartbeat
//	  │                                             │  names a lost connection
//	  ├─ 2. my runs, by (run, lease) ──────────────►│  held? cancelled? woken?
//	  └─ 3. leases past half of their timeout ─────►│  SKIP LOCKED
//	       no answer within the larger of StaleAfter/6 and Grace/3: again over a new connection
//
//	fence: executions stop, nothing is claimed
//	  ├─ ⅔ StaleAfter after the sending of the last answered heartbeat
//	  └─ ⅔ Grace after the connection was last known to be there, while runs are under way
//
// The worker is the first to know that it may be taken for dead:
//
//   - The connection is the heartbeater's own, because an exhausted pool must not make a worker look dead. The
//     transaction of the row is its own, so that no lock on a run delays it. Runs are asked for by run and lease and
//     never by locked_by: otherwise a claim whose answer was lost would live for ever.
//   - Sessions of many namespaces in one process send theirs over a pool for all of them (Presence.Heartbeats). Then no
//     loss of a connection is evidence, only silence.
//   - A slow connection: the next connection opens beside the heartbeats, for at most ten seconds or Grace, and the
//     server prepares the statements on it (store.Workers.PrepareHeartbeats), so that each is one round trip. A
//     heartbeat waits a third of Grace for it, and then goes over the pool. So a loaded machine delays evidence and not
//     heartbeats.
//   - A slow path: 1, 2 and 3 have a time limit each, and the answer to each is evidence by itself. The next heartbeat
//     is due an interval after the last one was sent.
//   - Term: the rest of a lease by an answer of the database, counted from the sending of the question (store.Term).
//     Before each call of a step's function, the worker compares it with the monotonic clock and with the wall clock,
//     because the first stands still while the system is suspended. A timer would not do: after a freeze, ready
//     goroutines run before it fires.
//   - The fence comes before a coordinator may declare the worker dead. Its suspensions wait for the database. Runs
//     that no other worker has taken by then are PENDING and due.
//
// # The fence of the connection
//
// While runs are under way, the heartbeater pings every third of Grace. No step is called until something sent within
// the last two thirds of Grace was answered. While 1, 2 or 3 takes long, as on a slow disk, another connection asks
// whether the server still has the first.
//
// The worker does not fence itself if no server listens at the address, or if the server is starting, stopping or
// read-only: only the server that had the connection concludes from its loss. Steps wait even then, because the refusal
// may come from a proxy beside the worker.
//
// Code: store.Workers.Heartbeat, store.Leases.HeldStates, store.Leases.Extend. Tests: TestWorkerFencesItself,
// TestLostPathIsFencedWithinGrace, TestFrozenWorkerCallsNothing, TestNothingIsCalledUnderALeaseThatIsOver,
// TestLateHeartbeat, TestSlowConnections, TestSlowRoundTrips. They hold promise 3. The specification in docs/spec,
// TestLeaseAndFence, tries every order of these steps.
package worker
