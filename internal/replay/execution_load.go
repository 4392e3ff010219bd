package replay

import (
	"github.com/kagzi/kagzi/internal/plainjson"
	"github.com/kagzi/kagzi/store"
)

// Prepare makes e, a zero execution, that of a claimed run. loads says that history and inbox are still to be read:
// they will reflect the wake-ups that the claim has seen.
func (env *Env) Prepare(e *Run, h Host, run *store.ClaimedRun, loads bool) {
	e.Env, e.ClaimedRun, e.host, e.runID, e.attempt = env, run, h, run.RunID.String(), run.Attempts+1
	e.ending, e.crew, e.mail = newEnding(&e.Mutex, e), newCrew(&e.Mutex), newMail(&e.Mutex)
	e.outbox, e.lease = outbox{mu: &e.Mutex}, lease{mu: &e.Mutex, term: run.Term}
	if loads {
		e.hasSeenLocked(run.Wakeups)
	}
	if env.interceptors().Execute != nil {
		e.interception = newInterception()
	}
	if run.Headers != nil {
		_ = plainjson.Unmarshal(run.Headers, &e.headers) // the client wrote a map of strings
	}
}

// Load gives the execution its history, its inbox, and its input if the claim left that out. It reports whether the
// execution may begin: it may not if it has stopped. n is nil if the inbox is empty.
func (e *Run) Load(history []*store.StepRow, n *store.Inbox, input []byte) (begins bool) {
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
