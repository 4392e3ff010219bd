package replay

import (
	"slices"

	"github.com/kagzi/kagzi/store"
)

// The results that may wait to be written are bounded: a crash would repeat all of these steps.
const (
	mostSpeculative      = 100
	mostSpeculativeBytes = 256 << 10
)

// maySpeculateLocked reports whether r may wait to be written, beside those that wait already.
func (o *outbox) maySpeculateLocked(r *store.Record) bool {
	n, bytes := 1, sizeOf(r)
	for _, d := range o.deferred {
		if d.speculative {
			n, bytes = n+1, bytes+sizeOf(d.record)
		}
	}
	for _, w := range o.writes { // such as the start of a child, which no branch waits for
		if w.speculative {
			n, bytes = n+len(w.records), bytes+w.size()
		}
	}
	return n <= mostSpeculative && bytes <= mostSpeculativeBytes
}

// speculateLocked defers r, the record of a step of the branch.
func (o *outbox) speculateLocked(by *node, r *store.Record, ordinary bool) {
	o.deferLocked(deferredRecord{record: r, by: by, speculative: true, ordinary: ordinary})
	o.speculated = true
}

// speculates reports whether the run uses results that are not written.
func (o *outbox) speculates() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.speculated = o.speculated &&
		(slices.ContainsFunc(o.deferred, func(d deferredRecord) bool { return d.speculative }) ||
			slices.ContainsFunc(o.writes, func(w *write) bool { return w.speculative }))
	return o.speculated
}
