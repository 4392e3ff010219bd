package claims

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// SetQueues makes the worker claim from these queues, with these shares of its slots, and from no others. It returns
// the queues that the worker leaves. From a new one it claims once that is Registered.
func (p *Policy) SetQueues(shares map[string]int, now time.Time) (left []string) {
	for _, q := range p.queues {
		share, stays := shares[q.name]
		switch {
		case stays && !q.active():
			q.left, q.next, q.share = time.Time{}, time.Time{}, share
		case stays:
			q.share = share
		case q.active():
			q.left = now
			left = append(left, q.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if p.queues.named(name) == nil {
			p.queues = append(p.queues, &queue{name: name, share: shares[name], most: MostClaimed})
		}
	}
	return left
}

// Registered notes that the worker's row names these queues. It reports whether any of them is new: a claim from it may
// be due.
func (p *Policy) Registered(names []string) (any bool) {
	for _, name := range names {
		if q := p.queues.named(name); q != nil && !q.registered {
			q.registered, any = true, true
		}
	}
	return any
}

// Names returns the queues for the worker's row: those from which it claims, and those that it has left.
func (p *Policy) Names() (active, left []string) { return p.queues.names() }

// Active reports whether the worker claims from the queue.
func (p *Policy) Active(queue string) bool {
	q := p.queues.named(queue)
	return q != nil && q.active()
}

// IsRegistered reports whether the worker's row names the queue.
func (p *Policy) IsRegistered(queue string) bool {
	q := p.queues.named(queue)
	return q != nil && q.registered
}

// Forget forgets the queues that the worker has left, once it holds no run of them, and no claim can bring one any
// more. holds says of a queue whether the worker needs it for another reason.
func (p *Policy) Forget(now time.Time, holds func(queue string) bool) {
	p.queues = slices.DeleteFunc(slices.Clone(p.queues), func(q *queue) bool {
		return !q.active() && q != p.claiming && now.Sub(q.left) > store.LateClaims && q.taken <= 0 && !holds(q.name)
	})
}

// Taken returns how many slots and places before them the runs of the queue have. Tests use it.
func (p *Policy) Taken(queue string) int {
	if q := p.queues.named(queue); q != nil {
		return q.taken
	}
	return 0
}
