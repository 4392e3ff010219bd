package worker

import (
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
)

// slots are the executions that wait for slots. The policy of claims counts the slots: see claims.Policy. The session's
// mutex guards the fields. See package claims.
type slots struct {
	waiting []*held       // claimed, in the order in which they begin
	longest time.Duration // longestAhead, but for tests
}

// longestAhead is how long runs that are claimed ahead may wait. Then they are given back to other workers: the runs
// before them have become long.
const longestAhead = 4 * claims.Ahead

// startWaiting starts executions while slots are free.
func (s *Session) startWaiting() {
	for {
		s.lock()
		if !s.claims.Begin() {
			s.unlock()
			return
		}
		h := s.slots.waiting[0]
		s.slots.waiting[0] = nil
		s.slots.waiting = s.slots.waiting[1:]
		s.unlock()
		s.start(h)
	}
}

// start gives h, which waited, a slot. It dispatches h once its history is read. It yields crash-loop suspects
// that have to wait for others: they may kill the process even when their histories are read.
func (s *Session) start(h *held) {
	stopped, loading := h.takeSlot()
	switch {
	case stopped:
		s.release(h)
	case h.CrashLoopSuspect() && !s.beginSuspect(h):
		h.run.Yield("recovery", time.Second)
	case loading:
		s.loads.add(h)
	default:
		s.dispatch(h)
	}
}

// Slots returns how many slots the session has, how many are free, and how many runs wait for one in memory.
func (s *Session) Slots() (all, free, waiting int) {
	s.lock()
	defer s.unlock()
	return s.cfg.MaxConcurrent, s.claims.FreeSlots(), s.claims.Waiting()
}

// release frees the run's slot, if it has one.
func (s *Session) release(h *held) {
	if h.freeSlot() {
		s.freeSlot(h.Queue)
	}
}

// freeSlot frees a slot of a run of the queue for the next execution that waits, and else for a claim.
func (s *Session) freeSlot(queue string) {
	s.lock()
	s.claims.Free(queue)
	s.unlock()
	s.startWaiting()
	s.lock()
	claim := s.claims.WantsRuns()
	s.unlock()
	if claim {
		goroutine.Signal(s.freed)
	}
}

// giveBack yields the runs of the executions that still wait for a slot, if they were claimed no later than at that
// time. They keep their places in the queue.
func (s *Session) giveBack(claimed time.Time) {
	s.lock()
	n := 0
	for n < len(s.slots.waiting) && !s.slots.waiting[n].Term.Asked.After(claimed) {
		s.claims.GiveBack(s.slots.waiting[n].Queue)
		n++
	}
	back := s.slots.waiting[:n:n]
	s.slots.waiting = s.slots.waiting[n:]
	s.unlock()
	for _, h := range back {
		h.run.Stop(standing.ErrShutdown)
	}
}
