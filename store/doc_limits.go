// # Limits on steps
//
// A limit bounds how many steps execute at once (slots), or how many begin in a time (tokens), over all workers. A
// place is a row of limit_places: a step that waits, or that holds a slot. A step that is granted a token at once, of a
// limit without slots, needs no place.
//
//	stepCall.acquire          limitLine (per limit and session)       Postgres
//	  ├─ ask ──────────────────►│ batcher: asks, leaves, yields ───────►│ 1. lock the limit's row
//	  │                         │                                       │ 2. delete the places of those that leave
//	  │                         │                                       │ 3. take back the slots of the dead
//	  │◄── granted, at ─────────┤◄──────────────────────────────────────┤ 4. count, give slots and tokens, call runs
//	  ├─ at most 200 ms: wait in memory ──► call function ──► leave
//	  └─ longer: wait; the run is suspended, its place stays ──► time, or call ──► claim ──► ask again
//
// Slots are counted and not kept in a counter. A place with a lease is a slot. It counts while the run is RUNNING under
// that lease, and for 10 s after the end of the run, because the function may not have returned yet. So the slot of a
// dead worker is free as soon as its run is claimed, and no process needs to give it back. The lock comes in a
// statement of its own, because the count must see what other transactions took before. Only this transaction adds
// slots.
//
// Slots have one line, ordered by place. The transaction that frees a slot calls the run of the first place: it adds to
// the run's wakeups, as a message does, so a run that is being suspended misses no call. If an execution learns of a
// call while it waits for an answer, it asks again after it, because the answer may be the older of the two. The slot
// is kept for the called run for a second. A called run with a key leaves a change, because it waits for a slot of its
// key. Places of steps in the session's own memory are served directly. Run rows are locked with SKIP LOCKED; if one is
// locked, the session serves the limit again soon.
//
// Tokens go to steps that are in memory. The column next_at is the time of the next token. A step that would wait
// longer than 200 ms gets a place at the end of the line (line_at), and comes back for its token at that time, before
// the steps that come then. A step that comes now takes a token only if that does not delay the first of the line. So
// steps that left the line leave no holes, and a backlog that comes late wastes no tokens and comes no faster than the
// rate. If many come late together, each gets a token for later (token_at). A token older than 200 ms, or than a tenth
// of the time between two, is not used: the step yields, and gets the next one.
//
// Who frees a slot:
//
//   - A step that has returned. It does not wait for that: its leave shares a transaction with the next asks. A
//     cancelled branch leaves the line. An execution that is suspended or yielded keeps its places.
//   - A coordinator, for a session that died before it served the limit. Every few seconds it looks for limits with a
//     line from which no run was called, with a slot of a run that sleeps (the run was suspended while it got the
//     slot), or with slots of deleted runs.
//   - The next service of the limit, for runs that are over. They hold no other run up before. A cancelled run has lost
//     its lease. Its slots count until its steps have returned, or for 10 s.
//   - The second service, for a deleted run. Its slots stay, because the step of a run that was just terminated may not
//     have returned, and no row says any more when the run ended. The first service without the run writes the time to
//     the place, and a service 10 s later frees the slot. Places in the line go with the run, and slots with their
//     limit.
//
// If the server refuses a task of a batch, Isolate halves the batch, and only that step fails. The commit waits for the
// disk: a crash of the server must not forget a slot whose function is under way.
//
// Code: Limits.Serve, Limits.Set, Isolate. Tests: TestRaceForSlotsOfALimit, TestSlotsOfALimit,
// TestManyComeLateToALimit, TestTokensAreNeverTooClose, TestLimitHoldsThroughAllTroubles, TestLostAnswersOfALimit,
// TestCallOvertakesAnAnswer, TestSlotOfADeadWorkerIsFreed, TestSlotOfARunThatWasDeleted, TestRefusedPlaceOfALimit. They
// hold that a limit is never exceeded, and that no slot is lost.
package store
