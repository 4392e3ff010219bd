// # Interceptors
//
// Interceptors are composed once, when the client is made. Without one of a kind there is no overhead: the call goes
// straight on.
//
//	Start, Signal   around the statement and its wake-ups, outside of any transaction
//	Execute         around the function, in a goroutine of its own
//	Step            around the step's function; record, retries and the commit of a StepTx are outside
//	Ended           after the commit of an end
//	Flushed         around a worker's flush
//
// Why each is where it is:
//
//   - Start: a coordinator with such an interceptor fires due schedules one by one instead of in one transaction. A
//     child's interceptor wraps the preparation of its record: the write is the run's next flush.
//   - Step: an interceptor cannot come between a commit and the engine's answer to it. The context that it gives to
//     next must descend from the attempt's, or the function would miss its cancel.
//   - Execute: an execution that stops exits the goroutines of its branches, and would take the interceptors along. So
//     next starts the function and blocks until the execution has settled. The write of the outcome then waits for the
//     interceptors to return, but only for interceptGrace: application code must not hold up a drain. An error after a
//     success fails the attempt. It changes no other end, because a run that is suspended, cancelled or lost is no
//     longer theirs to fail.
//   - The steps' contexts take the values of the interceptors' context and nothing else: the run must know each reason
//     for which a step's context ends.
//   - Ended is called where an end is announced: by a worker's flush, and in package internal/hints for all ends that
//     no worker writes.
//   - Ended and Flushed cannot fail a run: their panics are logged.
//
// Tests: TestInterceptorsWrapEachOther, TestInterceptorsThatFail, TestInterceptorsThatHide,
// TestInterceptorsLearnTheEnd, TestInterceptorsOfOtherStarts, TestInterceptorThatBreaksASchedule,
// TestLoggerOfAnInterceptedRun, TestInterceptionIsPatient, TestInterceptorsLearnOfEnds, TestInterceptorsLearnOfFlushes,
// TestInterceptorsLearnOfRetries.
package engine
