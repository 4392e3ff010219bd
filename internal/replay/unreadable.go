package replay

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

const (
	// MaxLoadFailures is the number of failures to read a history at which its run is quarantined.
	MaxLoadFailures = 20

	// waitsForHistory is shown as the reason of the wait of a run whose history could not be read, or not at once.
	waitsForHistory = "history"
)

// Unread yields a run whose history was not read, as if that had failed so many times. err is why it cannot be read;
// nil: other histories come first.
func (e *Run) Unread(err error, times int) {
	if err != nil {
		e.unreadable(err)
	} else {
		e.yield(waitsForHistory, loadPause(times), store.HistoryUntried)
	}
}

// unreadable yields a run whose history or inbox cannot be read, each time for longer. At MaxLoadFailures it
// quarantines the run.
func (e *Run) unreadable(err error) {
	failures := e.LoadFailures + 1
	e.log().Warn("kagzi: what a run has recorded cannot be read", "error", err, "times", failures)
	if failures >= MaxLoadFailures {
		e.giveUp(failure.Quarantine(kind.Unreadable, fmt.Errorf("what the run has recorded could not be read %d "+
			"times; make it readable, then Resume the run: %w", failures, err)))
		return
	}
	e.yield(waitsForHistory, loadPause(failures), store.HistoryFailed)
}

// giveUp fails the run with err, whether or not its execution has begun.
func (e *Run) giveUp(err error) {
	e.Lock()
	begun := e.hasBegunLocked()
	e.Unlock()
	if begun {
		e.fail(err)
	} else {
		e.stopUnbegun(stopFailed, err)
	}
}

// loadPause returns the pause of a run after that many failures to read its history.
func loadPause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 20), 5*time.Minute)
	return time.Duration(float64(pause) * (0.75 + rand.Float64()/2))
}
