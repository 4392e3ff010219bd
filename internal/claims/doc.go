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
//	  more may be due        all that is due          what is due, this worker
//	              │             was taken              cannot take now
//	              ▼                 ▼                         ▼
//	           backlog            idle                     blocked
//	              │ at once         │ when the next run       │ after a pause that doubles,
//	              │                 │ is due, or to poll      │ or once a limit has a token
//	              └─────────────────┴─────────────────────────┘
//
// In each state but idle and blocked, a run that is due may wait, so no run begins without a claim: see Reserve.
//
// A cursor says where the claims from a queue begin to search: behind it lie only dead entries, as far as is known. See
// cursor.
package claims
