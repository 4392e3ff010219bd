// # Values
//
// A run sets a value, which others read. The value is a record in the history, as a reply is, with two differences: no
// replay looks for it, and a later one replaces it.
//
//	Set ─► count: is it new? ─► deferred record ─┬─► the next write takes it along
//	                                             └─► a timer enqueues a write of its own, after a second
//	row "ship/#value:state": the value, how often the branch "ship" has set it, its position
//	readers: of all rows for "state" in the run, the one with the highest position ◄─ hint, poll
//
// A replay sets the same values again, and must write none of them. Which of them the table has, the history does not
// say by its order: several branches set a value, each at its own pace. So each branch has a row of its own with the
// number of its last change, and counts. A change with a number up to that is in the table, or its successor is.
//
//   - The row is written under the lease, in the order of the outbox, so a stale worker changes nothing, and a write
//     that is repeated because its answer was lost changes nothing either.
//   - Of the changes that one flush would write, it writes the last.
//   - While another transaction has locked the run, the row that a change is to replace is no result of the change.
//   - A branch that may lose a Race keeps its values until it has won: a row cannot be taken back.
//   - Another attempt of the run executes the function again, and sets its values anew: it counts from zero. So does a
//     fork, which copies no values.
//   - A branch that is past its history changes a value in any case, whatever it has counted. So code that sets a value
//     less often than the code before it is one step late at most.
//   - The version of a value is the position of its record, which grows in a run.
//
// Code: Branch.setting, store.Runs.Values, hints.Hints.Value.
// Tests: TestReplaysSetNothing, TestBranchesSetAValue, TestLoserSetsNothing, TestAttemptsAndForksSetAnew,
// TestCodeThatSetsLess, TestValueBesideSlowCode, TestChangesThatShareAFlush, TestLastChangeOfAValue, TestLostValue,
// TestReplacementsWaitForALockedRun.
package replay
