package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
)

// SetQueues makes the session claim from these queues, with these shares of its slots, and from no others. From a new
// one it claims once the worker's row names it: else a coordinator would not find its runs if the worker died. In a
// queue that it leaves, the runs under way go on. Those that have not begun are given back when it is their turn, or
// when they have waited for long. The row names such a queue until all of them have ended. See doc_queues.go.
func (s *Session) SetQueues(shares map[string]int) {
	left := s.changeQueues(shares)
	goroutine.Signal(s.wake)
	goroutine.Signal(s.heartbeats)
	for _, name := range left {
		// The runs that this worker has suspended become due without it: other workers must query when.
		s.cfg.Hints.Queue(s.noWait, name)
	}
	if len(left) > 0 {
		s.freedKeys.leave() // no claim of this worker looks at the keys of a queue that it has left
	}
}

// changeQueues is SetQueues without what follows from it. It returns the queues that the session leaves.
func (s *Session) changeQueues(shares map[string]int) (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Store(true)
	return s.claims.SetQueues(shares, time.Now())
}

// queuesToRegister returns the queues for the worker's row: those from which the session claims, and those that it has
// left. It forgets a queue that it has left once it holds no run of it, and no claim can bring one any more.
func (s *Session) queuesToRegister() (active, left []string) { return s.queuesAt(time.Now()) }

func (s *Session) queuesAt(now time.Time) (active, left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims.Forget(now, func(queue string) bool { return s.subscriptions[queue] != nil || s.holdsLocked(queue) })
	return s.claims.Names()
}

// holdsLocked reports whether the session executes runs of the queue, or is to yield some.
func (s *Session) holdsLocked(queue string) bool {
	for _, e := range s.executing {
		if e.Queue == queue {
			return true
		}
	}
	return slices.ContainsFunc(s.orphans, func(o orphan) bool { return o.queue == queue })
}

// queuesRegistered notes that the worker's row names these queues.
func (s *Session) queuesRegistered(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims.Registered(names) {
		goroutine.Signal(s.wake)
	}
}

// endSubscriptions ends the subscriptions to notifications of queues. The claim loop has ended.
func (s *Session) endSubscriptions() {
	s.mu.Lock()
	ends := slices.Collect(maps.Values(s.subscriptions))
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
