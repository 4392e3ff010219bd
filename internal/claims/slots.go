package claims

import "time"

// slots bound the executions under way. Beyond the free slots, a claim takes as many runs as slots were freed in the
// last window. These runs wait in memory, and each begins as soon as a slot is free. So short runs share claims, and
// wait for none. See the package's comment.
type slots struct {
	free    int
	busy    int           // those that runs hold
	waiting int           // claimed runs without a slot
	ahead   int           // how many may wait: as many as slots were freed within the window. Set by measure.
	freed   int           // how often a slot was freed since counted
	counted time.Time     // when ahead was set
	took    time.Duration // what the shorter of the last two claims took: a single answer may have been late
	last    time.Duration // what the last claim took
	loan    *loan         // from which slots are borrowed; nil: they are the policy's own
}

const (
	// Ahead and mostAhead bound the window.
	Ahead     = 25 * time.Millisecond
	mostAhead = 100 * time.Millisecond

	// MostClaimed bounds the runs of one claim.
	MostClaimed = 1000
)

// claimed notes that a claim took so long.
func (s *slots) claimed(took time.Duration) { s.took, s.last = min(s.last, took), took }

// window is how long runs that are claimed ahead of free slots should have to wait: twice what a claim takes. So where
// many workers share a slow server, each of their claims takes more runs.
func (s *slots) window() time.Duration { return min(max(2*s.took, Ahead), mostAhead) }

// measure counts how many slots are freed in the window.
func (s *slots) measure(now time.Time) {
	window := s.window()
	if d := now.Sub(s.counted); d >= window {
		s.ahead = min(MostClaimed, int(time.Duration(s.freed)*window/d))
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

// borrow borrows slots for a claim, at most so many in all, if they are shared with other policies. It returns false
// while others have their turns.
func (s *slots) borrow(most int, now time.Time) (turn bool) {
	if s.loan == nil {
		return true
	}
	n, turn := s.loan.borrow(most, now)
	s.free += n
	if !turn {
		s.giveBack()
	}
	return turn
}

// borrowOne makes sure that a slot is free.
func (s *slots) borrowOne() bool {
	if s.free > 0 {
		return true
	}
	if s.loan == nil || !s.loan.borrowOne() {
		return false
	}
	s.free++
	return true
}

// giveBack gives back the free slots, unless the policy is in its turn, or runs wait for them.
func (s *slots) giveBack() {
	if s.loan != nil && s.free > 0 && s.waiting == 0 && s.loan.giveBack(s.free) {
		s.free = 0
	}
}

// rest gives back the free slots, and ends the turn: no claim is due.
func (s *slots) rest(now time.Time) {
	if s.loan != nil {
		s.loan.rest(s.free, now)
		s.free = 0
	}
}

// end gives back all that was borrowed. A run that still has a slot does not count from now on.
func (s *slots) end(now time.Time) {
	if s.loan != nil {
		s.loan.rest(s.loan.slots, now)
		s.loan, s.free = nil, 0
	}
}

// unused returns how many slots of all policies are free.
func (s *slots) unused() int {
	if s.loan == nil {
		return s.free
	}
	return s.free + s.loan.room.unused()
}
