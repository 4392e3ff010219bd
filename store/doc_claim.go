// # What a claim writes
//
// A claim is one transaction. It locks due rows with SKIP LOCKED, sets them RUNNING under the worker's lease, and moves
// available_at to the end of that lease. It returns the runs and the time of the next due one. A claim that finds no
// run reads that time in a second transaction, for runs that become due after the first one began. Package
// internal/claims decides what to ask for; internal/worker/doc_claims.go says what a worker does with the answer.
//
//   - The lease is a random UUID and not a counter: after a failover to an asynchronous standby, two workers could hold
//     the same number. The worker makes it before it sends the statement, so it can search for a claim whose answer was
//     lost.
//   - Runs come by priority, and within a priority by workflow. The order of workflows is shuffled for each claim.
//     Every sixteenth claim takes the priorities in reverse, so that none starves.
//   - A claim does not wait for the disk. If a crash of the server loses a claim, it has lost all records made under it
//     as well, because these come later in the log. Records, suspensions and ends wait for the disk. So do claims under
//     limits: see doc_keys.go.
//   - A lease ends at most three seconds after the run's deadline: the holder has that long to end the run. A lease
//     taken after the deadline has the usual length.
//   - A due row that is still RUNNING belongs to a dead worker: the claim counts a recovery. From the third one on, the
//     run waits first (set_back), and only those recoveries count under whose lease it had begun: see BeginSuspect.
//     A second transaction sets it back. If that does not take place, the run is still due, and the next claim finds
//     it.
//     Runs that are set back together come back together, because a worker executes them in groups. One with a key
//     leaves a change: it may have given up a slot.
//   - A run that may kill its workers, or whose history could not be read, comes without its input.
//   - The index has an entry for each earlier available_at of a row until VACUUM removes it, and VACUUM keeps it while
//     a snapshot is older. A search would read all of these entries, so each is bounded: that of due rows by since,
//     that of the next due row by a time ahead.
//   - All or nothing: the answer has all that a lease has committed, or a search for the lease finds it. A claim
//     returns runs or an error, never both, and never a part of the runs.
//
// # Giving a run back
//
// A run that is given back before it began loses the changes of its claim. The same holds for a start in place, and
// after a lost answer.
//
//	the claim wrote               after it was given back
//	status, locked_by             PENDING, NULL
//	available_at                  its place in the queue; now, if the answer was lost
//	version, started_at           NULL, if the claim set them: the last two bits of the lease say so,
//	                              because the row does not
//	lease                         stays: it tells whether the write that gives the run back took place
//	recoveries, recoveries_since  stay: they are about the worker before
//	waiting_on                    worker
//
// A run whose worker dies keeps version and started_at: no other process knows whether it had begun.
//
// # Searches for lost and stray runs
//
//   - ResolveClaim finds the runs of a lease whose answer was lost.
//   - FindRefused finds the run that the database refuses. A constraint or trigger of the application may refuse the
//     change of one run, and with it the statement for many. FindRefused writes what the claim would write to
//     parts of what it may take, in transactions that it rolls back, down to single runs and consumers. It leaves no
//     mark, because the database may refuse any change of such a row.
//   - LeasesGiven finds strays: runs that are RUNNING under a worker which does not execute them. The ends of the
//     leases that a worker gave in some time are in a known part of the claim's index. The search reads the runs of all
//     workers that were claimed, or extended their leases, in that time, and those that become due a lease later. The
//     table does not say when a lease was given that ends with its run's deadline. So such runs are read from the index
//     of deadlines, up to a thousand of the nearest, and count once searches have found them for 25 s.
//
// Tests: TestClaimAfterALostAnswer, TestClaimThatCommitsAfterItWasResolved, TestPauseDuringAClaim,
// TestClaimBesideAForeignBacklog, TestRefusedConsumerHoldsUpNoOther, TestRunThatBecomesDueDuringAClaim,
// TestRunThatCannotBeSetBack, TestRefusedSuspectIsFound, TestRefusedSuspectHoldsUpNoOther.
package store
