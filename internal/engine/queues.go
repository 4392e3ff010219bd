package engine

import (
	"math"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
)

// A queue is a queue from which a session claims: which runs the next claim takes, and when it comes. See
// docs/architecture.md, Claim.
type queue struct {
	name         string
	pollInterval time.Duration
	wake         chan struct{} // the session's

	// Only the claim loop uses these.
	claims int   // number of claims so far
	looks  looks // which of them search all due runs
	// bound of the runs of the next claim. It halves when a claim fails, and doubles when one takes runs.
	most   int
	served float64 // the claimed runs for each unit of the share: see serve
	// other due queues come first: the last claim took nothing, and none has taken runs since. Set by serve.
	yields bool

	// The session's mutex guards these. The methods are called with it held.
	share int // of the session's slots, beside the shares of other queues with due runs
	// slots that its runs hold, and runs that wait for a slot. Incremented by begin and Reserve, decremented by
	// freeSlot and giveBack.
	taken int
	// the worker's row names the queue, so a coordinator would find its runs. Set by the heartbeater, for good.
	registered bool
	// since when nothing is claimed from it; zero: the session claims from it. Set by SetQueues, and by claimed if a
	// claim was under way.
	left        time.Time
	unsubscribe func() // from notifications; nil: the session is not subscribed. Set by subscribe.
	claiming    bool   // a claim is under way. Set by begins, reset by claimed.
	wanted      bool   // a claim shall come now, or once a slot is free. Set by wantClaim, reset by begins.
	handed      bool   // so shall a claim for keys that were handed to it. Set by wantKeys, reset by begins.
	// no due run waits for a slot, as far as is known. Set by a claim that found fewer runs than it asked for, reset by
	// wantClaim and begins.
	calm bool
	// when the next claim comes if nothing wakes the claim loop before. Set by claimed, put off by untilClaim.
	nextClaim time.Time
	polls     bool // the claim at nextClaim would only look whether notifications were lost. Set by claimed.
	// when a coordinator last said that the queue has nothing due for some time. Set by hearLead.
	idle time.Time
	keys keys
	// when the first of the runs is due that were suspended since the last claim began; zero: none was. Set by
	// suspended, reset by begins.
	suspendedUntil time.Time
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

// names returns the queues from which the session claims, and those that it has left.
func (l queueList) names() (active, left []string) {
	for _, q := range l {
		if q.active() {
			active = append(active, q.name)
		} else {
			left = append(left, q.name)
		}
	}
	return active, left
}

// due returns the queues from which a claim is due. If there is none, it returns how long that remains so unless wake
// is signalled.
func (l queueList) due(now time.Time) (due queueList, pause time.Duration) {
	pause = time.Hour
	for _, q := range l {
		wait := q.untilClaim(now)
		if wait <= 0 {
			due = append(due, q)
		}
		pause = min(pause, wait)
	}
	return due, pause
}

// choose returns the one of the due queues to claim from, and how many of the wanted runs. It fills the slots like
// water: as if runs were given to the queue with the fewest slots for its share, one after the other. A queue above
// that level gets none. If the level of several is a fraction of a slot higher, the one that was served least is first.
// Queues that yield count only if all do.
func (l queueList) choose(wanted int) (next *queue, n int) {
	if first := slices.DeleteFunc(slices.Clone(l), func(q *queue) bool { return q.yields }); len(first) > 0 {
		l = first
	}
	level := l.level(wanted)
	for _, q := range l {
		if room := level*float64(q.share) - float64(q.taken); room > 0 && (next == nil || q.served < next.served) {
			next, n = q, int(math.Ceil(room-1e-6))
		}
	}
	return next, min(max(n, 1), wanted, next.most)
}

// level returns how many slots for each unit of the share the queues have once they have got n more. Those that have
// more already get none.
func (l queueList) level(n int) float64 {
	for {
		slots, shares := n, 0
		for _, q := range l {
			slots, shares = slots+q.taken, shares+q.share
		}
		level := float64(slots) / float64(shares)
		below := func(q *queue) bool { return float64(q.taken) < level*float64(q.share) }
		if !slices.ContainsFunc(l, func(q *queue) bool { return !below(q) }) {
			return level
		}
		l = slices.DeleteFunc(slices.Clone(l), func(q *queue) bool { return !below(q) })
	}
}

// serve notes that n runs of q were claimed. last is what the queue that was served before had been served. A queue
// that had no due runs for a while is not served for that time. After a claim that took nothing, q yields to the others
// that are due, until one of them gets runs: else a queue from which a claim is due again and again could keep them
// waiting.
func (l queueList) serve(q *queue, n int, last float64) (served float64) {
	served = max(q.served, last)
	q.served = served + float64(n)/float64(q.share)
	if n == 0 {
		due, _ := l.due(time.Now())
		q.yields = slices.ContainsFunc(due, func(other *queue) bool { return other != q })
		return served
	}
	for _, other := range l {
		other.yields = false
	}
	return served
}

// calm reports whether no due run waits for a slot, as far as is known, and no claim is due.
func (l queueList) calm(now time.Time) bool {
	return !slices.ContainsFunc(l, func(q *queue) bool {
		return q.active() && q.registered && !(q.calm && now.Before(q.nextClaim))
	})
}

// active reports whether the session claims from q.
func (q *queue) active() bool { return q.left.IsZero() }

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

// wantKeys is wantClaim for keys that were handed to the next claim.
func (q *queue) wantKeys() {
	q.handed, q.calm = true, false
	goroutine.Signal(q.wake)
}

// onlyHanded reports whether the next claim comes for keys that were handed to it alone.
func (q *queue) onlyHanded() bool { return q.handed && !q.wanted && time.Now().Before(q.nextClaim) }

// untilClaim returns how long it takes until a claim from q is due. If that claim would only look whether notifications
// were lost, and the leading coordinator has looked meanwhile, untilClaim puts it off. The coordinator may not have
// seen the runs that the worker has suspended since.
func (q *queue) untilClaim(now time.Time) time.Duration {
	switch {
	case !q.active() || !q.registered:
		return time.Hour // whoever changes that signals wake
	case q.wanted || q.handed:
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

// earlier returns the earlier one of suspendedUntil and t; zero is later than all.
func (q *queue) earlier(t time.Time) time.Time {
	if !q.suspendedUntil.IsZero() && (t.IsZero() || q.suspendedUntil.Before(t)) {
		return q.suspendedUntil
	}
	return t
}

// begins notes that a claim begins: it serves the last hint, and finds the runs that were suspended before.
func (q *queue) begins() {
	q.claiming, q.wanted, q.handed, q.calm = true, false, false, false
	q.suspendedUntil = time.Time{}
}

// claimed sets the time of the next claim: after the pause, or when a run is due that was suspended since the last
// claim began.
func (q *queue) claimed(next nextClaim) {
	q.nextClaim, q.polls = q.beforeSuspended(time.Now().Add(next.pause)), next.polls
	q.claiming, q.calm = false, next.calm && !q.wanted
	if !q.active() {
		q.left = time.Now()
	}
}
