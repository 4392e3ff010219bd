// Package outage tracks failures of the database: outages, in which it does not answer, and operations that it refuses
// again and again. Both are logged once, and again from time to time while they last.
package outage

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// Pause is the pause before a statement is repeated that failed because the database did not answer.
const Pause = 250 * time.Millisecond

// longestPause is the longest pause before a statement is repeated that fails although the database answers.
const longestPause = 15 * time.Second

// Backoff returns the pause before a statement is repeated that has failed that many times although the database
// answers.
func Backoff(failures int) time.Duration {
	pause := Pause << min(failures, 10)
	return time.Duration(float64(min(pause, longestPause)) * (0.75 + rand.Float64()/2))
}

// PauseAfter returns the pause before a statement is repeated that failed with err, after that many earlier failures:
// Pause while the database does not answer, and Backoff while it answers with an error.
func PauseAfter(err error, failures int) time.Duration {
	if pg.Unavailable(err) {
		return Pause
	}
	return Backoff(failures)
}

// An Outage logs once that the database does not answer, and that it answers again, or once a minute if that changes
// often. It is safe for concurrent use.
type Outage struct {
	after func() // called at the end of an outage; may be nil

	mu     sync.Mutex // guards all below
	log    *slog.Logger
	since  time.Time // when the outage began; zero: there is none
	logged time.Time // when an outage was last logged; zero: never
	times  int       // statements that have failed since then
	open   bool      // the current outage was logged, so its end must be, too

	busyLogged time.Time // when it was last logged that no connection of the pool is free
}

// quiet is the least time between two lines that log an outage.
const quiet = time.Minute

// New returns an Outage that logs to log, and calls after at the end of each outage.
func New(log *slog.Logger, after func()) *Outage { return &Outage{log: log, after: after} }

// SetLogger changes the logger.
func (o *Outage) SetLogger(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = log
}

// Begin records that a statement failed with err because the database did not answer.
func (o *Outage) Begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if pg.Classify(err) == pg.ClassBusy { // the database is there
		if now.Sub(o.busyLogged) >= quiet {
			o.log.Warn("kagzi: no connection of the pool is free; Kagzi waits for one", "error", err)
			o.busyLogged = now
		}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	o.times++
	if !o.logged.IsZero() && now.Sub(o.logged) < quiet {
		return
	}
	o.log.Warn("kagzi: the database does not answer; retrying until it does", "error", err, "times", o.times)
	o.logged, o.times, o.open = now, 0, true
}

// UnderWay reports whether the database did not answer the last statement.
func (o *Outage) UnderWay() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// End records that the database has answered.
func (o *Outage) End() {
	o.mu.Lock()
	was := !o.since.IsZero()
	if was && o.open {
		o.log.Info("kagzi: the database is back", "after", time.Since(o.since).Round(time.Millisecond).String())
	}
	o.since, o.open = time.Time{}, false
	o.mu.Unlock()
	if was && o.after != nil {
		o.after()
	}
}
