package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A run that fails for good pauses the key of its consumer. An operator who ends the pause gets another run, or goes on
// with the failed one.
func TestConsumerThatFails(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"Unpause", "Resume"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"))
			r := mustRun(t, s, "c")
			e := finish(r)
			e.Status, e.ErrorKind, e.Error, e.Output = store.Failed, "kind", "error", nil
			flush(t, s, &store.Flush{Finishes: []*store.Finish{e}})
			look(t, s)
			mustNotRun(t, s, "c")
			publishes(t, s, named("a", "1")...)
			mustNotRun(t, s, "c")
			pauses, err := s.View.Pauses(t.Context(), s.pool, 10)
			if err != nil || len(pauses) != 1 || pauses[0].Key != r.Key ||
				!strings.Contains(pauses[0].Reason, r.RunID.String()) {
				t.Fatalf("pauses %+v, %v", pauses, err)
			}
			if end == "Resume" {
				if _, err := s.Runs.Resume(t.Context(), nil, r.RunID, store.Why{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Pauses.Unpause(t.Context(), nil, store.Pause{Key: r.Key}); err != nil {
				t.Fatal(err)
			}
			next := mustRun(t, s, "c")
			if same := next.RunID == r.RunID; same != (end == "Resume") {
				t.Errorf("the same run: %t", same)
			}
			completes(t, s, next, "", time.Time{}, consumption(peek(t, s, "c", "a"), "a"))
			mustNotRun(t, s, "c")
			if pauses, _ := s.View.Pauses(t.Context(), s.pool, 10); len(pauses) != 0 {
				t.Errorf("paused again: %+v", pauses)
			}
		})
	}
}
