package replay

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A lease is the run's, as far as its worker knows. The execution's mutex guards it. Its files lock it, and a method
// ending in Locked is called with it.
type lease struct {
	mu   *sync.Mutex // the execution's
	env  *Env
	term store.Term
}

// notHeld returns why another worker may hold the run by now; "" if this worker holds it for certain.
func (l *lease) notHeld() string {
	if !l.env.writesRecords() {
		return ""
	}
	l.mu.Lock()
	now := time.Now()
	over := standing.Past(now, l.term.Ends)
	l.mu.Unlock()
	if over {
		return "the lease is over"
	}
	return l.env.Standing.PresumedDead(now)
}

// SetTerm stores the lease's term, unless the answer to a later question came first.
func (l *lease) SetTerm(t store.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Asked.After(l.term.Asked) {
		l.term = t
	}
}

// exitUnlessHeld is called before each call of a step's function. It exits the goroutine if the execution has stopped,
// and stops the execution if another worker may hold the run. While the server does not answer, it waits: either the
// server answers again, or the executions are stopped. A timer could not replace it: after the process was frozen,
// ready goroutines run before a timer fires. See doc_leases.go.
func (e *Run) exitUnlessHeld(step string) {
	e.exitIfStopped()
	for e.writesRecords() && e.Standing.Silent(time.Now(), e.Term.Asked) {
		goroutine.Signal(e.Heartbeats)
		select {
		case <-e.Stopped():
			e.exitIfStopped()
		case <-time.After(silentPause):
		}
	}
	if why := e.notHeld(); why != "" {
		e.log().Warn("kagzi: a step is not called, and the run is given back: another worker may hold it", "step", step,
			"because", why)
		e.stop(stopShutdown, standing.ErrLeaseLost)
	}
	e.exitIfStopped()
}

// silentPause is the pause between two checks of a step that waits for the server's answer.
const silentPause = 50 * time.Millisecond
