package worker

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// A slot that was just freed is for the run that was claimed ahead and waits for it, and not for one that is being
// started.
func TestReservationDoesNotOvertakeRunsThatWait(t *testing.T) {
	t.Parallel()
	for waiting, want := range map[int]bool{0: true, 1: false} {
		s := sessionWithClock(time.Hour)
		s.work.types = []store.WorkflowVersions{{Type: "wf", Default: 1}}
		s.work.handlers = map[string]map[int]replay.Handler{"wf": {1: func(*replay.Branch, []byte) ([]byte, error) {
			return nil, nil
		}}}
		s.SetID(uuid.New())
		claimNothing(s)
		s.claims.Wait("queue", waiting)
		run := store.NewRun{Spec: store.Spec{Queue: "queue", Type: "wf"}, RunID: uuid.New()}
		if got := s.Reserve(&run) != nil; got != want {
			t.Errorf("%d runs wait: a reservation was given is %t, want %t", waiting, got, want)
		}
	}
}
