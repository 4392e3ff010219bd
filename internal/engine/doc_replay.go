// # Execution and replay
//
// The history is what the claim read, and it does not change. A first execution returns the decoded record, too, so
// code cannot depend on a difference between a value and its encoding.
//
//	operation(name)
//	  │ ID = branch prefix + name + #n for the n-th use, at most 2,000 bytes: it is a key of the table
//	  ├─ in the history, same kind ───► return the recorded result, decoded
//	  ├─ in the history, other kind ──► quarantine: kind.Nondeterminism
//	  └─ not in the history ──────────► may I begin? ──► execute ──► record ──► decode ──► return
//
// A durable operation from another goroutine, or from inside of a step of the same branch, returns an error. It cannot
// end that goroutine, because errgroup would report success. The first wrong call of an execution is the run's failure
// if there is no other. It is not recorded, because the next execution comes to the same call. A call from another
// goroutine need not come again, so such a run fails instead of being suspended.
//
// Patched compares two numbers: how many steps and branches the history has right under its branch, and how many the
// branch has passed. If it has passed fewer, old code was further, and the answer is false. A flag "past the history"
// would not do, because a step added before this point sets it. The answer true is recorded, and the record awaited,
// before Patched returns it: a StepTx behind it commits by itself, and a replay that found that record without the
// answer would take the run for an old one. The answer false can wait for the next write.
//
// Worker.Replay runs code against the history of a run that is over. A branch exits at the first unrecorded operation,
// and nothing is written. Replay reports where branches exited, except below a branch that failed, which cancelled them
// anyway. It compares how the run ended, unless the run was ended from outside.
//
// Tests: TestRandomPrograms, TestSafeChanges, TestNondeterminism, TestContextOfAnotherGoroutine,
// TestPatchedIsRecordedBeforeWhatFollows, TestReplayFindsWhatChanged. They hold promise 2.
package engine
