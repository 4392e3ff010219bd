// Package migrations holds Kagzi's tables as embedded SQL, and brings a database up to them.
//
// Programs call kagzi.Migrate, and two functions of this package: [SQL] returns the work of Migrate as a script, and
// [Distribute] spreads the tables over the servers of a Citus cluster. The rest is exported for Kagzi's own packages
// and carries no compatibility promise.
//
// A version is the number of a migration. A database's version is the newest migration that was applied to it; a
// program's version is the newest one that it knows. Each migration names the oldest program that works with the schema
// after it.
//
// # How a migration works
//
// A migration that raises the oldest program contracts, at most to the release before. The others expand.
//
//	Up: poll for a session's advisory lock ─► each missing file: wait briefly for its table ─┬─► applied
//	                                                                 again ◄── not yet had ──┘
//	contracting: lock workers before the commit ─► a live worker needs the old form ─► roll back
//	worker:      register ─► check the schema once more      (so one of the two sees the other)
//
// Both sides keep rules:
//
//   - A file takes one strong lock on one table, and is short: no rewriting, no rows. A constraint is added NOT VALID,
//     and another file validates it.
//   - An index has a file of its own with two statements outside of a transaction: DROP INDEX CONCURRENTLY IF EXISTS,
//     so that a build that was broken off is not taken for a good one, and CREATE INDEX CONCURRENTLY.
//   - Up polls for the advisory lock, because a statement that waits holds a snapshot. It waits briefly for a table and
//     tries again, because a waiting ALTER TABLE stops all statements behind it.
//   - A worker that was declared dead checks the schema before it registers again.
//   - The database must be UTF8. The query of the schema's version asks for the encoding, too, so clients, workers and
//     Health know it without another.
//
// What users may rely on is in docs/upgrading.md. Code: Up, SQL, Check. Tests: TestEncodingOfTheDatabase,
// TestMigrationsExpand, TestFilesAreRefused, TestContractingMigrationLooksForWorkers,
// TestWorkerRegistersBesideAContractingMigration. They hold that a program of the release before goes on.
package migrations
