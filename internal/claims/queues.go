package claims

import (
	"math"
	"slices"
	"time"
)

// A queueList is the queues of a worker: those from which it claims, and those that it has left.
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

// names returns the queues from which the worker claims, and those that it has left.
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

// due returns the queues from which a claim is due. If there is none, it returns how long that remains so unless a hint
// comes.
func (l queueList) due(now time.Time, pollInterval time.Duration) (due queueList, wait time.Duration) {
	wait = time.Hour
	for _, q := range l {
		until := q.untilClaim(now, pollInterval)
		if until <= 0 {
			due = append(due, q)
		}
		wait = min(wait, until)
	}
	return due, wait
}

// next returns the one of the due queues to claim from, and how many of the wanted runs; zero if that is none. From a
// limited queue it takes nothing ahead of free slots: a run would hold a slot of the queue while it waits.
func (l queueList) next(wanted, free int) (q *queue, n int) {
	for len(l) > 0 {
		q, n = l.choose(wanted)
		if q.keys.limited {
			n = min(n, free)
		}
		if n > 0 {
			return q, n
		}
		l = slices.DeleteFunc(l, func(other *queue) bool { return other == q })
	}
	return nil, 0
}

// choose returns the one of the due queues to claim from, and how many of the wanted runs. It fills the slots like
// water: as if runs were given to the queue with the fewest slots for its share, one after the other. A queue above
// that level gets none. If the level of several is a fraction of a slot higher, the one that has got least is first.
// Queues that are empty count only if all are.
func (l queueList) choose(wanted int) (next *queue, n int) {
	if first := slices.DeleteFunc(slices.Clone(l), func(q *queue) bool { return q.empty }); len(first) > 0 {
		l = first
	}
	level := l.level(wanted)
	for _, q := range l {
		if room := level*float64(q.share) - float64(q.taken); room > 0 && (next == nil || q.got < next.got) {
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

// claimed notes that a claim took n runs of q. last is what the queue had got from which the claim before came. A queue
// that had no due runs for a while gets nothing for that time. After a claim that took nothing, q counts as empty if
// others are due, until one of them gets runs: else a queue from which a claim is due again and again could keep them
// waiting. due has, if n is zero, the queues from which a claim is due.
func (l queueList) claimed(q *queue, n int, last float64, due queueList) (got float64) {
	got = max(q.got, last)
	q.got = got + float64(n)/float64(q.share)
	if n == 0 {
		q.empty = slices.ContainsFunc(due, func(other *queue) bool { return other != q })
		return got
	}
	for _, other := range l {
		other.empty = false
	}
	return got
}

// drained reports whether no due run waits for a slot, as far as is known, and no claim is due.
func (l queueList) drained(now time.Time) bool {
	return !slices.ContainsFunc(l, func(q *queue) bool {
		return q.active() && q.registered && !(q.state.drained() && now.Before(q.next))
	})
}
