package worker

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
)

// slots are the executions that wait for slots. The policy of claims counts the slots: see claims.Policy. The session's
// mutex guards waiting. See package claims.
type slots struct {
	freed   chan struct{} // a slot is free, or an execution was removed
	waiting []*held       // claimed, in the order in which they begin
	longest time.Duration // how long they may wait, for tests; zero: as the policy says
	lingering
}

func newSlots(mu *sync.Mutex, policy *claims.Policy, freed chan struct{}) slots {
	return slots{
		freed:     freed,
		lingering: lingering{claims: policy, mu: mu, runs: map[*held]bool{}},
	}
}

// startWaiting starts executions while slots are free.
func (c *claimer) startWaiting() {
	for {
		c.mu.Lock()
		if !c.claims.Begin() {
			c.mu.Unlock()
			return
		}
		h := c.waiting[0]
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		c.start(h)
	}
}

// start gives h, which waited, a slot. It dispatches h once its history is read. It yields crash-loop suspects
// that have to wait for others: they may kill the process even when their histories are read.
func (c *claimer) start(h *held) {
	stopped, loading := h.takeSlot()
	switch {
	case stopped:
		c.release(h)
	case h.CrashLoopSuspect() && !c.suspects.begin(h):
		h.Yield("recovery", time.Second)
	case loading:
		c.loads.add(h)
	default:
		c.dispatch(h)
	}
}

// Slots returns how many slots the session has, how many are free, and how many runs wait for one in memory.
func (c *claimer) Slots() (all, free, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work.slots, c.claims.FreeSlots(), c.claims.Waiting()
}

// busy returns how many slots runs of the session hold.
func (s *slots) busy() int {
	s.lingering.mu.Lock()
	defer s.lingering.mu.Unlock()
	return s.claims.Busy()
}

// rest gives back the borrowed slots that are free: the session claims nothing any more. Those of runs follow when
// these end.
func (s *slots) rest() {
	s.lingering.mu.Lock()
	defer s.lingering.mu.Unlock()
	s.claims.Rest(time.Now())
}

// returnAll gives back the slots that the session has borrowed, also those of runs that it has given up.
func (s *slots) returnAll() {
	s.lingering.mu.Lock()
	defer s.lingering.mu.Unlock()
	s.claims.Close(time.Now())
}

// release frees the run's slot, if it has one.
func (c *claimer) release(h *held) {
	if h.freeSlot() {
		c.freeSlot(h.Queue)
	}
}

// freeSlot frees a slot of a run of the queue for the next execution that waits, and else for a claim.
func (c *claimer) freeSlot(queue string) {
	c.mu.Lock()
	c.claims.Free(queue)
	c.mu.Unlock()
	c.startWaiting()
	c.mu.Lock()
	claim := c.claims.WantsRuns()
	c.mu.Unlock()
	if claim {
		c.signalFreed()
	}
}

// signalFreed wakes the loops that wait for a slot or for the last run.
func (s *slots) signalFreed() { goroutine.Signal(s.freed) }

// awaitFreed waits for a free slot or the end of an execution. It returns false if the timer fires first.
func (s *slots) awaitFreed(timer <-chan time.Time) bool {
	select {
	case <-s.freed:
		return true
	case <-timer:
		return false
	}
}

// giveBack yields the runs of the executions that still wait for a slot, if they were claimed no later than at that
// time. They keep their places in the queue.
func (c *claimer) giveBack(claimed time.Time) {
	c.mu.Lock()
	n := 0
	for n < len(c.waiting) && !c.waiting[n].Term.Asked.After(claimed) {
		c.claims.GiveBack(c.waiting[n].Queue)
		n++
	}
	back := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	c.mu.Unlock()
	for _, h := range back {
		h.Stop(standing.ErrShutdown)
	}
}
