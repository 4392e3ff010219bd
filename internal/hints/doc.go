// Package hints knows who in this process waits for which run or queue, and sends every announcement: to waiters of
// this process directly, to other processes by a notification. A hint may be lost or spurious. A process that gets one
// reads the tables, and every process also polls.
//
//	announce ─► waiters and workers of this process, directly
//	        └─► publisher: one statement per 2 ms and process ─► NOTIFY ─► listener, own connection ─► subscribers
//
// Notifications are rare, and no promise but speed depends on them:
//
//   - NOTIFY takes a lock of the whole database at commit, and so ends group commit. So it is never part of a hot
//     transaction. A hint that cannot be sent is dropped; without hints all works by polling.
//   - Each wakes every process that listens, whatever its channel. So ends of runs, answers and values are announced
//     only while a process waits for some. Those that wait say so once a second, one for all, and the others believe
//     it for three. A worker that has just connected, or does not listen, announces all.
//   - The rate of notifications is an average: a publisher that has sent little lately sends at once, ten times in a
//     row.
//   - The listener runs while a worker does, or after 300 ms of waiting in Result. Pauses of up to 5 s between two
//     waits count as waiting, so a process that calls Result again and again keeps its connection.
//   - On each connect the listener wakes every subscriber, because it may have missed something. It sends itself a
//     probe: behind a transaction pooler, LISTEN succeeds and hears nothing. A client has one line for all its life,
//     or shares one, so each loss in the log is followed by an entry that says when it was back.
//
// # Results
//
// Result queries for a run at once, and when a notification names it. Meanwhile it queries after pauses that grow: from
// 1 to 250 ms, or from 100 ms to 2 s while notifications arrive. While they do, a run whose ID is younger than 10 ms is
// first queried at that age: a query beside its execution would only slow it down. Runs that are due at the same time
// share a query.
//
// A run that ends in the process is delivered from memory, but only to waiters who came before: later ones may wait for
// a resumed run.
//
// Code: this package and package notify. Tests: TestLostConnectionWakesAll, TestWithoutListen,
// TestResultThatCannotBeRead, TestWaitersKeepTheListener, TestAnnouncedOnlyToThoseWhoWait,
// TestTransactionPooler. They hold promise 8.
package hints
