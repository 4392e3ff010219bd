package worker

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A lease that ends with its run's deadline counts as old only once searches have found it for so long: its claim may
// be under way.
func TestStraysWithDeadlines(t *testing.T) {
	t.Parallel()
	var s strays
	at := time.Now()
	cut := store.LeasedRun{HeldRun: store.HeldRun{RunID: uuid.New(), Lease: uuid.New()}, Cut: true}
	other := store.LeasedRun{HeldRun: store.HeldRun{RunID: uuid.New(), Lease: uuid.New()}}
	again := cut
	again.Lease = uuid.New()
	for i, c := range []struct {
		after time.Duration
		found []store.LeasedRun
		want  int
	}{
		{0, []store.LeasedRun{cut, other}, 1},
		{24 * time.Second, []store.LeasedRun{cut}, 0},
		{25 * time.Second, []store.LeasedRun{cut}, 1},
		{26 * time.Second, []store.LeasedRun{again}, 0}, // another claim
		{60 * time.Second, nil, 0},
		{61 * time.Second, []store.LeasedRun{again}, 0}, // it was executed meanwhile
	} {
		if got := s.old(c.found, at.Add(c.after), 25*time.Second); len(got) != c.want || len(s.cut) > 1 {
			t.Errorf("%d: %v are old, of %v", i, got, c.found)
		}
	}
}
