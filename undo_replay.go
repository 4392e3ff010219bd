package kagzi

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// forgotten returns the last attempt of the run, before the one that e replays as, in which something was registered that
// no execution has come to yet: this one was on its way through the history, or that was a branch which a replay leaves
// out, or a failure that a later attempt forgot. It is 0 if there is none.
func (e *execution) forgotten() (attempt int, any bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[string]bool{}
	for _, u := range e.undos {
		known[u.id] = true
	}
	for id, row := range e.whole() {
		if row.Kind != store.KindCompensation || known[id] {
			continue
		}
		any = true
		if in := e.registered[id]; in < e.attempt {
			attempt = max(attempt, in)
		}
	}
	return attempt, any
}

// asItIs reports whether the history is as this attempt of the run left it, and not as an earlier one did.
func (e *execution) asItIs() bool { return e.attempt == e.run.Attempts+1 }

// whole is the history; e.history may be what it was in an earlier attempt of the run.
func (e *execution) whole() map[string]*store.StepRow {
	if e.latest != nil {
		return e.latest
	}
	return e.history
}

// replayFirst goes on with an execution that comes past all that is recorded, in order to be undone: as things are, and if
// that has been done, as they were in the attempt of the run in which what is missing was registered. It returns false
// if there is no such attempt.
func (e *execution) replayFirst(verdict *store.Finish) bool {
	attempt, _ := e.forgotten()
	if e.replays && e.latest != nil && attempt == 0 {
		return false
	}
	var rows []*store.StepRow
	if !e.insist(func() (err error) {
		rows, err = e.s.store.StepAttempts(e.s.background, e.run.RunID)
		return err
	}) {
		e.left(store.Lost)
		return true
	}
	registered := map[string]int{}
	for _, r := range rows {
		if r.Kind == store.KindCompensation && r.Attempt == 0 {
			registered[r.StepID] = r.RunAttempt
		}
	}
	as := e.run.Attempts + 1
	if e.replays && e.latest != nil {
		as = attempt
	}
	u := newExecution(e.s, e.run, latestAttempts(rows, as), false)
	u.replays, u.verdict, u.attempt, u.registered, u.latest = true, verdict, as, registered, historyOf(latestAttempts(rows, math.MaxInt))
	e.mu.Lock()
	u.undos = slices.Clone(e.undos)
	e.mu.Unlock()
	e.handOver(u, func() { u.execute(e.s.w.handlers[e.run.Type][e.run.Version]) })
	return true
}

// latestAttempts returns of each step the latest row that an attempt of the run up to the one given wrote. What that one
// had begun, and a later one has written anew, is under way.
func latestAttempts(rows []*store.StepRow, runAttempt int) []*store.StepRow {
	var last time.Time // that something was registered
	for _, r := range rows {
		if r.Kind == store.KindCompensation && r.RunAttempt <= runAttempt && r.FinishedAt.After(last) {
			last = r.FinishedAt
		}
	}
	latest := map[string]*store.StepRow{}
	for _, r := range rows {
		if r.RunAttempt > runAttempt && !r.StartedAt.After(last) {
			r = begunBy(r, runAttempt)
		}
		if old := latest[r.StepID]; r.RunAttempt <= runAttempt && (old == nil || old.Attempt < r.Attempt) {
			latest[r.StepID] = r
		}
	}
	return slices.Collect(maps.Values(latest))
}

// begunBy returns the row of a child or a group as it was in the attempt of the run that began it, before the one that
// took it over. A replay in which nothing begins ends at everything else that is under way as if it were not there.
func begunBy(r *store.StepRow, runAttempt int) *store.StepRow {
	if r.Kind != store.KindChild && r.Kind != store.KindMarker {
		return r
	}
	as := *r
	as.RunAttempt, as.Status, as.Output, as.FinishedAt = runAttempt, store.Running, nil, time.Time{}
	if r.Kind == store.KindMarker {
		var d decision
		if json.Unmarshal(r.Output, &d) != nil {
			return r
		}
		as.Output, _ = json.Marshal(decision{Items: d.Items}) // strings
	}
	return &as
}

// writeNotes writes what the function came past last, as the run's end would have, and waits for it: a replay is to come
// as far as this execution did. It returns false if the lease is lost.
func (e *execution) writeNotes(verdict *store.Finish) bool {
	e.mu.Lock()
	left := e.takeNotesLocked(&item{e: e, finish: verdict})
	e.mu.Unlock()
	if len(left) == 0 {
		return true
	}
	it := &item{e: e, records: left, acked: make(chan struct{})}
	e.s.writer.Add(it)
	<-it.acked
	return it.settled == store.Done
}

// handOver puts u in e's place, with its slot, and lets it begin.
func (e *execution) handOver(u *execution, begin func()) {
	e.mu.Lock()
	u.seen, u.alone, u.released, u.term = e.seen, e.alone, e.released, e.term
	u.large, e.large = e.large, 0
	e.released = true // u has the slot
	e.mu.Unlock()
	ok, reason, cause := e.s.replace(e, u)
	switch {
	case !ok: // the run is claimed again
		u.left(store.Lost)
	case e.lost():
		u.refuse(endLost, ErrLeaseLost)
	case reason != underWay: // e had ended by then, and was not told
		u.refuse(reason, cause)
	default:
		go begin()
	}
}
