package check

import (
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A clock tells what the machine's monotonic clock showed at a time of the database.
type clock struct {
	stamps []evidence.Stamp
	steady bool          // no fault has set the database's clock
	offset time.Duration // if it is steady, by how much the time since the first stamp is ahead of the machine's clock
}

// drift is how much the two clocks may differ in a round, because the system slews one of them.
const drift = 100 * time.Millisecond

// Steady reports whether no fault has set the database's clock.
func Steady(stamps []evidence.Stamp) bool { return newClock(stamps).steady }

func newClock(stamps []evidence.Stamp) clock {
	c := clock{stamps: stamps, steady: len(stamps) > 0}
	var least, most time.Duration // by how much the time since the first stamp is ahead of the machine's clock
	for i, s := range stamps {
		since := s.DB.Sub(stamps[0].DB)
		low, high := since-s.Answered, since-s.Asked
		if i == 0 {
			least, most = low, high
		}
		least, most = max(least, low), min(most, high)
		c.steady = c.steady && least-most <= drift
	}
	c.offset = (least + most) / 2
	return c
}

// machine returns what the machine's clock showed at a time of the database; zero if there is none. If the clock is
// steady, all stamps together tell that better than the nearest, because each answer has taken some time.
func (c clock) machine(t time.Time) time.Duration {
	if t.IsZero() || len(c.stamps) == 0 {
		return 0
	}
	if c.steady {
		return t.Sub(c.stamps[0].DB) - c.offset
	}
	near := c.stamps[0]
	for _, s := range c.stamps { // of a clock that was set back, the first pass
		if s.DB.Sub(t).Abs() < near.DB.Sub(t).Abs() {
			near = s
		}
	}
	return (near.Asked+near.Answered)/2 + t.Sub(near.DB)
}
