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

// A Pause is a row of pauses.
type Pause struct {
	Percent int // of the runs go on nevertheless
	Parks   bool
	since   int // by Model.now
}

// PauseWork keeps claims from runs. A pause that lets some pass stops them again.
func (m *Model) PauseWork(w Work, parks bool) {
	m.Pauses[w] = Pause{0, parks, m.tick()}
}

// UnpauseWork ends a pause, or lets some of the runs pass.
func (m *Model) UnpauseWork(w Work, percent int) error {
	p, ok := m.Pauses[w]
	switch {
	case !ok:
		return store.ErrNotPaused
	case percent == 0:
		delete(m.Pauses, w)
	default:
		p.Percent = percent
		m.Pauses[w] = p
	}
	return nil
}

// names reports whether a pause of the work may be about the run.
func (w Work) names(r *Run) bool {
	if w.Key != (store.Key{}) {
		return w.Key == r.Key
	}
	return w.Type == "" || w.Type == r.Type
}

// stopped reports whether a pause keeps claims from the run: its own, that of its key, or one of its queue or workflow
// that does not let it pass. A run that was released passes the pauses of its queue and workflow that were there then.
func (m *Model) stopped(r *Run) bool {
	return r.Paused || m.stoppedBy(r, func(Pause) bool { return true })
}

// parked reports whether an execution of the run is to stop at its next step.
func (m *Model) parked(r *Run) bool {
	return r.Paused || m.stoppedBy(r, func(p Pause) bool { return p.Parks })
}

func (m *Model) stoppedBy(r *Run, is func(Pause) bool) bool {
	for w, p := range m.Pauses {
		passes := w.Key == (store.Key{}) && (r.Percent < p.Percent || r.released > p.since)
		if w.names(r) && is(p) && !passes {
			return true
		}
	}
	return false
}
