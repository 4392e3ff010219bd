// # Drain
//
//	Run's ctx ends, or admin.Workers.Drain
//	  ├─ DRAINING; no more claims; runs that wait for a slot are given back
//	  │  a hint to others, then and with each suspension: they must query the queue when those are due
//	  ├─ executions end or suspend, for DrainTimeout ──► all gone ───────────┐
//	  ├─ the rest stops with ErrShutdown, suspension PENDING ──► all gone ───┤
//	  ├─ database away or rows locked: writes are given up, leases end ──────┤
//	  └─ loops and listener end, OFFLINE, publisher flushed ◄────────────────┘  heartbeats until here
//
// admin.Workers.Drain appends to the worker's log and leaves its row alone: a caller's transaction may stay open, and a
// locked row would keep the worker from sending heartbeats. A coordinator asks once whether the stopped worker still
// holds runs.
//
// Code: store.Workers.Drain. Tests: TestDrainGivesBackTheRest, TestDrainLeavesTimersToOthers,
// TestDrainLeavesTheRowAlone, TestRollingDeploy. They hold promise 9.
package worker
