package replay

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// MaxLoadFailures is the number of failures to read a history at which its run is quarantined.
const MaxLoadFailures = 20

// Unread yields a run whose history was not read, as if that had failed so many times. err is why it cannot be read;
// nil: other histories come first.
func (e *Run) Unread(err error, times int) {
	if err != nil {
		e.unreadable(err)
	} else {
		e.yield(waits.History, loadPause(times), store.HistoryUntried)
	}
}

// unreadable yields a run whose history or inbox cannot be read, each time for longer. At MaxLoadFailures it
// quarantines the run.
func (e *Run) unreadable(err error) {
	failures := e.LoadFailures + 1
	e.log().Warn("kagzi: what a run records cannot be read or sealed", "error", err, "times", failures)
	if failures >= MaxLoadFailures {
		e.giveUp(failure.Quarantine(kind.Unreadable, fmt.Errorf("what the run records could not be read or "+
			"sealed %d times; mend that, then Resume the run: %w", failures, err)))
		return
	}
	e.yield(waits.History, loadPause(failures), store.HistoryFailed)
}

// unwritable yields the run and ends the goroutine, because a value cannot be sealed, which may be over soon. The
// branch goes on from there in a later execution, so the application never sees the error.
func (e *Run) unwritable(err error) {
	e.unreadable(err)
	runtime.Goexit()
}

// loadPause returns the pause of a run after that many failures to read its history.
func loadPause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 20), 5*time.Minute)
	return time.Duration(float64(pause) * (0.75 + rand.Float64()/2))
}
