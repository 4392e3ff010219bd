package claims

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// freedKeys are keys of which runs of this worker have given up slots, by queue. The zero key stands for the limits of
// the queue itself. The next claim from the queue looks at them. See store/doc_keys.go.
type freedKeys struct {
	keys  map[string]map[store.Key]bool
	since map[string]time.Time // when the first of a queue's keys was added
}

// longestFreed is how long freed keys wait for a claim from their queue.
const longestFreed = time.Second

func (f *freedKeys) add(queue string, now time.Time, keys ...store.Key) {
	for _, key := range keys {
		if f.keys[queue] == nil {
			f.keys[queue] = map[store.Key]bool{}
			f.since[queue] = now
		}
		f.keys[queue][key] = true
	}
}

// take returns the keys of the queue for a claim. They have to be added again if it does not look at them.
func (f *freedKeys) take(queue string) (keys []store.Key) {
	keys = slices.Collect(maps.Keys(f.keys[queue]))
	delete(f.keys, queue)
	return keys
}

// overdue reports whether claims have passed over a queue's keys for longestFreed: they were from other queues, which
// had a better right to the free slots.
func (f *freedKeys) overdue(now time.Time) bool {
	for queue := range f.keys {
		if now.Sub(f.since[queue]) > longestFreed {
			return true
		}
	}
	return false
}
