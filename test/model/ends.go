package model

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// An ending says how runs end that their workers do not end.
type ending struct {
	status     string
	asked      []uuid.UUID // the runs that the caller has named
	regardless bool        // even if they have compensations to run
	expired    bool        // no worker holds them
	grace      When        // how long workers have to end those that are marked
}

// act says how a run goes on:
//   - one whose compensations are under way ends as cancelled, if the caller asked for it;
//   - one that a worker executes is marked if it may register a compensation, or holds a slot: its worker ends it;
//   - one that has compensations ends when these have run;
//   - all others end, and wake their parents.
func (e ending) act(r *Run) string {
	switch {
	case e.regardless:
		return "end"
	case r.Outcome != "" && !slices.Contains(e.asked, r.ID):
		return "leave"
	case r.Outcome != "":
		return "decide"
	case r.Status == store.Running && !e.expired && (r.registers() || r.Slot > 0):
		return "mark"
	case r.registered():
		return "compensate"
	}
	return "end"
}

// endAll ends runs, and reports which of them it has changed.
func (m *Model) endAll(runs []*Run, e ending) (changed []uuid.UUID) {
	var over, compensating []*Run
	for _, r := range runs {
		status := e.status
		if e.expired && r.Cancelling {
			status = store.Cancelled
		}
		switch e.act(r) {
		case "leave":
			continue
		case "decide":
			r.Outcome, r.Paused = store.Cancelled, false
			r.due()
		case "mark":
			r.Cancelling, r.Paused = true, false
			if r.Deadline == None || r.Deadline == Later {
				r.Deadline = e.grace
			}
		case "compensate":
			r.decide(status, uuid.Nil)
			compensating = append(compensating, r)
		default:
			r.end(status, uuid.Nil)
			over = append(over, r)
		}
		changed = append(changed, r.ID)
	}
	m.wakeParents(over, runs)
	slices.SortFunc(compensating, func(a, b *Run) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, r := range compensating {
		m.Compensate(r.ID)
	}
	return changed
}

// wakeParents wakes the active parents of runs that have ended, but not those among others.
func (t *table) wakeParents(over, others []*Run) {
	ends := map[*Run]int{}
	for _, r := range over {
		if p := t.Runs[r.Parent]; p != nil && p.Active() && !slices.Contains(others, p) {
			ends[p]++
		}
	}
	for p, n := range ends {
		p.wake(n)
	}
}

// decide sets how the run ends when its compensations have run.
func (r *Run) decide(outcome string, lease uuid.UUID) {
	if outcome == store.Failed {
		r.Attempts++
	}
	r.Status, r.Outcome, r.Lease, r.Worker, r.Paused, r.Deadline, r.Awaited = store.Sleeping, outcome, lease, uuid.Nil,
		false, None, r.Wakeups
	r.At, r.Queued = None, false
	r.due()
}

// compensations returns the run's registrations, the last one first. Those without a call are left out.
func (r *Run) compensations() (all []*Attempt) {
	for _, attempts := range r.Steps {
		if a := &attempts[len(attempts)-1]; a.Kind == store.KindCompensation && a.Calls {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *Attempt) int { return cmp.Compare(b.Position, a.Position) })
	return all
}

// registered reports whether the run has a compensation to run.
func (r *Run) registered() bool {
	return slices.ContainsFunc(r.compensations(), func(a *Attempt) bool { return a.Status == store.Running })
}

// registers reports whether the run has one, or a step under way may register one.
func (r *Run) registers() bool {
	for _, attempts := range r.Steps {
		if slices.ContainsFunc(attempts, func(a Attempt) bool {
			return a.Kind == store.KindCompensation && a.Status == store.Running
		}) {
			return true
		}
	}
	return false
}

// isCompensation reports whether the run is a compensation of its parent.
func (r *Run) isCompensation() bool {
	return strings.HasSuffix(r.ParentStep, store.CompensationID(""))
}

// Compensate takes the next step of a run whose outcome is decided: it waits for active children, starts a compensation
// or waits for it, or ends the run.
func (m *Model) Compensate(id uuid.UUID) {
	r := m.Runs[id]
	if r == nil || r.Status != store.Sleeping || r.Outcome == "" {
		return
	}
	children := 0
	for _, c := range m.all() {
		if c.Parent == id && !c.Detached && c.Active() {
			children++
		}
	}
	if children > 0 {
		r.await(children)
		return
	}
	status := r.Outcome
	for _, a := range r.compensations() {
		c := m.Runs[a.Child]
		switch {
		case a.Status != store.Running:
		case a.Child == uuid.Nil:
			a.Child = m.StartedFor(id, a.Position)
			m.add(&Run{
				ID: a.Child, Type: compensationType, Priority: r.Priority, Parent: id, ParentStep: a.step,
				Detached: true,
				Status:   store.Pending, At: Due, Slot: r.Slot &^ 1,
			})
		case c != nil && c.Active():
		case c != nil && c.Status == store.Completed:
			a.Status = store.Completed
		default:
			a.Status = store.Failed
		}
		switch a.Status {
		case store.Running:
			r.await(1)
			return
		case store.Failed:
			status = store.Failed
		}
	}
	r.end(status, uuid.Nil)
	m.wakeParents([]*Run{r}, nil)
}

// compensationType is the workflow of all compensations.
const compensationType = "a"

// await lets a compensating run wait for the ends of n runs.
func (r *Run) await(n int) { r.Awaited, r.At = r.Wakeups+int64(n), Never }

// resumeCompensating runs the compensations again that have not completed, with the slots that a run holds until it
// ends.
func (m *Model) resumeCompensating(r *Run) error {
	if !slices.ContainsFunc(r.compensations(), func(a *Attempt) bool { return a.Status != store.Completed }) {
		return store.ErrCompensated
	}
	slot := 0
	if r.Key.Group || m.Queue.Held {
		if err := m.hasSlots(r); err != nil {
			return err
		}
		slot = 2
	}
	r.Status, r.Slot, r.Lease, r.Paused, r.Awaited = store.Sleeping, slot, uuid.Nil, false, r.Wakeups
	r.due()
	for _, a := range r.compensations() {
		if c := m.Runs[a.Child]; a.Status == store.Failed || a.Status == store.Running && a.Child != uuid.Nil {
			a.Status = store.Running
			if c == nil || c.Status == store.Failed || c.Status == store.Cancelled {
				a.Child = uuid.Nil
			}
		}
	}
	m.Compensate(r.ID)
	return nil
}

// hasSlots returns ErrSlotsHeld if other runs hold the slots of the run's key or its queue. The run needs no token of a
// rate.
func (m *Model) hasSlots(r *Run) error {
	most := cmp.Or(m.Keys[r.Key].Max, m.Queue.KeyMax)
	held := m.holders(func(o *Run) bool { return o.Key == r.Key })
	switch {
	case r.Key.Group && held > 0:
		return ErrSlotsHeld
	case !r.Key.Group && r.Key != (store.Key{}) && most > 0 && held >= most:
		return ErrSlotsHeld
	case m.Queue.Max > 0 && m.holders(func(*Run) bool { return true }) >= m.Queue.Max:
		return ErrSlotsHeld
	}
	return nil
}

// PassDeadline lets the time of the run's deadline come, and that of its lease, which is not much later.
func (t *table) PassDeadline(r *Run) {
	r.Deadline = Due
	r.due()
}

// EndOverdue ends the runs whose deadlines have passed and that no worker holds, and cancels those below them.
func (m *Model) EndOverdue() {
	var late, below []*Run
	for _, r := range m.all() {
		if r.Active() && r.Deadline == Due && (r.Status != store.Running || r.At == Due) {
			late = append(late, r)
		}
	}
	for _, r := range late {
		for _, b := range m.family(false, r.ID) {
			if !slices.Contains(late, b) && !slices.Contains(below, b) {
				below = append(below, b)
			}
		}
	}
	m.endAll(below, ending{status: store.Cancelled, grace: Soon})
	m.endAll(late, ending{status: store.Failed, expired: true})
}
