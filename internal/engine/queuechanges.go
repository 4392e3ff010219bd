package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// SetQueues makes the session claim from these queues, with these shares of its slots, and from no others. From a new
// one it claims once the worker's row names it: else a coordinator would not find its runs if the worker died. In a
// queue that it leaves, the runs under way go on. Those that have not begun are given back when it is their turn, or
// when they have waited for long. The row names such a queue until all of them have ended. See docs/architecture.md,
// Several queues.
func (s *Session) SetQueues(shares map[string]int) {
	left := s.changeQueues(shares)
	goroutine.Signal(s.wake)
	goroutine.Signal(s.heartbeats)
	for _, name := range left {
		// The runs that this worker has suspended become due without it: other workers must query when.
		s.cfg.Hints.Queue(s.noWait, name)
	}
	if len(left) > 0 {
		s.handover.leave() // no claim of this worker looks at the keys of a queue that it has left
	}
}

// changeQueues is SetQueues without what follows from it. It returns the queues that the session leaves.
func (s *Session) changeQueues(shares map[string]int) (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Store(true)
	for _, q := range s.queues {
		share, stays := shares[q.name]
		switch {
		case stays && !q.active():
			q.left, q.nextClaim, q.share = time.Time{}, time.Time{}, share
		case stays:
			q.share = share
		case q.active():
			q.left = time.Now()
			left = append(left, q.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if s.queues.named(name) == nil {
			s.queues = append(s.queues, &queue{
				name: name, share: shares[name], pollInterval: s.cfg.PollInterval,
				wake: s.wake, most: mostClaimed,
			})
		}
	}
	return left
}

// queuesToRegister returns the queues for the worker's row: those from which the session claims, and those that it has
// left. It forgets a queue that it has left once it holds no run of it, and no claim can bring one any more.
func (s *Session) queuesToRegister() (active, left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = slices.DeleteFunc(slices.Clone(s.queues), func(q *queue) bool {
		return !q.active() && q.unsubscribe == nil && !q.claiming && time.Since(q.left) > store.LateClaims &&
			!s.holdsLocked(q)
	})
	return s.queues.names()
}

// holdsLocked reports whether the session holds runs of q, or is about to.
func (s *Session) holdsLocked(q *queue) bool {
	if q.taken > 0 {
		return true
	}
	for _, e := range s.executing {
		if e.heldFrom() == q {
			return true
		}
	}
	return slices.ContainsFunc(s.orphans, func(o orphan) bool { return o.queue == q.name })
}

// queuesRegistered notes that the worker's row names these queues.
func (s *Session) queuesRegistered(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if q := s.queues.named(name); q != nil && !q.registered {
			q.registered = true
			goroutine.Signal(s.wake)
		}
	}
}

// endSubscriptions ends the subscriptions to notifications of queues. The claim loop has ended.
func (s *Session) endSubscriptions() {
	s.mu.Lock()
	var ends []func()
	for _, q := range s.queues {
		if q.unsubscribe != nil {
			ends = append(ends, q.unsubscribe)
		}
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
