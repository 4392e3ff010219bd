// # Keys and slots
//
// Limits count rows. They keep no counters: a counter leaks when its process dies before it decrements, and it may be
// decremented twice.
//
//	start, wake-up, verb                 worker                     Postgres
//	  │ key_changes ◄─ in its transaction  │
//	  │ NOTIFY ───────────────────────────►│ Claim ──────────────────►│ runs without keys; probe: keys are due
//	  │                                    │ Claim(Keys) ────────────►│ lock queue and keys: SKIP LOCKED; limited runs
//	  │                                    │◄─────────── locked keys ─┤
//	  │                                    ├─────────────────────────►│ count, take, next place of each key; COMMIT
//	  │                                    │ … the run ends, and its end says nothing of its key
//	  │                                    │ freed keys ──► the next claim looks at the key
//
// # Where a run is, and where a key
//
// A run with a key is in one of two places. While it waits for a slot, it is in the index workflow_runs_keyed, where
// only claims of keys find it. Once it holds a slot, it is in the claim's index like any other run. So leases,
// take-over, releases, sleeps of held runs and lost answers know nothing of keys. Its column slot is 1 if it holds the
// slot while it is RUNNING, and 2 if it does so until it ends.
//
// Each key has a row in run_keys with its place in the line: the time at which a claim is to look at it. A key whose
// slots are all taken has no place (infinity), so its waiting runs cost nothing, be they ten or ten million. Claims
// take keys from the front of the line. After its turn, which is as many runs as its weight, a key goes to the end. The
// column credit keeps the rest of a turn for which the claim had no room.
//
// # Why no limit is exceeded
//
// Only two statements give slots: the claim of keys, and the claim from a queue with a limit. Each runs in a
// transaction that has locked the row of the key, or of the queue, in an earlier statement. So the snapshot in which it
// counts has all that other claims took under this lock. Giving up a slot needs no lock. The take-over of a dead
// worker's run changes no count. These claims commit with the server's synchronous_commit, because a crash of the
// server must not undo a claim whose run is executed. A failover to an asynchronous standby may undo it: that is the
// one hole, as for leases.
//
// # Why no run waits for ever
//
// Each transaction that may let a run of a key start inserts a row in key_changes. The insert waits for no lock and
// holds none, however long the application's transaction stays open. A claim deletes the change only under the key's
// lock, and looks at the key in a later statement: that one sees what the change is about, which is committed. If the
// key is locked, the change stays. A key that stands in the line already is not looked at for its change: the claim
// that takes it from there sees the same.
//
// A run's end writes no change, because the worker that writes most ends claims next, and keeps the key for that claim.
// Three cases remain:
//
//   - A claim could not lock the key: the worker keeps it for the next one.
//   - No slot is free for a claim, the worker drains, is fenced, or has claimed only from other queues for a second: it
//     inserts changes for its freed keys. For a queue with limits it does so for the slots of runs without keys as
//     well. A worker that cannot insert them does not report its end.
//   - The worker dies: the coordinator that releases its runs inserts changes for all keys of its queues whose runs
//     wait. It does so at once, and again when late writes of the worker can commit no more.
//
// # The row of a key
//
// Claims change the row of a key twice for a run: when the key leaves the line, and when it is back. While an old
// snapshot may see them, all versions of the row stay, and each search would read them. So a change of a claim counts
// the column version, the primary key ends in it, and a search begins at its newest entry. If that is locked, lockKeys
// reads no older ones. claimKeys needs no search: lockKeys has told it the version.
//
// So the primary key does not keep two claims from inserting a row of the same key each, if a third changes the first
// one meanwhile. A statement after the insert looks for a second row, and fails if there is one: the transaction is
// repeated. The first change by a claim leaves the version as it is (fresh). Without this exception the claim that
// inserts the row would itself be the third, and the claims that wait for it would fail each time. Others than claims
// insert rows by withKeyRow, and otherwise change those that they have locked.
//
// # The cursor of a key
//
// Entries of ended runs stay in an index while an old snapshot may see them, and each search would read all of them. So
// the row of a key has a cursor: no waiting run of the key is due before waits_from, and no run with a lower ID than
// slots_from holds a slot of it. A claim that takes runs may raise both, under the lock of the key. One in eight does
// so, by chance: the others need not write the row.
//
// Each transaction that makes a run wait leaves a change, or its worker hands the key on. A start says in its change
// from when on its run is due, and the worker whether the run is over; all other changes say -infinity. The claim that
// locks the key for them lowers waits_from, whether it looks at the key or not. A claim that gives a slot to a run
// lowers slots_from, and so does a resume that gives one back.
//
// The row of a queue has slots_from, from which claims count its runs without keys. All that gives a run a slot holds
// the row's lock: claims of a queue with limits, of which one in four raises it, and Settle, a resume and a group's run
// that moves, which lower it. A compensation has no key, and gets a slot beside its parent, which holds one: so the
// cursor does not pass a parent with a key either. Claims that began before the queue had a limit hold no lock: no
// claim raises the cursor before the queue is settled.
//
// Groups and sequences have no cursor. In a sequence no claim may take a run while the change of an earlier one is
// unread. The unique index of groups reads all entries of a group anyway. While there are pauses, no cursor is raised.
//
// # Order and cost
//
// A claim takes the runs of a key by priority, due time and ID, those that the worker can execute. A key with one slot
// that is held to the end is a sequence: only its first due run may be taken, and if this worker cannot execute it, it
// takes no other run of the key. A group is such a key. Its scope is empty, so it spans queues, and a unique index
// holds it to one run.
//
// A queue without keys and limits pays for one search of kagzi.queues a claim, and for one probe with each full claim.
// A start in place reads kagzi.queues, too, and inserts the run as PENDING if the queue has limits.
//
// Package internal/claims tells when a worker claims for keys, and how it passes keys whose runs it cannot execute.
// doc_start.go has WhenFull. The specification of admission in docs/spec, TestAdmission, tries every order of these
// steps. Of the rows: TestNoKeyHasTwoRows, TestClaimsReadNoDeadVersionsOfAKey.
package store
