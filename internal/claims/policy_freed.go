package claims

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// KeyFreed notes that a run of the queue has given up its slot, and that of its key. If claims of this worker go on,
// the next one from the queue looks at the key, and at the limits of the queue: next is true. Otherwise other workers
// are to look at what TakeFreed returns: leave is true. Both are false if neither the key nor the queue has a limit.
func (p *Policy) KeyFreed(queue string, key store.FreedKey, claims bool, now time.Time) (next, leave bool) {
	q := p.queues.named(queue)
	if key.Key == (store.Key{}) && (q == nil || !q.keys.limited) {
		return false, false
	}
	p.freed.add(queue, now, key)
	if !claims || q == nil || !q.active() {
		return false, true
	}
	if q.state != hinted {
		q.state = freed
	}
	return true, false
}

// FreedOverdue reports whether keys of a queue have waited so long for a claim that other workers are to look at them.
func (p *Policy) FreedOverdue(now time.Time) bool { return p.freed.overdue(now) }

// AnyFreed reports whether freed keys wait for a claim.
func (p *Policy) AnyFreed() bool { return len(p.freed.keys) > 0 }

// TakeFreed returns all freed keys, by queue, for other workers to look at.
func (p *Policy) TakeFreed() map[string][]store.FreedKey {
	all := map[string][]store.FreedKey{}
	for queue := range p.freed.keys {
		all[queue] = p.freed.take(queue)
	}
	return all
}

// KeepFreed adds keys again that TakeFreed has returned.
func (p *Policy) KeepFreed(queue string, keys []store.FreedKey, now time.Time) {
	p.freed.add(queue, now, keys...)
}
