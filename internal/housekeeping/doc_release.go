// # Failure detection and release
//
//	coordinator                                 workers row
//	  no heartbeat for longer than it said  ─┐
//	  server lacks its connection for Grace ─┴─► OFFLINE, if its heartbeat is still the one seen (DeclareDead)
//	                                             runs due, by run_id, 500 a transaction, SKIP LOCKED (Release)
//	                                             release_at: in 1 s if some were skipped; else once more after 25 s
//
// Evidence must be the coordinator's own:
//
//   - The coordinator must have seen the silence itself, from two thirds of StaleAfter on, without a gap of its own. So
//     an outage of the database, a step of its clock or a pause of the coordinator declares no worker dead.
//   - The connection is evidence only if the server told the client the same process ID that pg_backend_pid returns, in
//     every heartbeat: a pooler invents one. After an error or a pause of its own, the detector starts again, and
//     declares no worker dead for a third of StaleAfter.
//   - A live worker reads its connection between heartbeats, notices its end within a round trip, and reconnects. If it
//     was declared dead all the same, it gives up its runs and registers under a new ID.
//   - The second query after 25 s finds the runs of a claim that was under way.
//
// Code: store.Workers.DeclareDead, store.Workers.Release, store.Workers.CheckFleet. Tests: TestFailureDetector, TestCrashIsDetected,
// TestServerRestartDeclaresNobodyDead, TestClockStep, TestReleaseComesAgain, TestPoolerLeavesNoEvidence. They hold
// promise 9.
package housekeeping
