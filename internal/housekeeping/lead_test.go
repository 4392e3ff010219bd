package housekeeping

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/store"
)

// A coordinator lets the others rest only if its loops are on time, and if the notifications save more than they cost.
func TestCoordinatorThatDoesNotLead(t *testing.T) {
	t.Parallel()
	k := newCoordinator(t, dbtest.Pool(t))
	heard := make(chan hints.Lead, 10)
	defer k.cfg.Hints.Listen()()
	defer k.cfg.Hints.OnLead(func(l hints.Lead) { heard <- l })()
	await.True(t, "the coordinator listens", k.cfg.Hints.Listening)
	check := func(workers, backends int) {
		t.Helper()
		if err := k.lead(t.Context(), &store.FleetCheck{Workers: workers, Backends: backends}); err != nil {
			t.Fatal(err)
		}
	}
	loops := []string{fireSchedules, endOverdue, runCompensations, serveLimits, keepKeys, tellOfEvents, releaseRuns}
	for _, late := range loops {
		for _, loop := range loops {
			k.leadership.passed(loop, time.Hour)
		}
		k.leadership.failed(late)
		check(2, 2*backendsPerWorker)
	}
	k.leadership.passed(releaseRuns, time.Hour)
	check(1, 1)                     // no other would rest
	check(2, 2*backendsPerWorker+1) // too many would be woken
	check(2, 2*backendsPerWorker)
	if err := k.cfg.Hints.Lead(t.Context(), hints.Lead{Ends: true}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for !await.Receive(t, heard).Ends {
		n++
	}
	if n != 1 {
		t.Errorf("it led %d times, want only the last", n)
	}
}
