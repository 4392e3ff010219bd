// # Compensations
//
//	 finish FAILED or CANCELLED, cancel, deadline,
//	 finish COMPLETED that rolls back                    an end of a child or compensation makes it due
//	RUNNING ────────────────────────────────────► SLEEPING ◄──────────────────────────┐
//	PENDING    outcome = how it ends, due now     outcome │                           │
//	SLEEPING                                              │ Compensate                │
//	                                                      ├─ children active ─────────┤ wait for all of them
//	                                                      ├─ one to run: start it ────┤ wait for it
//	                                                      └─ none left ──► it ends, and wakes its parent
//
// The outcome is decided first, and the run ends last:
//
//   - A registration is a row of kind COMPENSATION and says which run to start, so compensating needs no code of the
//     failed run. UndoneBy announces itself before the step, by a row without a call, so that a cancel waits for the
//     step.
//   - Ends.Compensate locks the run and its parent, and takes one step. Two calls at once do no harm. If the caller
//     dies, a coordinator calls it. A compensation is a detached child: no cancel of its parent ends it.
//   - A compensation whose start the server refuses is noted in the run (its start is refused), which is due again
//     after 10 s. An end or a cancel takes the first step in its own transaction. It takes it in a savepoint, and
//     leaves a refused one to a coordinator.
//   - Children are cancelled before the outcome is written, and their compensations end before their parent's begin. A
//     cancel of a compensating run changes its outcome to CANCELLED.
//   - A compensation that fails for good does not stop the others. The run ends FAILED, kind.Compensation, and Resume
//     runs the failed ones again. Resume takes the slots that the run would hold to its end, or is refused while other
//     runs have them.
//   - The details of the failure that is compensated stay in the run's output. A cancel removes them.
//   - A run that is rolled back completes when its compensations have run. Until then, its result is a part of the
//     outcome: a failed compensation or a Terminate does not lose it, and a Resume leads to it.
//   - A quarantined run keeps its children and compensates nothing.
//   - A run that holds a slot to its end holds it while it compensates. Its compensations in the same queue begin with
//     a slot for which no claim needs room: otherwise they would wait for their run, and it for them. The run sleeps
//     meanwhile, so no more runs than the limit execute.
//
// Tests: TestKillWhileCompensating, TestCompensateAtTheSameTime, TestCancelWaitsForTheStep,
// TestCompensateBesideAllElse, TestCompensationsOfAFamily, TestCompensationsInAFullQueue, TestRefusedCompensation,
// TestLostCompensate, TestRollback, TestRollbackThatStops, TestLostRollback. They hold that every registered
// compensation runs, from the last to the first, and that no run that completes is compensated, unless it is rolled
// back.
package store
