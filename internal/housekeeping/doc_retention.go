// # Retention
//
//	scan: next range of the key (to a cut) ─► ExpiredRuns, 4,000 rows ─► Prune: lock, check again, delete
//	       > 50 ms: divide for the next scan        │                       └─ 5,000 steps: mark, delete them, then it
//	       > 200 ms: cut off, divide at once        └─ nothing found: pause 20 × the query × coordinators that scan
//
// The table is read slowly, and deleted carefully:
//
//   - No index knows when runs ended, because every finish would pay for it. Retention scans the primary key instead,
//     whose IDs are UUIDv7. Clients' clocks decide only when a run is visited; finished_at decides whether it goes.
//   - A query reads the key of all namespaces, so the key is divided by cuts. The pauses keep all namespaces together
//     below a twentieth of the database's time.
//   - A run stays while its parent's row exists: a parent that is over may be resumed, and needs its children.
//   - A run with 5,000 steps or more is marked first, and Resume no longer finds it. Resumed half deleted, it would
//     execute steps again (promise 2). If its row were deleted first, no process would find its steps.
//
// A [Sweep] takes the place of all coordinators' scans where one process serves many namespaces: a query returns the
// old runs of all of them, so each row that it reads counts, and the key needs no cuts.
//
// Code: store.Deletions.Expired, store.Deletions.Prune. Tests: TestPruneMeetsResume, TestPruneInSeveralTransactions,
// TestRetentionBesideALargeNamespace. They hold that a run goes with all its rows, and a child never before its parent.
package housekeeping
