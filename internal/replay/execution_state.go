package replay

import (
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// Update passes the state of the run's row to the execution. It reports whether the run has messages or ended children
// of which the execution does not know.
func (e *Run) Update(st store.HeldRunState) (behind bool) {
	switch {
	case st.Holds:
		e.SetTerm(st.Term)
		if st.Cancel {
			e.cancelRequested(st.Deadline)
		}
		e.setPaused(st.Paused)
		return e.isBehind(st.Wakeups)
	case st.Status == store.Cancelled:
		e.stopAnyway(stopCancelled, errCancelled)
	default:
		e.stopAnyway(stopLost, standing.ErrLeaseLost)
	}
	return false
}
