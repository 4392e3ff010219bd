// # Crash-loop suspects
//
// If a claim takes a RUNNING row, the worker that held the run has died, and recoveries grows. A run that kills its
// workers must not take the other runs with it for ever.
//
//	recoveries  the next worker
//	1, 2        executes the run like any other. The count has deaths of workers in whose memory the run only waited
//	3 or more   sets the run back first, with a pause that doubles. It executes suspects in groups, and notes in the
//	            row when one begins (store.Leases.BeginSuspect). Only a death under that lease counts from here on
//	above 20    finishes the run as FAILED, kind.CrashLoop
//
// So a run that never began is never quarantined. A claim never ends a run; the session does. If a suspect has recorded
// a step since, its count is reset. The session asks for that (store.Histories.CrashLoopEvidence) before it reads the
// history, because reading it may kill the worker. A claim brings no inputs of suspects, because the inputs of many
// together could kill it.
//
// A group has the suspects with equally many recoveries whose IDs end in the same bits: one bit at three recoveries,
// and twice as many with each more. So half of n suspects begin at once. Of those that die again, a quarter of n begins
// at once, then a sixteenth, then each alone. A suspect of the group that becomes due while it is under way joins it:
// claims leave out all others.
//
//	                    ┌── its runs ended, or recorded a step ──────────────────────────┐
//	 suspects are due   │                                                                ▼
//	─────────────► the group is under way ── 10 s, 20 s, 40 s … ──► it stays under way: the next group begins
//	                    │ the worker dies
//	                    └──► one more recovery for each: a pause, then smaller groups, which wait for those
//	                        that died less often
//
// The time doubles with each recovery of the next group after its third. So a run that hangs holds up the others only
// for that time. An innocent run that takes long gets its time in the end: the culprit has died more often, and waits.
// It pays more than a short one, because it is under way whenever the culprit is tried, until the culprit waits for
// longer than it takes. A culprit is quarantined after 18 deaths as a suspect, whatever runs beside it.
//
// The order of the groups was chosen by simulation. Other orders, smaller groups and shorter waits among equals are
// slower, or they quarantine innocent runs: a worker's memory does not survive its death, so no row says which runs had
// lived through its first ten seconds. TestIncidents plays the incidents and has their times.
//
// Tests: TestCrashLoopIsQuarantined, TestRunsThatNeverBeganAreNoCrashLoop, TestSuspectsRunInGroups,
// TestSuspectThatHangsHoldsUpNoOther, TestIncidents. They hold promise 10.
package worker
