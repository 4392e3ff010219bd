package hints

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// A run is queried when somebody comes to wait for it, after short pauses that grow, and when a hint names it. Runs that are
// waited for longer are not queried with it.
func TestRunsAreQueriedByTheirOwnPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &results{hints: &Hints{}, wake: make(chan struct{}, 1)}
		old, young := uuid.New(), uuid.New()
		var next time.Time
		query := func(what string, want ...uuid.UUID) {
			t.Helper()
			ids, _ := r.due(time.Now())
			if len(ids) != len(want) || len(ids) == 1 && ids[0] != want[0] {
				t.Errorf("%s: %d runs are queried, want %d", what, len(ids), len(want))
			}
			next = r.queried(ids, 0)
		}
		r.join(old)
		query("somebody comes", old)
		for _, ms := range []int{1, 3, 9, 27, 81, 243, 250, 250} {
			if got := time.Until(next); got != time.Duration(ms)*time.Millisecond {
				t.Errorf("a pause of %v, want %d ms", got, ms)
			}
			time.Sleep(time.Until(next))
			query("the pause is over", old)
		}
		r.join(young)
		query("somebody comes for another run", young)
		for range 4 {
			time.Sleep(time.Until(next))
			query("its pause is over", young)
		}
		r.refresh([]uuid.UUID{old, uuid.New()})
		query("a hint", old)
		r.refresh(nil)
		query("a hint for any run", old, young)
		time.Sleep(time.Second)
		query("both pauses are over", old, young)
		time.Sleep(time.Until(next) - time.Millisecond)
		query("nothing")
	})
}
