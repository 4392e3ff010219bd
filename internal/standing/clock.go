package standing

import (
	"sync"
	"time"
)

// A Clock estimates the database's time from the replies that carried it. The estimate lags by at most the time that
// the fastest of them took, so a time that the estimate has reached has come. See docs/architecture.md, Time.
type Clock struct {
	mu       sync.Mutex
	database time.Time     // the time in the reply that the estimate is counted on from
	received time.Time     // when that reply came
	heard    time.Time     // when the last reply came, also one that did not change the estimate
	jumped   chan struct{} // closed by Set when the database's clock was set forward; nil if no loop waits for that
}

// clockJump is how far a reply must be ahead of the estimate to show that the database's clock was set
// forward.
const clockJump = time.Second

// Set updates the estimate by a reply, received then, to a request, sent then: it carried the database's time, now. It
// reports whether the database's clock was set forward since the last reply: timers that were set by the estimate are
// then late.
//
// The database read its clock at some time between sent and received. A reply that is behind the estimate was usually
// long on its way, and changes nothing. It turns the estimate back only if it was sent after the estimate's reply was
// received, and is behind by more than its whole way: then the database's clock was set back.
func (c *Clock) Set(now, sent, received time.Time) (jumped bool) {
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

// Jump returns a channel that is closed when the clock is next found to be set forward. A caller gets it before it
// reads the time.
func (c *Clock) Jump() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jumped == nil {
		c.jumped = make(chan struct{})
	}
	return c.jumped
}

// Now returns the estimate of the database's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.database.Add(time.Since(c.received))
}

// Heard returns when the last reply came.
func (c *Clock) Heard() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
