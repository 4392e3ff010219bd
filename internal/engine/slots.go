package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// slots bound the executions under way. Beyond the free slots, a claim takes as many runs as slots were freed in the
// last claimAhead. These runs wait in memory, and each begins as soon as a slot is free. So short runs share claims,
// and wait for none. The session's mutex guards the fields. See docs/architecture.md, Claim.
type slots struct {
	free    int           // Decremented by startWaiting and Reserve, incremented by freeSlot.
	waiting []*execution  // claimed, in the order in which they begin
	ahead   int           // how many may wait: as many as slots were freed within claimAhead. Set by measure.
	freed   int           // how often a slot was freed since counted
	counted time.Time     // when ahead was set
	longest time.Duration // longestAhead, but for tests
}

const (
	// claimAhead is how long runs that are claimed ahead should have to wait.
	claimAhead = 25 * time.Millisecond

	// longestAhead is how long they may wait. Then they are given back to other workers: the runs before them have
	// become long.
	longestAhead = 4 * claimAhead
)

// measure counts how many slots are freed in claimAhead.
func (s *slots) measure(now time.Time) {
	if d := now.Sub(s.counted); d >= claimAhead {
		s.ahead = min(mostClaimed, int(time.Duration(s.freed)*claimAhead/d))
		s.freed, s.counted = 0, now
	}
}

// wanted returns how many runs to claim: none until a slot is free, or half of those that were claimed ahead have
// begun.
func (s *slots) wanted() int {
	if s.free == 0 && len(s.waiting) > s.ahead/2 {
		return 0
	}
	return max(0, s.free+s.ahead-len(s.waiting))
}

// startWaiting starts executions while slots are free.
func (s *Session) startWaiting() {
	for {
		s.mu.Lock()
		if s.slots.free == 0 || len(s.slots.waiting) == 0 {
			s.mu.Unlock()
			return
		}
		e := s.slots.waiting[0]
		s.slots.waiting[0] = nil
		s.slots.waiting = s.slots.waiting[1:]
		s.slots.free--
		s.mu.Unlock()
		s.start(e)
	}
}

// start gives e, which waited, a slot. It dispatches e once its history is read. It yields crash-loop suspects
// that have to wait for others: they may kill the process even when their histories are read.
func (s *Session) start(e *execution) {
	stopped, loading := e.takeSlot()
	switch {
	case stopped:
		s.release(e)
	case e.CrashLoopSuspect() && !s.beginSuspect(e):
		e.yield("recovery", time.Second, store.HistoryUntried)
	case loading:
		s.loads.add(e)
	default:
		s.dispatch(e)
	}
}

// Slots returns how many slots the session has, how many are free, and how many runs wait for one in memory.
func (s *Session) Slots() (all, free, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.MaxConcurrent, s.slots.free, len(s.slots.waiting)
}

// release frees the execution's slot, if it has one.
func (s *Session) release(e *execution) {
	if e.freeSlot() {
		s.freeSlot(e.heldFrom())
	}
}

// freeSlot frees a slot of a run of q for the next execution that waits, and else for a claim.
func (s *Session) freeSlot(q *queue) {
	s.mu.Lock()
	q.taken--
	s.slots.free++
	s.slots.freed++
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	claim := s.slots.wanted() > 0
	s.mu.Unlock()
	if claim {
		goroutine.Signal(s.freed)
	}
}

// giveBack yields the runs of the executions that still wait for a slot, if they were claimed no later than at that
// time. They keep their places in the queue.
func (s *Session) giveBack(claimed time.Time) {
	s.mu.Lock()
	n := 0
	for n < len(s.slots.waiting) && !s.slots.waiting[n].Term.Asked.After(claimed) {
		s.slots.waiting[n].heldFrom().taken--
		n++
	}
	back := s.slots.waiting[:n:n]
	s.slots.waiting = s.slots.waiting[n:]
	s.mu.Unlock()
	for _, e := range back {
		e.giveBack()
	}
}
