package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// slots are the executions that wait for slots. The policy of claims counts the slots: see claims.Policy. The session's
// mutex guards the fields. See package claims.
type slots struct {
	waiting []*execution  // claimed, in the order in which they begin
	longest time.Duration // longestAhead, but for tests
}

// longestAhead is how long runs that are claimed ahead may wait. Then they are given back to other workers: the runs
// before them have become long.
const longestAhead = 4 * claims.Ahead

// startWaiting starts executions while slots are free.
func (s *Session) startWaiting() {
	for {
		s.mu.Lock()
		if !s.claims.Begin() {
			s.mu.Unlock()
			return
		}
		e := s.slots.waiting[0]
		s.slots.waiting[0] = nil
		s.slots.waiting = s.slots.waiting[1:]
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
	return s.cfg.MaxConcurrent, s.claims.FreeSlots(), s.claims.Waiting()
}

// release frees the execution's slot, if it has one.
func (s *Session) release(e *execution) {
	if e.freeSlot() {
		s.freeSlot(e.Queue)
	}
}

// freeSlot frees a slot of a run of the queue for the next execution that waits, and else for a claim.
func (s *Session) freeSlot(queue string) {
	s.mu.Lock()
	s.claims.Free(queue)
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	claim := s.claims.WantsRuns()
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
		s.claims.GiveBack(s.slots.waiting[n].Queue)
		n++
	}
	back := s.slots.waiting[:n:n]
	s.slots.waiting = s.slots.waiting[n:]
	s.mu.Unlock()
	for _, e := range back {
		e.giveBack()
	}
}
