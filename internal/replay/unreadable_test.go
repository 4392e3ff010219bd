package replay

import (
	"testing"
	"time"
)

// TestPausesOfUnreadableHistoriesGrow shows the pauses of a run whose history cannot be read: a second at first, five
// minutes in the end, about an hour in all.
func TestPausesOfUnreadableHistoriesGrow(t *testing.T) {
	t.Parallel()
	var all time.Duration
	for n := 1; n < MaxLoadFailures; n++ {
		pause, want := loadPause(n), min(time.Second<<(n-1), 5*time.Minute)
		if pause < want*3/4 || pause > want*5/4 {
			t.Errorf("after %d failures %v, want about %v", n, pause, want)
		}
		all += pause
	}
	if all < 30*time.Minute || all > 2*time.Hour {
		t.Errorf("%v in all", all)
	}
}
