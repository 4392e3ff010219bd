package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// mostNested is how many waits a pass looks at.
const mostNested = 100

// nesting are the steps that wait for the results of runs while such steps hold all slots of the worker: these runs
// cannot begin here. Only the watchdog's goroutine uses it.
type nesting struct {
	logged map[*awaitedRun]store.HungCode // of the last pass
}

// A nestedWait is a wait in a step of a run that holds a slot.
type nestedWait struct {
	*awaitedRun
	b       *Branch
	attempt attemptUnderWay
}

// nested returns the steps that have waited so for long, for runs that are due and that no worker executes. It logs
// each once.
func (w *watch) nested(branches []*Branch, now time.Time) (codes []store.HungCode) {
	before, logged := w.nesting.logged, map[*awaitedRun]store.HungCode{}
	w.nesting.logged = logged
	waits := w.waits(branches, now)
	if len(waits) == 0 {
		return nil
	}
	due := w.env.due(waits)
	for _, n := range waits {
		if !due[n.id] {
			continue
		}
		code, again := before[n.awaitedRun]
		if !again {
			code = n.code(now)
			log := n.b.e.log().With("worker", w.env.ID(), "step", n.attempt.id, "attempt", n.attempt.number)
			log.Warn("kagzi: a step waits for the result of another run, and such steps hold all slots of the "+
				"worker, so that none is free for that run: "+
				"call the run as a child, with kagzi.RunChild, which holds no slot meanwhile; or raise MaxConcurrent",
				"awaits", n.id, "for", now.Sub(n.since).Round(time.Millisecond).String())
		}
		logged[n.awaitedRun] = code
		codes = append(codes, code)
	}
	return codes
}

// waits returns the waits that last for long; none unless each slot is held by a run with a step that waits.
func (w *watch) waits(branches []*Branch, now time.Time) (long []nestedWait) {
	if w.slots == 0 {
		return nil
	}
	holders := map[*Run]bool{}
	for _, b := range branches {
		a := b.awaited()
		attempt, inFunction := b.function()
		if a == nil || !inFunction || !w.runs[b.e] {
			continue
		}
		holders[b.e] = true
		if now.Sub(a.since) >= w.after && len(long) < mostNested {
			long = append(long, nestedWait{a, b, attempt})
		}
	}
	if len(holders) < w.slots {
		return nil
	}
	return long
}

// due returns which of the awaited runs are due. It asks the database only while all slots are held so; if that does
// not answer, none is.
func (env *Env) due(waits []nestedWait) map[uuid.UUID]bool {
	ids := make([]uuid.UUID, len(waits))
	for i, w := range waits {
		ids[i] = w.id
	}
	ctx, cancel := context.WithTimeout(env.Reads, time.Second)
	defer cancel()
	found, _ := env.Store.Runs.DueAmong(ctx, ids)
	due := map[uuid.UUID]bool{}
	for _, id := range found {
		due[id] = true
	}
	return due
}

// code describes the wait for people.
func (n nestedWait) code(now time.Time) store.HungCode {
	e := n.b.e
	return store.HungCode{
		RunID: e.RunID, Lease: e.Lease, Workflow: e.Type, Step: n.attempt.id, Attempt: n.attempt.number,
		Awaits: n.id,
		Cause:  fmt.Sprintf("it waits for the result of run %s, and such steps hold all slots of the worker", n.id),
		Since:  e.Now().Add(n.since.Sub(now)).UTC(),
	}
}
