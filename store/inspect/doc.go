// Package inspect has the statements that only read, for people and for checks: lists, counts, statistics, the health
// of the work and the advice for the server. Package store changes rows, and knows nothing of this one.
//
// # Lists
//
//	completed ─┐  indexes (namespace, [status,] queue, workflow, run_id): a page of each pair
//	stopped  ──┼─► newest page by run_id ─► the rows, by key
//	waiting  ──┘
//	moving ────►   the claim's index, up to the end of a lease: all of them
//
// A list reads a page of each index, and no more. Its statement is joined from the predicates that the filter asks for:
//
//   - A run is in one of three indexes, or it moves: it is RUNNING, or PENDING and was due at once. Runs that move are
//     in the claim's index already, and are due or have a lease that ends soon. So starts and claims pay for no list,
//     and an end pays for one index entry. One index of all runs by status would cost twice as much, and starts would
//     pay for it, too.
//   - Pairs of queue and workflow are found by one search for each. The pages of all pairs are merged by run ID, which
//     is the order of lists. The list itself finds the pairs of the runs that move, although they were counted before:
//     a run that begins to move in between may be the only one of its pair.
//   - The database's clock may have been ahead when runs that move got their times. Each worker keeps the latest time
//     that it has seen (workers.latest_at), and a list looks at all that is due until a lease after that.
//   - If more than 20,000 runs move, the list walks down the key, as it does for metadata and keys.
//   - Runs of a parent or a schedule, runs that are paused themselves, and runs whose workers died are few: an index
//     finds all of a kind, and the list reads them all.
//   - Times bound the run IDs, with a day for clocks that are ahead or behind. The condition on created_at is exact. It
//     stands in the indexes behind the ID, as those on ends, kinds and waits do, so no row is read for it.
//   - No other statement can use these indexes, whatever the statistics: the namespace leads in another collation, and
//     the conditions have attempts >= 0, which always holds.
//
// Tests: TestListsReadLittle, TestListOfBacklog, TestCountsByStep. They hold that a list reads a page of each pair, and
// finds all that a walk down the key finds. TestEveryPairOfPredicates of package store tries each two predicates.
//
// # Statistics
//
// Client.Stats must be cheap although it counts. It finds each queue, workflow and priority by one search of the
// claim's index, and reads the first few runs that are due and the first few that are not. The rest of its bound goes
// to those that have more.
//
//	a queue's runs in the claim's index:  [ due: backlog ] [ running: leases end within a lease ] [ sleeping ]
//	                                        first few        first few of those not due
//
// Among the runs that are not due, the running ones come first, unless very many sleep for less than a lease lasts. The
// index leads with the queue and has no status, because a longer one would cost each claim. So a count beyond the bound
// would read a page for each run, and there is none. Runs that wait for a slot of their key are in another index, and
// paused runs in a third.
//
// A worker counts ends and steps itself. Its heartbeat has the counts, and the rates of the last minute; the statement
// that ends its row has the last counts. A worker that was declared dead goes on in a new row, which counts those that
// no heartbeat of the old one had. No process counts starts: the newest IDs tell how many there were. The primary key
// leads with the run, so that search reads the IDs of all namespaces, up to a bound.
//
// Tests: TestStatsCounts, TestStatsReadsLittle, TestStatsOfManyWorkflows, TestRegistryCountsAfterStop,
// TestRegistryCountsOfAWorkerDeclaredDead.
package inspect
