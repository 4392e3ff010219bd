// # Groups and branches
//
// A branch's ID is the prefix of its steps' IDs, so no record depends on how goroutines are scheduled. A run does not
// complete before its branches. A failure of a branch for which the function did not ask fails the run.
//
//	group: begin (items of Map, deadline) ─► start branches ─► each end: does it decide?
//	                                                             │ yes: losers stop recording ─► write MARKER ─► act
//	                                                             └ no: next end
//
// The decision comes before its effects:
//
//   - A group's decision says which error, which winner, whether the time was over, and how many branches had begun. It
//     is recorded before the workflow sees it, so every replay decides alike. Losers and latecomers stop recording
//     before that, so that none of their records contradicts it.
//   - A branch is closed if the history has its end, or a decision against it, or one of these for a branch above. In a
//     replay a closed branch runs, because its variables may be used, but no operation begins on it. It does not see an
//     end that came after its own, by the database's clock.
//   - The winner of a race stays open, and so do successes in a group that was not decided against them: they may have
//     left branches behind.
//   - Children of an ended branch are cancelled once that end is in the table. If the process dies before, the next
//     replay does it.
//   - Losers write nothing, so their rows stay RUNNING. Client.Steps derives that they were cancelled: from the
//     decisions above a row, and from the end of the run (Present).
//
// Tests: TestRandomBranches, TestRaceForSignals, TestClosedBranchSeesNoLaterEnd, TestVariablesOfAFailedGroup,
// TestFailedBranchIsReplayedFromHistory. They hold promise 2: a replay takes the recorded path through branches.
package engine
