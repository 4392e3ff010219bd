package engine

import "github.com/kagzi/kagzi/store"

// Load gives the execution its history, its inbox, and its input if the claim left that out. It reports whether the
// execution may begin: it may not if it has stopped. n is nil if the inbox is empty.
func (e *execution) Load(history []*store.StepRow, n *store.Inbox, input []byte) (begins bool) {
	if n != nil {
		n.Wakeups = e.Wakeups // which the claim has read before
		e.deliver(n)
	}
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		return false
	}
	e.remember(history)
	if e.Input == nil {
		e.Input = input
	}
	e.loadedLocked()
	return true
}
