package claims

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// freedKeys are keys of which runs of this worker have given up slots, by queue. The zero key stands for the limits of
// the queue itself. The next claim from the queue looks at them. See store/doc_keys.go.
type freedKeys struct {
	keys  map[string]map[store.Key]bool // whether all of the runs are over
	since map[string]time.Time          // when the first of a queue's keys was added
}

// longestFreed is how long freed keys wait for a claim from their queue.
const longestFreed = time.Second

func (f *freedKeys) add(queue string, now time.Time, keys ...store.FreedKey) {
	for _, key := range keys {
		if f.keys[queue] == nil {
			f.keys[queue] = map[store.Key]bool{}
			f.since[queue] = now
		}
		ended, ok := f.keys[queue][key.Key]
		f.keys[queue][key.Key] = key.Ended && (ended || !ok)
	}
}

// take returns the keys of the queue for a claim. They have to be added again if it does not look at them.
func (f *freedKeys) take(queue string) (keys []store.FreedKey) {
	for key, ended := range f.keys[queue] {
		keys = append(keys, store.FreedKey{Key: key, Ended: ended})
	}
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
