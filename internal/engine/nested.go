package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// AwaitsRun notes that the function of the branch's step waits for the result of a run, until the caller calls ended.
func (b *Branch) AwaitsRun(id uuid.UUID) (ended func()) { return b.awaits.begin(id) }

// mostNested is how many waits a pass looks at.
const mostNested = 100

// nesting finds steps that wait for the results of runs while such steps hold all slots of the session: these runs
// cannot begin here. Only the watchdog's goroutine uses it.
type nesting struct {
	s      *Session
	logged map[*awaitedRun]store.HungCode // of the last pass
}

// A nestedWait is a wait in a step of a run that holds a slot.
type nestedWait struct {
	*awaitedRun
	b       *Branch
	attempt attemptUnderWay
}

// pass returns the steps that have waited so for HungAfter, for runs that are due and that no worker executes. It logs
// each once.
func (n *nesting) pass(branches []*Branch, now time.Time) (codes []store.HungCode) {
	before := n.logged
	n.logged = map[*awaitedRun]store.HungCode{}
	waits := n.waits(branches, now)
	if len(waits) == 0 {
		return nil
	}
	due := n.due(waits)
	for _, w := range waits {
		if !due[w.id] {
			continue
		}
		code, again := before[w.awaitedRun]
		if !again {
			code = n.code(w, now)
			log := w.b.e.log().With("worker", n.s.ID(), "step", w.attempt.id, "attempt", w.attempt.number)
			log.Warn("kagzi: a step waits for the result of another run, and such steps hold all slots of the "+
				"worker, so that none is free for that run: "+
				"call the run as a child, with kagzi.RunChild, which holds no slot meanwhile; or raise MaxConcurrent",
				"awaits", w.id, "for", now.Sub(w.since).Round(time.Millisecond).String())
		}
		n.logged[w.awaitedRun] = code
		codes = append(codes, code)
	}
	return codes
}

// waits returns the waits of HungAfter and longer; none unless each slot is held by a run with a step that waits.
func (n *nesting) waits(branches []*Branch, now time.Time) (long []nestedWait) {
	all, free, _ := n.s.Slots()
	if free > 0 {
		return nil
	}
	holders := map[*execution]bool{}
	for _, b := range branches {
		a := b.awaits.first()
		attempt, inFunction := b.display.current(&b.inStep)
		if a == nil || !inFunction || !b.e.holdsSlot() {
			continue
		}
		holders[b.e] = true
		if now.Sub(a.since) >= n.s.cfg.HungAfter && len(long) < mostNested {
			long = append(long, nestedWait{a, b, attempt})
		}
	}
	if len(holders) < all {
		return nil
	}
	return long
}

// due returns which of the awaited runs are due. It asks the database only while all slots are held so; if that does
// not answer, none is.
func (n *nesting) due(waits []nestedWait) map[uuid.UUID]bool {
	ids := make([]uuid.UUID, len(waits))
	for i, w := range waits {
		ids[i] = w.id
	}
	ctx, cancel := context.WithTimeout(n.s.reads, time.Second)
	defer cancel()
	found, _ := n.s.store.Runs.DueAmong(ctx, ids)
	due := map[uuid.UUID]bool{}
	for _, id := range found {
		due[id] = true
	}
	return due
}

// code describes the wait for people.
func (n *nesting) code(w nestedWait, now time.Time) store.HungCode {
	e := w.b.e
	return store.HungCode{
		RunID: e.RunID, Lease: e.Lease, Workflow: e.Type, Step: w.attempt.id, Attempt: w.attempt.number,
		Awaits: w.id,
		Cause:  fmt.Sprintf("it waits for the result of run %s, and such steps hold all slots of the worker", w.id),
		Since:  e.now().Add(w.since.Sub(now)).UTC(),
	}
}
