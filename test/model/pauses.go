package model

import (
	"github.com/kagzi/kagzi/store"
)

// A Work is what a pause is about. Empty names stand for any.
type Work struct {
	Queue string
	Type  string
	Key   store.Key // without Queue and Type
}

// A Pause is a row of pauses, or of a key that is paused.
type Pause struct{ Parks bool }

// PauseWork keeps claims from runs.
func (m *Model) PauseWork(w Work, parks bool) { m.Pauses[w] = Pause{parks} }

// UnpauseWork ends a pause.
func (m *Model) UnpauseWork(w Work) error {
	if _, ok := m.Pauses[w]; !ok {
		return store.ErrNotPaused
	}
	delete(m.Pauses, w)
	return nil
}

// names reports whether a pause of the work may be about the run.
func (w Work) names(r *Run) bool {
	if w.Key != (store.Key{}) {
		return w.Key == r.Key
	}
	return w.Type == "" || w.Type == r.Type
}

// stopped reports whether a pause keeps claims from the run: its own, or one of its key, queue or workflow.
func (m *Model) stopped(r *Run) bool {
	return r.Paused || m.stoppedBy(r, func(Pause) bool { return true })
}

// parked reports whether an execution of the run is to stop at its next step.
func (m *Model) parked(r *Run) bool {
	return r.Paused || m.stoppedBy(r, func(p Pause) bool { return p.Parks })
}

func (m *Model) stoppedBy(r *Run, is func(Pause) bool) bool {
	for w, p := range m.Pauses {
		if w.names(r) && is(p) {
			return true
		}
	}
	return false
}
