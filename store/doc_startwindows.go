// # Starts that share a run
//
// Starts with OncePer, Debounce or Batch share a run. Each external ID or key has a row in start_windows. The row names
// the run that starts join until the window closes. A start locks the row. Then it joins the run, or it inserts a run
// of its own and opens the window anew.
//
//	lock the windows, by ID ─► lock their waiting runs, by run ID ─► read both ─► assign
//	  └── one round trip, three statements, each with a newer snapshot       ├─ join: input, due time or item
//	                                                                         └─ open: insert as ever, then the window
//
//	          the window closes   a start joins until then               by joining
//	OncePer   after the period    always, if the run is over or          it changes nothing
//	                              deleted, too
//	Debounce  after Max           if the run is PENDING and never began  it replaces the input, moves available_at
//	Batch     after Within        the same, and there is room            it inserts a row of start_items; the last one
//	                                                                     moves available_at
//
// The locks, and the failures that they prevent:
//
//   - The lock of the window makes starts serial until they commit. So no start joins a run that another has just
//     filled or closed. The statement locks the row by an ON CONFLICT DO UPDATE whose condition is false, which writes
//     no new version of it.
//   - The lock of the run keeps claims out, because they skip locked rows. So a committed input is in the run before a
//     worker reads it. A start that waited for a claim sees that the run is RUNNING, because it reads in a further
//     statement.
//   - A window closes by time, at the latest when its run is due for good. From then on no start locks the run's row.
//     Otherwise claims could skip the run of a busy key again and again.
//   - Items are rows, because the client's codec and sealer have made them, and the database cannot append to an
//     encoded slice. The run's own input is NULL, so claims leave it out. A reader of the input reads the items, joined
//     in their order. Each is framed by a mark and its length, which Handle undoes. A restart copies the joined input.
//   - After a lost answer, the next try waits for the locks of the earlier one, whose outcome is decided by then. It
//     looks for its run, its item, or its start_id in the window. If another start has replaced the input of a debounce
//     meanwhile, the try writes it once more, as if its start had come later.
//   - A coordinator deletes closed windows after ten minutes. Items go with their runs.
//
// Tests: TestWindowRaces, TestLostStartInAWindow, TestClaimBesideAnOpenItem. They hold promises 1 and 4.
package store
