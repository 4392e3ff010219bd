// # Limits on steps
//
// A limit bounds how many steps execute at once (slots), or how many begin in a time (tokens), over all workers. A slot
// or a token goes only to a step that could begin now: it is in a worker's memory, or its run is not paused, its key
// has a slot for it and a live worker has code for it. Such steps begin in the order in which they asked.
//
// A place is a row of limit_places. A step that is granted a token at once, of a limit without slots, needs none.
//
//	     no room               its turn, and it is elsewhere
//	ask ─────────► WAITING ──────────────────────────────────► CALLED, and its run is woken
//	 │              │   ▲  ▲                                     │        │
//	 │ room    turn │   │  └────────────────── asks, no room ────┘        │ asks, room
//	 │              ▼   │ yields, or its lease is lost                    │
//	 └────────────► RUNNING, it has a slot ◄──────────────────────────────┘
//	                │ leaves, or 10 s after the end of its run
//	                ▼
//
// A service of a limit is one transaction of two round trips. The first one locks the limit's row, deletes the places
// of the steps that leave, takes back those of the dead, and reads the steps that ask and the head of the line. Package
// store then decides (serveLines), and the second one writes that.
//
//   - While a call is not answered, a slot or a token is kept for it: until a second after the token's time. A call
//     that comes later still goes first, and takes a slot that is kept for another one.
//   - If others could begin, the steps before them that could not are called, too, and nothing is kept for them. So
//     each is looked at once. A paused run is due as soon as it is paused no more, one with a key as soon as the key
//     has a slot, and a run without a worker as soon as one is there.
//   - A call adds to the run's wakeups, as a message does, so a run that is being suspended misses no call. If an
//     execution learns of a call while it waits for an answer, it asks again after it, because the answer may be the
//     older of the two. A step that has waited, asks, and is to come later is called, too: its run may be suspended
//     before the answer comes. A called run with a key leaves a change, because it waits for a slot of its key.
//   - Run rows are locked with SKIP LOCKED. If one is locked, the session serves the limit again soon.
//
// # Slots
//
// Slots are counted and not kept in a counter. A RUNNING place counts while its run is RUNNING under its lease, and for
// 10 s after the end of the run, because the function may not have returned yet. So the slot of a dead worker is free
// as soon as its run is claimed, and no process needs to give it back. The lock comes in a statement of its own,
// because the count must see what other transactions took before. Only this transaction adds slots. Who frees one:
//
//   - A step that has returned. It does not wait for that: its leave shares a transaction with the next asks. A
//     cancelled branch leaves the line. An execution that is suspended or yielded keeps its places.
//   - The next service of the limit, for runs that are over or go on elsewhere. The slots of a deleted run are kept for
//     10 s from the first service without it, because no row says any more when the run ended.
//   - A coordinator, for a session that died before it served the limit. Every few seconds it looks for limits with a
//     line of which no step is called, or with a slot of a run that sleeps or was deleted.
//
// # Tokens
//
// The column next_at is the time of the next token. It moves when a token is given, to a step that is here: at most
// 200 ms ahead, which the step waits in memory. Steps are called for the tokens of the next second, or else for the
// next one, and come 200 ms before its time. So steps that leave the line leave no holes, and many that come late
// together come no faster than the rate. A token older than 200 ms, or than a tenth of the time between two, is not
// used: the step yields, and gets the next one.
//
// If the limit honours the pause that an error asks for, its step yields in the transaction that sets paused_until,
// and makes no record: the attempt is made again from its place in the line. If the process dies before, the attempt is
// made again at once, as after any death before a record.
//
// # Units
//
// A step takes as many slots and tokens as it has units: rooms and calls are counted in units. It needs all of its
// slots to begin, but only the first of its tokens: the next step has the token behind them. Behind a step that does
// not fit all others wait. One with more units than slots begins when no slot is in use.
//
// # Several limits
//
// A step with several limits asks them together: the service locks all of them, in the order of their names. It begins
// in all of them, or in none. If one lacks room, the step waits in that line, and a call of it makes the step ask all
// again. In the other lines it has no place, or if a slot or a token is kept for it, one that is CALLED without a call.
// That lapses, so nothing has to be freed. A place in any line is that of the first question. The limits are looked at
// in the order of their slots, fewest first; which of them keep something meanwhile is decided in isKept.
//
// If the server refuses a task of a batch, Isolate halves the batch, and only that step fails. The commit waits for the
// disk: a crash of the server must not forget a slot whose function is under way.
//
// Code: Limits.Serve, Limits.Set, Isolate. Tests: TestTurnsOfALimit, TestTokensOfPausedRuns, TestSlotsOfStrandedRuns,
// TestRaceForSlotsOfALimit, TestSlotsOfALimit, TestManyComeLateToALimit, TestTokensAreNeverTooClose,
// TestLimitHoldsThroughAllTroubles, TestLostAnswersOfALimit, TestCallOvertakesAnAnswer, TestSlotOfADeadWorkerIsFreed,
// TestSlotOfARunThatWasDeleted, TestRefusedPlaceOfALimit, TestRetryAfterUsesUpNoAttempt,
// TestUnitsAreSlotsOfALimit, TestUnitsAreTokensOfALimit, TestUnitsOfSteps, TestSeveralLimits,
// TestTurnsOfSeveralLimits, TestStepOfTwoBusyLimitsHasItsTurn.
// They hold that a limit is never exceeded, and that no slot is lost.
package store
