// # What a claim writes
//
// A claim is one transaction. It locks due rows with SKIP LOCKED, sets them RUNNING under the worker's lease, and moves
// available_at to the end of that lease. It returns the runs and the time of the next due one. Package internal/claims
// decides what to ask for; internal/engine/doc_claims.go tells what a worker does with the answer.
//
//   - The lease is a random UUID and not a counter: after a failover to an asynchronous standby, two workers could hold
//     the same number. The worker makes it before it sends the statement, so it can search for a claim whose answer was
//     lost.
//   - Runs come by priority, and within a priority by workflow. The order of workflows is shuffled for each claim.
//     Every sixteenth claim takes the priorities in reverse, so that none starves.
//   - A claim does not wait for the disk. If a crash of the server loses a claim, it has lost all records made under it
//     as well, because these come later in the log. Records, suspensions and ends wait for the disk. So do claims under
//     limits: see doc_keys.go.
//   - All or nothing: the answer has all that a lease has committed, or a search for the lease finds it. A claim
//     returns runs or an error, never both, and never a part of the runs. A claim that meets a pause in its second
//     round trip, whose batch has the commit, keeps the runs that the first has taken.
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
//     change of one run, and with it the statement for many. FindRefused tries the claim for parts of what it may take,
//     in transactions that it rolls back, down to single runs and consumers. It writes nothing, because the database
//     may refuse any change of such a row.
//   - LeasesGiven finds strays: runs that are RUNNING under a worker which does not execute them. The ends of the
//     leases that a worker gave in some time are in a known part of the claim's index. The search reads the runs of all
//     workers that were claimed, or extended their leases, in that time, and those that become due a lease later. The
//     table does not say when a lease was given that ends with its run's deadline. So such runs are read from the index
//     of deadlines, up to a thousand of the nearest, and count once searches have found them for 25 s.
//
// Tests: TestClaimAfterALostAnswer, TestClaimThatCommitsAfterItWasResolved, TestClaimMeetsAPause,
// TestClaimBesideAForeignBacklog, TestRefusedConsumerHoldsUpNoOther.
package store
