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
}

// set notes that a reply that has just come said now.
func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.database, c.received = now, time.Now()
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
