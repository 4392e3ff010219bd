package engine

import (
	"sync"
	"time"
)

// A clock estimates the database's time from the replies that carried it. The estimate lags by at most the time that the
// fastest of them took, so what is due by it is due.
type clock struct {
	mu       sync.Mutex
	database time.Time // at received, if not later
	received time.Time
	heard    time.Time     // when the last reply came, whatever it said
	jumped   chan struct{} // closed when the clock is found to be set forward
}

// clockJump is how far a reply must be ahead of the estimate to say that somebody has set the database's clock.
const clockJump = time.Second

// set notes that a request sent then had a reply, received then, which said now. It reports whether the clock was set
// forward since the last one: timers that were set by the estimate are late. The database read its clock at some time
// between the two. So a reply that was long on its way does not turn the estimate back; one that was sent after what the
// estimate goes by was received, and says a time from which even its whole way leads not to the estimate, does: the
// database's clock was set back.
func (c *clock) set(now, sent, received time.Time) (jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = received
	ahead := now.Sub(c.database.Add(received.Sub(c.received)))
	first := c.database.IsZero()
	if !first && ahead <= 0 && (!sent.After(c.received) || -ahead <= received.Sub(sent)) {
		return false
	}
	c.database, c.received = now, received
	jumped = !first && ahead > clockJump
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
