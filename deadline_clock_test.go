//go:build unix

package kagzi

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestDeadlineOfAClockSetBack lets the timer of a run's deadline fire after the database's clock was set back: the run
// goes on, until the clock says that its time is over.
func TestDeadlineOfAClockSetBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := quietClient(t, db.Pool)
	w := newTestWorker(t, c, WorkerConfig{})
	g := newGate()
	g.handle(w)
	run, err := Start(t.Context(), c, g.wf, 1, Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s := newHeldSession(t, db, w)
	s.take()
	receive(t, g.begun)
	s.mu.Lock()
	e := s.executing[uuid.MustParse(string(run.ID()))]
	s.mu.Unlock()
	s.setClock(s.now().Add(-time.Hour))
	e.mu.Lock()
	e.deadline.Reset(0) // an hour later
	e.mu.Unlock()
	select {
	case cause := <-g.cause:
		t.Errorf("the run ended with %v, two hours before its deadline", cause)
	case <-time.After(300 * time.Millisecond): // what is not to happen
		s.setClock(s.now().Add(3 * time.Hour))
		if cause := receive(t, g.cause); !errors.Is(cause, KindDeadline) {
			t.Errorf("the step's context ended with %v, want %v", cause, KindDeadline)
		}
	}
	s.flushAll()
}
