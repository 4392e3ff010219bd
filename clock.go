package kagzi

import (
	"log/slog"
	"sync"
	"time"
)

// A clock estimates the database's time from the last reply that carried it. The estimate lags by at most the
// time the reply took, so what is due by it is due.
type clock struct {
	mu       sync.Mutex
	database time.Time
	received time.Time
	jumped   chan struct{} // closed when the clock is found to be set forward
}

// clockJump is how far a reply must be ahead of the estimate to say that somebody has set the database's clock.
const clockJump = time.Second

// set notes that a reply that has just come said now, and reports whether the clock was set forward since the last one:
// timers that were set by the estimate are late.
func (c *clock) set(now time.Time) (jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	jumped = !c.database.IsZero() && now.Sub(c.database.Add(time.Since(c.received))) > clockJump
	c.database, c.received = now, time.Now()
	if jumped && c.jumped != nil {
		close(c.jumped)
		c.jumped = nil
	}
	return jumped
}

// jump returns what is closed when the clock is next found to be set forward. Ask for it before the time.
func (c *clock) jump() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jumped == nil {
		c.jumped = make(chan struct{})
	}
	return c.jumped
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.database.Add(time.Since(c.received))
}

// An outage logs that the database is away, once, and that it is back.
type outage struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
}

// name has lines say whose they are.
func (o *outage) name(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = log
}

func (o *outage) begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
		o.log.Warn("kagzi: the database does not answer; carrying on when it is back", "error", err)
	}
}

func (o *outage) underWay() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.Info("kagzi: the database is back", "after", time.Since(o.since).Round(time.Millisecond))
		o.since = time.Time{}
	}
}
