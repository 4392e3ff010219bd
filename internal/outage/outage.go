// Package outage keeps what the database fails a process with: an outage, in which it does not answer, and failures that it
// answers with again and again. Both are logged once, and from time to time while they last.
package outage

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

// Pause is how long to wait before a statement is repeated that failed because the database was away.
const Pause = 250 * time.Millisecond

// longestPause is the longest pause before a statement is repeated that fails although the database answers.
const longestPause = 15 * time.Second

// Backoff is how long to wait before a statement is repeated that has failed that many times although the database
// answers.
func Backoff(failures int) time.Duration {
	pause := Pause << min(failures, 10)
	return time.Duration(float64(min(pause, longestPause)) * (0.75 + rand.Float64()/2))
}

// PauseAfter is how long to wait before a statement is repeated that failed with err, after so many failures before: Pause
// while the database does not answer, and Backoff while it answers with an error.
func PauseAfter(err error, failures int) time.Duration {
	if store.Unavailable(err) {
		return Pause
	}
	return Backoff(failures)
}

// An Outage logs that the database is away, and that it is back: once, or once a minute if it comes and goes. It is safe
// for concurrent use.
type Outage struct {
	after func() // called when it is over; nil if nothing follows

	mu    sync.Mutex
	log   *slog.Logger
	since time.Time // zero unless it is under way
	told  time.Time // when it was last logged that the database is away
	times int       // it was met since then
	open  bool      // that it is over is to be logged

	busyTold time.Time // when it was last logged that the pool has no connection to give
}

// quiet is the least time between two lines which say that the database is away.
const quiet = time.Minute

// New returns an Outage that logs to log, and calls after at the end of each outage.
func New(log *slog.Logger, after func()) *Outage { return &Outage{log: log, after: after} }

// SetLogger changes where lines go from now on.
func (o *Outage) SetLogger(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = log
}

// Begin notes that the database is away, whether or not that is known.
func (o *Outage) Begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if store.Classify(err) == store.ClassBusy { // the database is there
		if now.Sub(o.busyTold) >= quiet {
			o.log.Warn("kagzi: no connection of the pool is free; Kagzi waits for one", "error", err)
			o.busyTold = now
		}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	o.times++
	if !o.told.IsZero() && now.Sub(o.told) < quiet {
		return
	}
	o.log.Warn("kagzi: the database does not answer; carrying on when it is back", "error", err, "times", o.times)
	o.told, o.times, o.open = now, 0, true
}

// UnderWay reports whether the last statement found the database away.
func (o *Outage) UnderWay() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// End notes that the database has answered.
func (o *Outage) End() {
	o.mu.Lock()
	was := !o.since.IsZero()
	if was && o.open {
		o.log.Info("kagzi: the database is back", "after", time.Since(o.since).Round(time.Millisecond))
	}
	o.since, o.open = time.Time{}, false
	o.mu.Unlock()
	if was && o.after != nil {
		o.after()
	}
}
