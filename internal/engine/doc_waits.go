// # Waits and suspension
//
//	branches busy ──last busy branch waits──► does a wait end within 200 ms?
//	     ▲                                      │ yes: stay in memory
//	     │ a wait ends                          │ no
//	     └──────────────────────────────────────┤
//	                                            ├─ a time, a message or a child is awaited ─► goroutines exit,
//	                                            │                                  suspension is written, slot is free
//	                                            └─ branches wait only for each other ───────► kind.Nondeterminism
//
// A suspension leaves nothing behind in memory:
//
//   - A longer sleep is recorded when it begins: otherwise a daily deploy could begin it anew for ever. Its record
//     shares the transaction of the suspension.
//   - A workflow function never sees its suspension. Its goroutines end by runtime.Goexit, which no "if err != nil" and
//     no recover can mistake for a failure. The execution is marked stopped first, and every durable operation looks
//     for that mark at its beginning and end, so deferred calls exit as well. Lease loss, shutdown and cancellation end
//     goroutines in the same way.
//   - The column waiting_on names the waits of the branches in an order of its own: first those that end by a time, in
//     the order of these times. So the text is the same after each replay.
//   - Code that does not return within 1 s is not waited for, unless it may register compensations. Its end is written,
//     its slot is freed, and the lease refuses its later records.
//
// Tests: TestSleepsHoldNothing, TestEarliestWaitWakes, TestDeferredCallsAtSuspension,
// TestDrainDoesNotWaitForAStepThatIgnoresItsContext. They hold promise 5, and that a waiting run holds no goroutine.
package engine
