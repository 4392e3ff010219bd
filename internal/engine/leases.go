package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
)

// notHeld returns why another worker may hold the run by now; "" if this worker holds it for certain.
func (e *execution) notHeld() string {
	if !e.writesRecords() {
		return ""
	}
	e.Lock()
	now := time.Now()
	over := e.isOverLocked(now)
	e.Unlock()
	if over {
		return "the lease is over"
	}
	return e.standing.presumedDead(now)
}

// exitUnlessHeld is called before each call of a step's function. It exits the goroutine if the execution has stopped,
// and stops the execution if another worker may hold the run. While the server does not answer, it waits: either the
// server answers again, or the executions are stopped. A timer could not replace it: after the process was frozen,
// ready goroutines run before a timer fires. See doc_leases.go.
func (e *execution) exitUnlessHeld(step string) {
	e.exitIfStopped()
	for e.writesRecords() && e.standing.silent(time.Now(), e.Term.Asked) {
		goroutine.Signal(e.heartbeats)
		select {
		case <-e.whenDone():
			e.exitIfStopped()
		case <-time.After(silentPause):
		}
	}
	if why := e.notHeld(); why != "" {
		e.log().Warn("kagzi: a step is not called, and the run is given back: another worker may hold it", "step", step,
			"because", why)
		e.stop(stopShutdown, ErrLeaseLost)
	}
	e.exitIfStopped()
}

// silentPause is the pause between two checks of a step that waits for the server's answer.
const silentPause = 50 * time.Millisecond
