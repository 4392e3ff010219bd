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
	// probeTimeout bounds the question whether histories can be read at all.
	probeTimeout = 2 * time.Second

	// MaxLoadFailures is how often a history cannot be read before its run is quarantined.
	MaxLoadFailures = 20

	// waitsForHistory is what a run waits for whose history could not be read, or not at once.
	waitsForHistory = "history"
)

// readable reports whether histories can be read at all. If so, what could not be read is itself the reason.
func (env *environment) readable() bool {
	nobody := []uuid.UUID{uuid.Nil}
	_, err := env.store.Load(env.reads, store.LoadRequest{Runs: nobody, Woken: nobody, Inputs: nobody, Most: 1, Timeout: probeTimeout})
	return err == nil
}

// unreadable yields a run whose history or inbox cannot be read, each time for longer, and quarantines it in the end.
func (e *execution) unreadable(err error) {
	failures := e.run.LoadFailures + 1
	e.log().Warn("kagzi: what a run has recorded cannot be read", "error", err, "times", failures)
	if failures >= MaxLoadFailures {
		e.giveUp(failure.Quarantine(kind.Unreadable, fmt.Errorf("what the run has recorded could not be read %d times; make it readable, then Resume the run: %w", failures, err)))
		return
	}
	e.yield(waitsForHistory, loadPause(failures), store.HistoryFailed)
}

// giveUp fails the run, whether or not its execution has begun.
func (e *execution) giveUp(err error) {
	e.mu.Lock()
	loading := e.loading
	e.mu.Unlock()
	if loading {
		e.stopUnbegun(stopFailed, err)
	} else {
		e.fail(err)
	}
}

// loadPause is how long a run waits whose history could not be read that many times.
func loadPause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 20), 5*time.Minute)
	return time.Duration(float64(pause) * (0.75 + rand.Float64()/2))
}
