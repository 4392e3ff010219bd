// Package starts starts runs and announces them. Starts of a process that come while another is being written share the
// next statement and its commit.
//
//	starts ──► one statement under way ──► those that came meanwhile share the next one
//	                                          │ inserted ──► return
//	                                          └ not inserted, for any reason ─► each alone, as if there were no others
//
// Only single starts without policies, windows and messages share a statement. The shared statement only inserts. Each
// caller whose run it did not insert starts it alone. So every caller gets its own error, and a lost answer is looked
// for as ever.
//
// The shared statement waits for a lock for 100 ms at most. After that, the runs without an external ID are inserted
// together once more, and those with one share no statement for 10 s.
//
// A caller that gives up before its run was sent has started nothing. From then on only a deadline ends its wait, as
// for every statement.
//
// See store/doc_start.go for the statement, and internal/engine/doc_reservations.go for starts in place.
//
// Tests: TestStartsShareAStatement, TestAHeldIDHoldsUpNobody.
package starts
