package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

const (
	// probeTimeout bounds the query that tests whether histories can be read at all.
	probeTimeout = 2 * time.Second

	// MaxLoadFailures is the number of failures to read a history at which its run is quarantined.
	MaxLoadFailures = 20

	// waitsForHistory is shown as the reason of the wait of a run whose history could not be read, or not at once.
	waitsForHistory = "history"
)

// readable reports whether histories can be read at all. If so, a failed read was the fault of a history. See
// doc_claims.go.
func (env *environment) readable() bool {
	nobody := []uuid.UUID{uuid.Nil}
	_, err := env.store.Histories.Load(env.reads, store.LoadRequest{
		Runs: nobody, Woken: nobody, Inputs: nobody, Most: 1,
		Timeout: probeTimeout,
	})
	return err == nil
}

// unreadable yields a run whose history or inbox cannot be read, each time for longer. At MaxLoadFailures it
// quarantines the run.
func (e *execution) unreadable(err error) {
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
func (e *execution) giveUp(err error) {
	e.Lock()
	loading := e.isLoadingLocked()
	e.Unlock()
	if loading {
		e.stopUnbegun(stopFailed, err)
	} else {
		e.fail(err)
	}
}

// loadPause returns the pause of a run after that many failures to read its history.
func loadPause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 20), 5*time.Minute)
	return time.Duration(float64(pause) * (0.75 + rand.Float64()/2))
}
