package check_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// slept is a run whose program sleeps for a second. It began when the database's clock showed epoch.
func slept(change func(*evidence.Step)) *world {
	w := good()
	w.begun()
	w.ended()
	nap := evidence.Step{
		Run: "x", Step: "group/0/nap", Kind: "SLEEP", Status: "COMPLETED", Attempt: 1, RunAttempt: 1,
		Started: epoch, Finished: epoch.Add(1500 * time.Millisecond),
	}
	change(&nap)
	w.Steps = append(w.Steps, nap)
	w.x.Sleep = func(r evidence.Run, step string) (time.Duration, bool) {
		return time.Second, r.ID == "x" && step == "group/0/nap"
	}
	return w
}

func TestLengthsOfSleeps(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]time.Duration{
		"Short": 900 * time.Millisecond, "Long": 2500 * time.Millisecond,
		"ShortInMemory": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exactly(t, slept(func(s *evidence.Step) {
				if wake > 0 {
					s.WakeAt = epoch.Add(wake)
				} else {
					s.Finished = epoch.Add(999 * time.Millisecond)
				}
			}), "S9")
		})
	}
	t.Run("LongEnough", func(t *testing.T) {
		t.Parallel()
		exactly(t, slept(func(s *evidence.Step) { s.WakeAt = epoch.Add(time.Second) }), "")
	})
	t.Run("CopiedByAFork", func(t *testing.T) {
		t.Parallel()
		exactly(t, slept(func(s *evidence.Step) { s.RunAttempt, s.Finished = 0, epoch }), "")
	})
}
