// # Code that hangs
//
//	watchdog.watch, each quarter of HungAfter: branches of the executions, and of those given up
//	  in a step's function, ctx ended ─┐
//	  in no operation ─────────────────┴─► the same activity in two passes and for HungAfter
//	                                         └─► hung ─┬─► log with stack, once
//	                                                   └─► heartbeat ─► workers.hung
//
// The costs, and the reader of the report:
//
//   - No step pays for it: a pass samples. A branch counts the operations that it has begun and ended, by two atomic
//     additions, and shows the attempt under way. While the count and the position of the attempt stay the same, the
//     code has not returned. No timer, clock or goroutine belongs to a step.
//   - The report is the worker's and not the run's. The heartbeat takes it into a column of the worker's row: no
//     further statement, no index, and nothing to clear. It names the lease of each function. Get and Steps show a run
//     only the report of its present worker about its present lease. So a report about a lost lease, or a run that is
//     over, is never shown; and the report goes when the worker is OFFLINE. Health reads the workers anyway.
//   - Executions that were given up although their code has not returned stay known to the session until it has. Their
//     functions count for Health, and hold no slot.
//   - The stack comes from a dump of all goroutines, which stops the process. So a pass makes one dump for all code
//     that it finds, a pause of twenty times its duration follows, and there is none above 10,000 goroutines. The frame
//     of Run.guard shows the addresses of execution and branch, which tell the goroutines apart. A test fails if a
//     compiler stops showing them; the line then says that the stack was not found. Labels of pprof would cost each
//     branch five allocations, and a profile that shows them takes ten times as long as a dump.
//   - A cancel that waits needs no report: cancel_requested_at of a RUNNING run says it, and the rows of the steps
//     under way name them.
//
// # Steps that wait for runs
//
// Run.Result finds the branch in the context of the step that calls it, and notes the wait. If no slot is free, and
// each is held by a run with such a wait, a pass asks whether the runs that have been awaited for HungAfter are due
// (store.Runs.DueAmong). A run that another worker executes, or that is to begin later, is no reason for a report. The
// report goes the same way, with the run in HungCode.Awaits, and does not count as hung.
//
// Tests: TestHungStep, TestHungWorkflow, TestHungAfterCancel, TestHungCodeOfNobody, TestHungAfterDrain,
// TestHungCodeIsNamedAtTheEnd, TestWaitingIsNotHung, TestHungSlotsAreNamedForTheBacklog, TestHung,
// TestStepsThatHoldTheSlotsOfTheRunsTheyWaitFor, TestStepsThatWaitBesideOtherRuns.
package worker
