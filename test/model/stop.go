package model

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// The errors of Delete that have types of their own in the store.
var (
	ErrActiveBelow = errors.New("a run below it is active")
	ErrNeeded      = errors.New("its parent needs it")
)

// family returns the run and all below it that are active and not detached. Of a run that is over they are included, too.
func (m *Model) family(id uuid.UUID) []*Run {
	ids := []uuid.UUID{id}
	for i := 0; i < len(ids); i++ {
		for _, r := range m.all() {
			if r.Parent == ids[i] && !r.Detached && r.Active() {
				ids = append(ids, r.ID)
			}
		}
	}
	var family []*Run
	for _, id := range ids {
		if r := m.Runs[id]; r != nil && r.Active() {
			family = append(family, r)
		}
	}
	return family
}

// endFamily cancels the run and all below it, and reports whether it has changed the run. Those that run and may register a compensation, or
// hold a slot, are marked, unless regardless is set: their worker ends them.
func (m *Model) endFamily(id uuid.UUID, regardless bool) (changed bool) {
	family := m.family(id)
	woken := map[*Run]int{}
	for _, r := range family {
		changed = changed || r.ID == id
		if r.Status == store.Running && (r.Announces || r.Slot > 0) && !regardless {
			r.Cancelling, r.Paused, r.HasEnd = true, false, true
			continue
		}
		r.end(store.Cancelled, uuid.Nil)
		if p := m.Runs[r.Parent]; p != nil && p.Active() && !slices.Contains(family, p) {
			woken[p]++
		}
	}
	for p, n := range woken {
		p.wake(n)
	}
	return changed
}

// Cancel is Client.Cancel, or Client.Terminate if regardless is set.
func (m *Model) Cancel(id uuid.UUID, regardless bool) error {
	r := m.Runs[id]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active() && r.Status != store.Cancelled:
		return store.ErrRunFinished
	}
	m.endFamily(id, regardless)
	return nil
}

// CancelChildren cancels the children of a run that is about to end.
func (m *Model) CancelChildren(id, lease uuid.UUID) error {
	var children []*Run
	for _, c := range m.all() {
		if c.Parent == id && !c.Detached && c.Active() && !c.Cancelling {
			children = append(children, c)
		}
	}
	if len(children) == 0 {
		return nil
	}
	if !m.Runs[id].Holds(lease) {
		return store.ErrLeaseLost
	}
	for _, c := range children {
		m.endFamily(c.ID, false)
	}
	return nil
}

// Pause pauses a run. Unpause ends that: if its worker is dead, nobody has released the run, so that is done now.
func (m *Model) Pause(id uuid.UUID) error {
	switch r := m.Runs[id]; {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active():
		return store.ErrRunFinished
	case r.Cancelling:
		return store.ErrRunEnding
	default:
		r.Paused = true
		return nil
	}
}

// Unpause ends the pause of a run.
func (m *Model) Unpause(id uuid.UUID) error {
	r := m.Runs[id]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active():
		return store.ErrRunFinished
	}
	r.Paused, r.released = false, m.tick()
	if r.Status == store.Running && m.Offline[r.Worker] {
		r.At = Due
	}
	return nil
}

// below returns the run and all below it that a delete takes along.
func (m *Model) below(id uuid.UUID) []*Run {
	runs := []*Run{m.Runs[id]}
	for i := 0; i < len(runs); i++ {
		for _, r := range m.all() {
			if r.Parent == runs[i].ID && !r.Detached {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// Delete deletes a run that is over, with the runs that belong to it.
func (m *Model) Delete(id uuid.UUID) error {
	r := m.Runs[id]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case r.Active():
		return store.ErrRunActive
	}
	runs := m.below(id)
	if slices.ContainsFunc(runs, (*Run).Active) {
		return ErrActiveBelow
	}
	if m.Runs[r.Parent] != nil {
		return ErrNeeded
	}
	for _, r := range runs {
		delete(m.Runs, r.ID)
	}
	return nil
}
