package model

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A Started is the answer to a start.
type Started struct {
	Run      uuid.UUID
	Existed  bool
	Replaced uuid.UUID
}

// Start starts a run, or finds the one that exists, or is refused: then it changes nothing.
func (m *Model) Start(n store.NewRun) (Started, error) {
	if m.Runs[n.RunID] != nil { // the answer to an earlier try was lost
		return Started{Run: n.RunID}, nil
	}
	var replaced uuid.UUID
	switch held := m.active(n.ExternalID); {
	case held == nil:
		if last := m.lastEnded(n.ExternalID); n.ExternalID != "" && last != nil {
			if n.IfEnded == store.RejectEnded || n.IfEnded == store.StartIfFailed && last.Status == store.Completed {
				return Started{}, store.ErrIDTaken
			}
		}
	case n.IfActive == store.RejectActive:
		return Started{}, store.ErrIDTaken
	case n.IfActive == store.ReplaceActive && held.Type == n.Type:
		m.cancel(true, Later, held.ID)
		replaced = held.ID
	case held.Type != n.Type, held.Hash != string(n.InputHash) && n.IfActive != store.ReturnAnyInput:
		return Started{}, store.ErrIDConflict
	default:
		return Started{Run: held.ID, Existed: true}, nil
	}
	m.add(newRun(n))
	return Started{Run: n.RunID, Replaced: replaced}, nil
}

func newRun(n store.NewRun) *Run {
	r := &Run{
		ID: n.RunID, Type: n.Type, External: n.ExternalID, Hash: string(n.InputHash), Priority: n.Priority,
		Version: n.Version,
		Parent:  n.Parent, ParentStep: n.ParentStep, Detached: n.Detached, Status: store.Pending, At: Due,
		Key: n.Key,
	}
	if n.Timeout > 0 {
		r.Deadline, r.Timeout = Later, true
	}
	if n.Delay > 0 {
		r.At = Later
	}
	return r
}

// Resume begins another attempt of a run that failed or was cancelled.
func (m *Model) Resume(id uuid.UUID) error {
	r := m.Runs[id]
	if r != nil && !r.Active() && r.Status != store.Completed && m.active(r.External) != nil {
		return store.ErrIDConflict
	}
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case r.Active():
		return store.ErrRunActive
	case r.Status == store.Completed:
		return store.ErrRunFinished
	}
	if r.Outcome != "" {
		return m.resumeCompensating(r)
	}
	if r.Status == store.Cancelled {
		r.Attempts++
	}
	r.Status, r.Lease, r.Worker, r.Slot = store.Pending, uuid.Nil, uuid.Nil, 0
	r.due()
	r.Recoveries, r.Cancelling, r.Paused, r.Deadline = 0, false, false, None
	r.Wakeups++
	return nil
}

// Restart starts a run like one that is over; with a step it keeps the history up to when that began.
func (m *Model) Restart(old, id uuid.UUID, step string) error {
	r := m.Runs[old]
	switch {
	case r == nil:
		return store.ErrRunNotFound
	case r.Active():
		return store.ErrRunActive
	case step != "" && r.Outcome != "":
		return store.ErrCompensated
	case step != "" && len(r.Steps[step]) == 0:
		return store.ErrStepNotFound
	case m.active(r.External) != nil:
		return store.ErrIDConflict
	}
	n := &Run{
		ID: id, Type: r.Type, External: r.External, Hash: r.Hash, Priority: r.Priority, Version: r.Version,
		Key: r.Key, Tick: r.Tick, Status: store.Pending, At: Due,
	}
	if n.Timeout = r.Timeout; n.Timeout {
		n.Deadline = Later
	}
	if step != "" {
		n.Wakeups = r.Wakeups + 1
		n.Steps = forked(r, step)
		for _, g := range r.Messages {
			if n.Steps[g.ReadBy] == nil {
				g.ReadBy = ""
			}
			n.Messages = append(n.Messages, g)
		}
	}
	m.add(n)
	return nil
}

// forked returns the steps of the run that had their results when the step first began.
func forked(r *Run, step string) map[string][]Attempt {
	at := r.Steps[step][0].Begun
	kept := map[string][]Attempt{}
	for name, attempts := range r.Steps {
		if name == step || attempts[0].Kind == store.KindCompensation {
			continue
		}
		var begun []Attempt
		for _, a := range attempts {
			if a.Begun <= at {
				begun = append(begun, a)
			}
		}
		if len(begun) == 0 {
			continue
		}
		last := begun[len(begun)-1]
		ended := last.Ended
		if last.Kind == store.KindSleep && ended > 0 {
			ended = last.Passed
		}
		if ended > 0 && ended <= at && (last.Status == store.Completed || last.Status == store.Failed && last.Final) {
			kept[name] = begun
		}
	}
	return kept
}
