package replay

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A lease is the run's, as far as its worker knows. The execution's mutex guards it. Its files lock it, and a method
// ending in Locked is called with it.
type lease struct {
	mu   *sync.Mutex // the execution's
	term store.Term
}

// SetTerm stores the lease's term, unless the answer to a later question came first.
func (l *lease) SetTerm(t store.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Asked.After(l.term.Asked) {
		l.term = t
	}
}

// isOverLocked reports whether the lease is over.
func (l *lease) isOverLocked(now time.Time) bool { return standing.Past(now, l.term.Ends) }
