package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// What a worker may do under a lease is asked here, each time before it calls code of the application. A timer would not
// do: after the process was frozen, goroutines that are ready to run come before it.

// setTerm notes what the table says of the lease, unless a later question was answered before.
func (e *execution) setTerm(t store.Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.Asked.After(e.term.Asked) {
		e.term = t
	}
}

// notHeld returns why another worker may hold the run by now; "" if this worker holds it for certain.
func (e *execution) notHeld() string {
	if !e.mode.writes() {
		return ""
	}
	e.mu.Lock()
	ends := e.term.Ends
	e.mu.Unlock()
	now := time.Now()
	if past(now, ends) {
		return "the lease is over"
	}
	return e.env.standing.presumedDead(now)
}

// exitUnlessHeld exits the goroutine if the execution has ended, and ends it if the run may be another worker's. While the
// worker does not hear from the server it waits: it hears again, or its executions end.
func (e *execution) exitUnlessHeld(step string) {
	e.exitIfStopped()
	for e.mode.writes() && e.env.standing.silent(time.Now(), e.run.Term.Asked) {
		goroutine.Signal(e.env.heartbeats)
		select {
		case <-e.done:
			e.exitIfStopped()
		case <-time.After(silentPause):
		}
	}
	if why := e.notHeld(); why != "" {
		e.log().Warn("kagzi: a step is not called, and the run is given back: another worker may hold it", "step", step, "because", why)
		e.stop(stopShutdown, ErrLeaseLost)
	}
	e.exitIfStopped()
}

// silentPause is how often a step that waits for the server to be heard tries again.
const silentPause = 50 * time.Millisecond
