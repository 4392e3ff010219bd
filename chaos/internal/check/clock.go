package check

import (
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A clock tells what the machine's monotonic clock showed at a time of the database.
type clock struct {
	stamps []evidence.Stamp
	steady bool // nobody has set the database's clock
}

// drift is how much the two clocks may differ in a round, because the system slews one of them.
const drift = 100 * time.Millisecond

func newClock(stamps []evidence.Stamp) clock {
	c := clock{stamps: stamps, steady: len(stamps) > 0}
	var least, most time.Duration // the difference of the clocks is between them, relative to the first stamp
	for i, s := range stamps {
		since := s.DB.Sub(stamps[0].DB)
		low, high := since-(s.Answered-stamps[0].Asked), since-(s.Asked-stamps[0].Answered)
		if i == 0 {
			least, most = low, high
		}
		least, most = max(least, low), min(most, high)
		c.steady = c.steady && least-most <= drift
	}
	return c
}

// machine returns what the machine's clock showed at a time of the database, as well as the nearest stamp tells; zero if there is none.
func (c clock) machine(t time.Time) time.Duration {
	if t.IsZero() || len(c.stamps) == 0 {
		return 0
	}
	near := c.stamps[0]
	for _, s := range c.stamps { // of a clock that was set back, the first pass
		if s.DB.Sub(t).Abs() < near.DB.Sub(t).Abs() {
			near = s
		}
	}
	return (near.Asked+near.Answered)/2 + t.Sub(near.DB)
}
