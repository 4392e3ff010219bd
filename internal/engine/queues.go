package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
)

// A queue is a queue from which a session claims: which runs the next claim takes, and when it comes. See docs/architecture.md,
// Claim.
type queue struct {
	name         string
	pollInterval time.Duration
	wake         chan struct{} // the session's

	// Only the claim loop uses these.
	claims int   // number of claims so far
	looks  looks // which of them search all due runs
	most   int   // bound of the runs of the next claim. It halves when a claim fails, and doubles when one takes runs.

	// The session's mutex guards these. The methods are called with it held.
	wanted         bool      // a claim shall come now, or once a slot is free. Set by wantClaim, reset by begins.
	calm           bool      // no due run waits for a slot, as far as is known. Set by a claim that found fewer runs than it asked for, reset by wantClaim and begins.
	nextClaim      time.Time // when the next claim comes if nothing wakes the claim loop before. Set by claimed, put off by untilClaim.
	polls          bool      // the claim at nextClaim would only look whether notifications were lost. Set by claimed.
	idle           time.Time // when a coordinator last said that the queue has nothing due for some time. Set by hearLead.
	keys           keys
	suspendedUntil time.Time // when the first of the runs is due that were suspended since the last claim began; zero: none was. Set by suspended, reset by begins.
}

// A nextClaim says when to claim again from a queue.
type nextClaim struct {
	pause time.Duration // from now; zero: more runs may be due
	calm  bool          // the claim found all due runs, as far as is known
	polls bool          // the next claim would only look whether notifications were lost
}

// A queueList is the queues of a session. The session's mutex guards it.
type queueList []*queue

// named returns the queue of that name, nil if there is none.
func (l queueList) named(name string) *queue {
	for _, q := range l {
		if q.name == name {
			return q
		}
	}
	return nil
}

// next returns the queue to claim from now. If there is none, it returns how long that remains so unless wake is signalled.
func (l queueList) next(now time.Time) (next *queue, pause time.Duration) {
	pause = time.Hour
	for _, q := range l {
		wait := q.untilClaim(now)
		if wait <= 0 {
			return q, 0
		}
		pause = min(pause, wait)
	}
	return nil, pause
}

// wantClaim makes the claim loop claim from all queues.
func (l queueList) wantClaim() {
	for _, q := range l {
		q.wantClaim()
	}
}

// wantClaim makes the claim loop claim from q now, or once a slot is free. Until then no run is inserted as claimed.
func (q *queue) wantClaim() {
	q.wanted, q.calm = true, false
	goroutine.Signal(q.wake)
}

// untilClaim returns how long it takes until a claim from q is due. If that claim would only look whether notifications were
// lost, and the leading coordinator has looked meanwhile, untilClaim puts it off. The coordinator may not have seen the runs that
// the worker has suspended since.
func (q *queue) untilClaim(now time.Time) time.Duration {
	if q.wanted {
		return 0
	}
	if led := q.beforeSuspended(q.idle.Add(q.pollInterval)); q.polls && !now.Before(q.nextClaim) && now.Before(led) {
		q.nextClaim = led
	}
	return max(0, q.nextClaim.Sub(now))
}

// beforeSuspended returns t, or when the first run is due that was suspended since the last claim, if that is sooner.
func (q *queue) beforeSuspended(t time.Time) time.Time {
	if !q.suspendedUntil.IsZero() && q.suspendedUntil.Before(t) {
		return q.suspendedUntil
	}
	return t
}

// begins notes that a claim begins: it serves the last hint, and finds the runs that were suspended before.
func (q *queue) begins() {
	q.wanted, q.calm = false, false
	q.suspendedUntil = time.Time{}
}

// claimed sets the time of the next claim: after the pause, or when a run is due that was suspended since the last claim began.
func (q *queue) claimed(next nextClaim) {
	q.nextClaim, q.polls = q.beforeSuspended(time.Now().Add(next.pause)), next.polls
	q.calm = next.calm && !q.wanted
}
