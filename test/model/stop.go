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
	ErrSlotsHeld   = errors.New("other runs hold its slots")
)

// family returns the runs and all below them that are active and not detached. Of a run that is over they are included,
// too. Compensations are detached: they are included if all is set.
func (t *table) family(all bool, ids ...uuid.UUID) (family []*Run) {
	ids = slices.Clone(ids)
	for i := 0; i < len(ids); i++ {
		for _, r := range t.all() {
			if r.Parent == ids[i] && (!r.Detached || all && r.isCompensation()) && r.Active() &&
				!slices.Contains(ids, r.ID) {
				ids = append(ids, r.ID)
			}
		}
	}
	for _, id := range ids {
		if r := t.Runs[id]; r != nil && r.Active() {
			family = append(family, r)
		}
	}
	return family
}

// cancel cancels the runs and all below them.
func (m *Model) cancel(regardless bool, grace When, ids ...uuid.UUID) {
	m.endAll(m.family(regardless, ids...), ending{
		status: store.Cancelled, asked: ids, regardless: regardless,
		grace: grace,
	})
}

// Cancel is Client.Cancel with a long grace, or Client.Terminate if regardless is set.
func (m *Model) Cancel(id uuid.UUID, regardless bool) error {
	r := m.Runs[id]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active() && r.Status != store.Cancelled:
		return store.ErrRunFinished
	}
	m.cancel(regardless, Later, id)
	return nil
}

// CancelChildren cancels the children of a run that is about to end.
func (m *Model) CancelChildren(id, lease uuid.UUID) error {
	var children []uuid.UUID
	for _, c := range m.all() {
		if c.Parent == id && !c.Detached && c.Active() && !c.Cancelling && c.Outcome == "" {
			children = append(children, c.ID)
		}
	}
	if len(children) == 0 {
		return nil
	}
	if !m.Runs[id].Holds(lease) {
		return store.ErrLeaseLost
	}
	m.cancel(false, Soon, children...)
	return nil
}

// Pause pauses a run. Unpause ends that: if its worker is dead, no worker has released the run, so that is done now.
func (t *table) Pause(id uuid.UUID) error {
	switch r := t.Runs[id]; {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active():
		return store.ErrRunFinished
	case r.Cancelling, r.Outcome != "":
		return store.ErrRunEnding
	default:
		r.Paused = true
		return nil
	}
}

// Unpause ends the pause of a run.
func (t *table) Unpause(id uuid.UUID) error {
	r := t.Runs[id]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case !r.Active():
		return store.ErrRunFinished
	}
	if r.Paused && r.Status == store.Running && t.Offline[r.Worker] {
		r.At = Due
	}
	r.Paused = false
	return nil
}

// below returns the run and all below it that a delete takes along.
func (t *table) below(id uuid.UUID) []*Run {
	runs := []*Run{t.Runs[id]}
	for i := 0; i < len(runs); i++ {
		for _, r := range t.all() {
			if r.Parent == runs[i].ID && (!r.Detached || r.isCompensation()) {
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
