package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
)

// SetQueues makes the session claim from these queues, with these shares of its slots, and from no others. From a new
// one it claims once the worker's row names it: else a coordinator would not find its runs if the worker died. In a
// queue that it leaves, the runs under way go on. Those that have not begun are given back when it is their turn, or
// when they have waited for long. The row names such a queue until all of them have ended. See doc_queues.go.
func (c *claimer) SetQueues(shares map[string]int) {
	left := c.changeQueues(shares)
	goroutine.Signal(c.wake)
	goroutine.Signal(c.Heartbeats)
	for _, name := range left {
		// The runs that this worker has suspended become due without it: other workers must query when.
		c.hints.Queue(standing.NoWait, name)
	}
	if len(left) > 0 {
		c.freedKeys.leave() // no claim of this worker looks at the keys of a queue that it has left
	}
}

// changeQueues is SetQueues without its consequences. It returns the queues that the session leaves.
func (c *claimer) changeQueues(shares map[string]int) (left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Store(true)
	return c.claims.SetQueues(shares, time.Now())
}

// queuesToRegister returns the queues for the worker's row: those from which the session claims, and those that it has
// left. It forgets a queue that it has left once it holds no run of it, and no claim can bring one any more.
func (c *claimer) queuesToRegister() (active, left []string) { return c.queuesAt(time.Now()) }

func (c *claimer) queuesAt(now time.Time) (active, left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims.Forget(now, func(queue string) bool {
		return c.subscriptions[queue] != nil || c.roster.holdsLocked(queue) || c.orphans.areOfLocked(queue)
	})
	return c.claims.Names()
}

// queuesRegistered notes that the worker's row names these queues.
func (c *claimer) queuesRegistered(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims.Registered(names) {
		goroutine.Signal(c.wake)
	}
}

// names returns the queues from which the session claims, and those that it has left.
func (c *claimer) names() (active, left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims.Names()
}

// Queues returns the queues from which the session claims.
func (c *claimer) Queues() []string {
	active, _ := c.names()
	return active
}

// endSubscriptions ends the subscriptions to notifications of queues. The claim loop has ended.
func (c *claimer) endSubscriptions() {
	c.mu.Lock()
	ends := slices.Collect(maps.Values(c.subscriptions))
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
