// # Steps that are called at most once
//
//	intent, committed ─► call ─┬─► result, or an error that is marked ─► record
//	  RUNNING, error_kind      ├─► another error, a panic ─► in doubt: RUNNING, error_kind, error
//	                           └─► the worker dies ─► the next execution finds the intent ─► in doubt
//	in doubt ─► Reconcile, or Resolve ─► a message to the run ─┬─► happened ─► COMPLETED
//	                                                           ├─► did not happen ─► FAILED, the next attempt calls
//	                                                           └─► given up ─► FAILED
//
// A step with AtMostOnce writes a RUNNING record before its call, and waits until that is committed. So an execution
// that finds the record knows that the function may have been called, and does not call it:
//
//   - The record is fenced by the lease. If it is not written, the function is not called. Its error_kind distinguishes
//     it from the RUNNING rows that only show a step.
//   - A worker that stops between the record and the call withdraws it: a failed attempt, which another follows. So
//     does one whose limit puts the step off.
//   - An attempt that is in doubt waits for a message, whose name has the run, the step and the attempt. So the wait,
//     its wake-up and a suspension are those of a signal, and of several messages the first one counts: Reconcile sends
//     its answer to the run as Resolve does.
//   - The message is taken with the record of the attempt. A message that does not decode into the step's result is set
//     aside.
//   - No attempt of the run that follows by itself forgets the failure of such a step: it would call the function
//     again. The attempt after a Resume does, and so does a fork.
//
// A branch that is over waits for nothing: it lost a race, its group failed, or its run is over. Its attempt is marked
// permanent, and Resolve writes the record itself. The outcome of a call that ends after its branch is recorded all the
// same, so that no doubt is left.
//
// Code: store.Messages.Resolve, inspect.Health.Doubts. Tests: TestALostWorkerLeavesDoubt, TestAnErrorLeavesDoubt,
// TestNoDoubt, TestReconcile, TestARunThatIsOverIsInDoubt, TestABranchThatIsOverIsInDoubt. They hold promise 2 for
// steps with AtMostOnce.
package replay
