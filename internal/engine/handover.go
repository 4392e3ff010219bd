package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// A handover has the keys of which runs of this session have given up slots. The zero key stands for the limits of the
// queue itself. The session's next claim from the queue looks at them. If that does not come soon, leave makes other
// workers look at them. See docs/architecture.md, Keys and slots.
type handover struct {
	store   *store.Store
	hints   *hints.Hints
	trouble func(error)
	drains  <-chan struct{} // closed when the session begins to drain
	leaves  sync.WaitGroup

	mu      sync.Mutex
	keys    map[string]map[store.Key]bool // by queue. Added by add, taken by take and leave.
	since   map[string]time.Time          // when the first of a queue's keys was added
	leaving bool                          // leaveAll is running, or about to
}

// add adds keys of a queue.
func (h *handover) add(queue string, keys ...store.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if h.keys[queue] == nil {
			h.keys[queue] = map[store.Key]bool{}
			h.since[queue] = time.Now()
		}
		h.keys[queue][key] = true
	}
}

// take returns the keys of the queue for a claim, which has to add them again if it does not look at them.
func (h *handover) take(queue string) (keys []store.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.keys[queue] {
		keys = append(keys, key)
	}
	delete(h.keys, queue)
	return keys
}

// has reports whether there are keys of the queue.
func (h *handover) has(queue string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.keys[queue]) > 0
}

// wait returns once nothing is being left to other workers, and reports whether nothing remains to be left.
func (h *handover) wait() (empty bool) {
	h.leaves.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.keys) == 0
}

// overdue reports whether claims have passed over a queue's keys for longestHandover: they were from other queues,
// which had a better right to the free slots.
func (h *handover) overdue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for queue := range h.keys {
		if time.Since(h.since[queue]) > longestHandover {
			return true
		}
	}
	return false
}

// leave makes other workers look at all keys, in another goroutine.
func (h *handover) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.leaving && len(h.keys) > 0 {
		h.leaving = true
		h.leaves.Go(h.leaveAll)
	}
}

// longestHandover is how long keys wait for a claim from their queue.
const longestHandover = time.Second

// triesToLeave is how often a session that drains tries to leave its keys.
const triesToLeave = 5

// leaveAll leaves the keys, also those that are added meanwhile. It tries again after errors, but not for ever once the
// session drains.
func (h *handover) leaveAll() {
	for failures := 0; ; {
		h.mu.Lock()
		all := h.keys
		h.keys = map[string]map[store.Key]bool{}
		h.leaving = len(all) > 0 && failures < triesToLeave
		again := h.leaving
		h.mu.Unlock()
		if !again {
			for queue, keys := range all {
				h.add(queue, slices.Collect(maps.Keys(keys))...)
			}
			return
		}
		for queue, set := range all {
			keys := slices.Collect(maps.Keys(set))
			err := h.store.LeaveChanges(context.Background(), queue, keys)
			if err == nil {
				_ = h.hints.Due(context.Background(), nil, store.DueRun{Queue: queue}) // fails only in a transaction
				continue
			}
			h.trouble(err)
			h.add(queue, keys...)
			select {
			case <-h.drains:
				failures++
			default:
			}
			<-time.After(outage.Pause)
		}
	}
}
