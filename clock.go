package kagzi

import (
	"log/slog"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
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

// An outage logs that the database is away, and that it is back: once, or once a minute if it comes and goes.
type outage struct {
	log   *slog.Logger
	after func() // called when it is over; nil if nothing follows

	mu    sync.Mutex
	since time.Time // zero unless it is under way
	told  time.Time // when it was last logged that the database is away
	times int       // it was met since then
	open  bool      // that it is over is to be logged

	busyTold time.Time // when it was last logged that the pool has no connection to give
}

// outageQuiet is the least time between two lines which say that the database is away.
const outageQuiet = time.Minute

// name has lines say whose they are.
func (o *outage) name(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = log
}

// begin notes that the database is away, whether or not that is known.
func (o *outage) begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if store.Classify(err) == store.ClassBusy { // the database is there
		if now.Sub(o.busyTold) >= outageQuiet {
			o.log.Warn("kagzi: no connection of the pool is free; Kagzi waits for one", "error", err)
			o.busyTold = now
		}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	o.times++
	if !o.told.IsZero() && now.Sub(o.told) < outageQuiet {
		return
	}
	o.log.Warn("kagzi: the database does not answer; carrying on when it is back", "error", err, "times", o.times)
	o.told, o.times, o.open = now, 0, true
}

func (o *outage) underWay() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// end notes that the database has answered.
func (o *outage) end() {
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
