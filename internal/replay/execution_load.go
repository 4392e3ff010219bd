package replay

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// Prepare makes e, a zero execution, that of a claimed run. loads says that history and inbox are still to be read:
// they will reflect the wake-ups that the claim has seen.
func (env *Env) Prepare(e *Run, h Host, run *store.ClaimedRun, loads bool) {
	e.Env, e.ClaimedRun, e.who = env, run, identity{run: run, id: run.RunID.String()}
	e.journal, e.crew, e.lease = newJournal(env, run), newCrew(&e.Mutex, env), lease{&e.Mutex, env, run.Term}
	e.ending, e.mail = newEnding(&e.Mutex, env, run, &e.crew, e, h), newMail(&e.Mutex, env, run.RunID, &e.crew, e)
	e.guarded, e.suspender = guarded{mu: &e.Mutex}, suspender{&e.ending, &e.crew, &e.mail}
	e.outbox = outbox{mu: &e.Mutex, env: env, of: e.held(), ending: &e.ending, listener: h}
	if loads {
		e.hasSeenLocked(run.Wakeups)
	}
	e.intercepting = env.interceptors().ofExecution()
	if run.Epoch > 0 { // children of earlier ones may be active
		e.startAt(store.FirstPosition(run.Epoch))
		e.expectLocked(uuid.Nil) // stands for all of them
	}
	if run.Headers != nil {
		e.who.decode()
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
