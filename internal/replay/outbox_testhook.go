package replay

import "github.com/kagzi/kagzi/store"

// Unsettled is for tests: it returns, of each write that is not settled, the write's own record; nil if it has none, or
// ends the execution.
func (o *outbox) Unsettled() (own []*store.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.writes {
		if w.ends() || len(w.records) == 0 {
			own = append(own, nil)
		} else {
			own = append(own, w.record())
		}
	}
	return own
}
