package claims

import "time"

// slots bound the executions under way. Beyond the free slots, a claim takes as many runs as slots were freed in the
// last Ahead. These runs wait in memory, and each begins as soon as a slot is free. So short runs share claims, and
// wait for none. See the package's comment.
type slots struct {
	free    int
	busy    int       // those that runs hold
	waiting int       // claimed runs without a slot
	ahead   int       // how many may wait: as many as slots were freed within Ahead. Set by measure.
	freed   int       // how often a slot was freed since counted
	counted time.Time // when ahead was set
}

const (
	// Ahead is how long runs that are claimed ahead of free slots should have to wait.
	Ahead = 25 * time.Millisecond

	// MostClaimed bounds the runs of one claim.
	MostClaimed = 1000
)

// measure counts how many slots are freed in Ahead.
func (s *slots) measure(now time.Time) {
	if d := now.Sub(s.counted); d >= Ahead {
		s.ahead = min(MostClaimed, int(time.Duration(s.freed)*Ahead/d))
		s.freed, s.counted = 0, now
	}
}

// wanted returns how many runs to claim: none until a slot is free, or half of those that were claimed ahead have
// begun.
func (s *slots) wanted() int {
	if s.free == 0 && s.waiting > s.ahead/2 {
		return 0
	}
	return max(0, s.free+s.ahead-s.waiting)
}
