// # Starting a run
//
// A start is one insert, and one round trip if no other run has its external ID. The client makes the run's ID before
// the first try.
//
//	client                                              Postgres
//	  ├── INSERT run ON CONFLICT DO NOTHING ──────────────►│
//	  │◄─────────────────────────────── inserted? ─────────┤ yes: done
//	  ├── 2nd statement: by run ID ───────────────────────►│ there: an earlier try of this start
//	  ├── 3rd statement: by external ID ──────────────────►│ active run: return it, or ErrIDConflict
//	  │                                                    │ none: it ended in between, insert again
//
// The order of the statements matters:
//
//   - The lookups are statements of their own. A statement that inserts does not see rows that were committed after its
//     snapshot.
//   - The runs of one call are due a microsecond apart, in the order of the call. Claims take them in this order, and
//     a claim's Since tells apart which of them were taken.
//   - The client hashes an input before it seals it, because the database knows only sealed bytes. A restart does so,
//     too. Starts with messages do not compare the hash: a message is for the active run, whatever its input.
//   - In a caller's transaction no statement raises an SQL error. A savepoint takes back earlier inserts.
//
// Waiting for an ID: an insert waits for an open transaction that has inserted the same external ID. It waits in slices
// of lock_timeout and looks at the caller's context in between. So a cancelled wait costs no connection, and its
// outcome is known: HeldError.
//
// Policies for ended runs are tested after the insert, in a further statement, which rolls the insert back if they
// refuse it. From the insert on, no other run can be active under the ID, so none can end unseen. This needs READ
// COMMITTED. Stricter transactions are refused.
//
// ReplaceActive locks the active runs and their parents in order, ends them, and inserts again. A run that ended before
// the lock counts as ended, and not as replaced.
//
// WhenFull makes a start serial with other such starts of its key: each locks a row in start_windows, which no claim
// touches. Locks come in this order: these rows, windows, inserts, runs. The count comes in a statement after the
// insert, because only the insert decides whether the start begins a run. So it sees all that earlier starts have
// committed. Then the start is rolled back, or cancels the oldest runs in its own transaction.
//
// After a lost connection, another try pings each connection that the pool gives it, and uses the first that answers: a
// restart of the server ends all of them, and a call has only five tries. After a refused write it passes over
// connections that are read-only. It leaves the other connections of the pool alone, because pinging all would close
// slow ones and keep other callers waiting. Changes of runs do the same.
//
// After the commit, the client wakes those workers of its own process that have free slots. It notifies other processes
// only if these have too little room. In a caller's transaction, the notification is sent by its commit.
//
// Package internal/starts tells how concurrent starts share a statement. Code: Starts.Start, Starts.Together,
// HeldError. They keep promises 1 and 4.
//
// Tests: TestAStartIsOneStatement, TestStartOfAHeldID, TestIfEndedRaces, TestReplaceActiveRaces, TestLostStart,
// TestPoolOfFaultyConnections, TestOneActiveRunForAnID.
package store
