package worker

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// freedKeys leaves the keys of which runs of this session have given up slots to other workers, if no claim of the
// session comes soon. The session's policy of claims has the keys. See store/doc_keys.go.
type freedKeys struct {
	store   *store.Store
	hints   *hints.Hints
	trouble func(error)
	drains  <-chan struct{} // closed when the session begins to drain
	leaves  sync.WaitGroup

	mu      *sync.Mutex // the session's. It guards the fields below.
	claims  *claims.Policy
	leaving bool // leaveAll is running, or about to
}

// leaveOverdue is leave if keys have waited for too long for a claim from their queue.
func (f *freedKeys) leaveOverdue() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims.FreedOverdue(time.Now()) {
		f.leaveLocked()
	}
}

// leave makes other workers look at all freed keys, in another goroutine.
func (f *freedKeys) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaveLocked()
}

func (f *freedKeys) leaveLocked() {
	if !f.leaving && f.claims.AnyFreed() {
		f.leaving = true
		f.leaves.Go(f.leaveAll)
	}
}

// wait returns once nothing is being left to other workers, and reports whether nothing remains to be left.
func (f *freedKeys) wait() (empty bool) {
	f.leaves.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.claims.AnyFreed()
}

// triesToLeave is how often a session that drains tries to leave its keys.
const triesToLeave = 5

// leaveAll leaves the keys, also those that are freed meanwhile. It tries again after errors, but not for ever once the
// session drains.
func (f *freedKeys) leaveAll() {
	for failures := 0; ; {
		keys, again := f.take(failures)
		if !again {
			return
		}
		for queue, keys := range keys {
			err := f.store.Claims.LeaveChanges(context.Background(), queue, keys)
			if err == nil {
				// it fails only in a transaction
				_ = f.hints.Due(context.Background(), nil, store.DueRun{Queue: queue})
				continue
			}
			f.trouble(err)
			f.mu.Lock()
			f.claims.KeepFreed(queue, keys, time.Now())
			f.mu.Unlock()
			select {
			case <-f.drains:
				failures++
			default:
			}
			<-time.After(outage.Pause)
		}
	}
}

// take returns the keys to leave after so many failures. If again is false, leaveAll ends.
func (f *freedKeys) take(failures int) (keys map[string][]store.FreedKey, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving = f.claims.AnyFreed() && failures < triesToLeave
	if !f.leaving {
		return nil, false
	}
	return f.claims.TakeFreed(), true
}

// freedKeysLeft waits until nothing is being left to other workers, and reports whether nothing remains to be left.
func (c *claimer) freedKeysLeft() bool { return c.freedKeys.wait() }
