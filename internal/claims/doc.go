// Package claims decides which runs a worker claims next, and when. A Policy is a value: times, hints and answers come
// in, a request or a wait comes out. It has no clock, no database, no mutex, no logger and no goroutine. The worker
// keeps the loop, sends the requests, and guards the policy with its mutex.
//
//	Plan ─┬─► Request: the worker sends it ─► Answered: it begins the runs ─► Ended ─► Plan
//	      ├─► Wait: until a hint comes, but no longer
//	      └─► neither: a claim is due, and no slot is free
//
// The state of a queue says why its next claim comes:
//
//	a hint ──────────────► hinted ──┐        at once
//	a run frees its key ─► freed ───┤        at once; for that key alone if nothing else is due
//	                                ▼
//	              ┌────────────── claim ◄─────────────────────┐
//	              │                 │                         │
//	  more may be due        all that is due          due runs are left that
//	              │             was taken              this worker cannot take
//	              ▼                 ▼                         ▼
//	           backlog            idle                     blocked
//	              │ at once         │ when the next run       │ after a pause that doubles,
//	              │                 │ is due, or to poll      │ or once a limit has a token
//	              └─────────────────┴─────────────────────────┘
//
// In each state but idle and blocked, a run that is due may wait, so no run begins without a claim: see Reserve.
//
// # Cursors
//
// While a transaction holds an old snapshot, VACUUM removes no dead entry of the claim's index, and each claimed run
// has left one in front. So a cursor says where the claims from a queue begin: behind it lie only dead entries, as far
// as is known. A claim begins where the last one got to, for each workflow and priority. It looks for the next due run
// only as far ahead as the worker sleeps anyway.
//
// Such a claim misses two kinds of runs: those that were locked when it passed, and those that commit more than 250 ms
// after they became due, such as runs started in a slow transaction of the application.
//
//   - A full claim begins at the front, and finds them. The full claims of a worker take a tenth of its time together,
//     reckoned with the shorter of the last two, so that one late answer does not put off the next. After a
//     PollInterval one comes in any case. Without dead entries, a quiet worker makes nearly every claim a full one. If
//     another claim finds fewer runs than it asked for, a full claim follows as soon as one is allowed.
//   - A rewind replaces the full claim once that takes more than 20 ms. It only reads, beside the claims, and the next
//     claim begins at the first run that it finds. A worker that starts under an old snapshot begins with two full
//     claims. If these fail, it claims from now on, and rewinds at once.
//   - A lost answer, or a clock that was set back, needs nothing else: the next full claim, or rewind, finds these
//     runs.
//
// Keys and changes of keys have cursors, too. Claims read changes from the ID on that the last one got to. IDs are
// older than commits, so they pass over the changes of a transaction that is still open. Full claims and probes read
// all, and the next claim begins at what a probe has found. Of full claims that read keys, the next one that reads all
// comes nine times as long after the last one as that took. If a full claim came sooner, that one follows it. A key
// whose runs this worker cannot execute keeps its place in the line for other workers. The next claims of this worker
// begin behind it, until they reach the end of the line, or for a PollInterval; then one begins at the front again.
//
// # Ahead of free slots
//
// Beyond the free slots, a claim takes as many runs as slots were freed in the last 25 ms. These runs wait in memory,
// held like any other, and each begins as soon as a slot is free. So short runs share claims and wait for none. A run
// that has waited for 100 ms, or waits at a drain, is given back. If claims take longer than half of 25 ms, because
// many workers share the server, both times grow with them, up to four times: fewer and larger claims leave it more
// time. A claim brings the inputs of these runs only up to 64 kB each. Larger ones are read with the histories, whose
// memory is bounded. The next claim comes when half of these runs have begun. From a queue with a limit nothing is
// taken ahead: a run that waits would hold a slot of the queue.
//
// # Shares of queues
//
// The queues from which a claim is due fill the slots like water: the next run is one of the queue with the fewest
// slots for its share. A queue above that level gets none. A claim that finds fewer runs than it asked for leaves the
// rest to the other queues. So the share of an idle queue is lent, and comes back with the slots that become free.
//
// If the level of several queues is a fraction of a slot higher, the one whose claims took the fewest runs for its
// share is first. So queues with backlogs take turns even if one slot serves all. A queue that had no due runs for a
// while gets nothing for that time.
//
// After a claim that takes nothing, the queue counts as empty until some claim takes runs: only the other due queues
// fill the slots, as if it had no share. Limits, and keys of other workers' runs, make a claim due again and again
// although it takes nothing, and a claim from a limited queue may wait for other workers' claims. Served by its share
// alone, such a queue would keep due runs of other queues waiting.
//
// # Rooms
//
// A [Room] has slots that the policies of several namespaces share. It alone has a mutex, and a timer that ends turns.
//
//	          a claim is due
//	resting ─────────────────► fresh ──┐
//	   ▲                               ├──► in its turn: borrows slots, and keeps those that its runs free
//	   │                     waiting ──┘        │        │
//	   │                        ▲               │        │
//	   │                        └───────────────┘        │
//	   │          others wait, and it has lasted long    │
//	   └─────────────────────────────────────────────────┘
//	          no claim is due
//
// Few policies are in their turns at once. So each has many slots, and its runs share claims and flushes as those of a
// worker with one namespace do. A policy whose turn is over gives back each slot that its runs free. While others wait,
// a turn has its share of the slots.
//
// A namespace with little work does not wait for all those with much: those that come fresh are first, until their
// turns have together taken the time of one turn. Then one of those that wait since an earlier turn is next.
//
// # Claims for freed keys alone
//
// When a run of this worker frees its key, and no other claim is asked for or due, and the queue had no limits of its
// own, a claim looks at the freed keys alone (store.KeysRequest, Only). It leaves out the search for the queue's other
// runs, so the next run of the key begins sooner. It does not move the time of the next claim, so full claims come as
// often as ever.
//
// Tests: TestClaimLeavesDeadEntriesOut, TestFullClaimFindsWhatOthersMiss, TestRewind, TestRunsAheadOfSlots,
// TestLargeInputsAheadOfSlots, TestSharesOfQueues, TestSlotsThatOthersDoNotNeed,
// TestClaimsThatTakeNothingLendTheirShares, TestDueQueues, TestSharesOfSlots, TestMoreQueuesThanSlots,
// TestTurnsOfARoom, TestFreshBeforeBacklogs, TestRandomRoom. They hold promise 8.
package claims
