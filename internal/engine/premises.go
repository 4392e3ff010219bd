package engine

import (
	"slices"

	"github.com/kagzi/kagzi/store"
)

// premises are the newest records of an execution that the worker knows to be in the table. What it writes builds on
// them, and is refused if one is missing: see [store.Premise]. There is one, unless transactional steps of several
// branches commit at the same time: nobody knows in which order the server did that. The next write that was sent
// after both answers takes their place. The execution's mutex guards them.
type premises struct {
	known []knownPremise
	last  int64 // the number of the last one
}

type knownPremise struct {
	store.Premise
	number int64
}

// addLocked adds the record of a write that was sent when sent was the number of the last premise. If that write has
// committed now, it is later in the server's log than those up to sent, and replaces them.
func (p *premises) addLocked(row *store.StepRow, by store.Witness, sent int64, now bool) {
	if now {
		p.known = slices.DeleteFunc(p.known, func(k knownPremise) bool { return k.number <= sent })
	}
	p.last++
	p.known = append(p.known, knownPremise{store.PremiseOf(row, by), p.last})
}

// nowLocked returns the premises, and the number of the last one.
func (p *premises) nowLocked() (all []store.Premise, sent int64) {
	for _, k := range p.known {
		all = append(all, k.Premise)
	}
	return all, p.last
}

// premisesNow is nowLocked with the lock.
func (e *execution) premisesNow() (all []store.Premise, sent int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.premises.nowLocked()
}

// addPremisesLocked adds what the taken writes build on to f. If they are nothing but records of functions, they are
// to tell whether the run was cancelled or paused: the others have effects beside their records, or end the execution.
func (e *execution) addPremisesLocked(f *store.Flush) {
	taken := e.outbox.writes[:e.outbox.taken]
	if !slices.ContainsFunc(taken, func(w *write) bool { return !w.empty() && !w.givesBack }) {
		return
	}
	all, sent := e.premises.nowLocked()
	f.Premises = append(f.Premises, all...)
	e.outbox.sent = sent
	asks := e.reason == underWay && !e.paused && !e.outbox.told && !slices.ContainsFunc(taken, func(w *write) bool { return !w.onlyFunctions() })
	for _, w := range taken {
		for _, r := range w.records {
			r.Unheard = asks
		}
	}
}

// onlyFunctions reports whether w has nothing but records of functions.
func (w *write) onlyFunctions() bool {
	other := func(r *store.Record) bool { return r.Kind != store.KindFunction || r.Start != nil || len(r.Events) > 0 }
	return !w.ends() && w.progress == nil && !slices.ContainsFunc(w.records, other)
}

// acknowledgeLocked makes the newest record of the settled writes a premise.
func (e *execution) acknowledgeLocked(settled []*write, by store.Witness) {
	var newest *store.Record
	for _, w := range settled {
		for _, r := range w.records {
			written := r.Outcome == store.Done && !r.StartedAt.IsZero() // not one that addTo has left out
			if written && (newest == nil || rank(r) >= rank(newest)) {
				newest = r
			}
		}
	}
	if newest != nil {
		if newest.Found { // another connection may have sent it
			by = store.Witness{}
		}
		e.outbox.told = false
		e.premises.addLocked(&newest.StepRow, by, e.outbox.sent, !newest.Found)
	}
}

// rank prefers records whose rows this flush has written, and those that change no more.
func rank(r *store.Record) (n int) {
	if !r.Found {
		n += 2
	}
	if r.Status != store.Running {
		n++
	}
	return n
}

// stopAfter stops the execution because of the outcome of a write, if that is Lost or Unfounded. It has no effect if
// the execution has stopped for another reason.
func (e *execution) stopAfter(o store.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopAfterLocked(o)
}

func (e *execution) stopAfterLocked(o store.Outcome) {
	switch o {
	case store.Done:
	case store.Unfounded:
		e.stopLocked(stopUnfounded, ErrLeaseLost)
	default:
		e.stopLocked(stopLost, ErrLeaseLost)
	}
}

// giveBackUnfounded gives back the run of an execution that builds on rows which the server has lost: what the
// execution has in memory is not what the table has. Any worker executes the run from what is left.
func (s *Session) giveBackUnfounded(e *execution) {
	e.log().Warn("kagzi: the database has lost records of the run, as in a failover: it is executed again from those that are left")
	e.mu.Lock()
	p := e.newSuspension(store.Pending, "worker")
	e.mu.Unlock()
	s.suspend(e, &write{suspension: p, givesBack: true})
}

// hasNews tells the execution why its run has news.
func (s *Session) hasNews(e *execution) { s.readStates([]store.HeldRun{e.held()}) }
