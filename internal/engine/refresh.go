package engine

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// Refresh notes that the rows of ids have changed; nil means any. It does not block. If it is the worker's own, somebody has asked
// it to drain or has declared it dead: the next heartbeat says.
func (s *Session) Refresh(ids []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ids == nil || slices.Contains(ids, s.ID()) {
		goroutine.Signal(s.heartbeats)
	}
	if ids == nil {
		for id := range s.executing {
			s.stale[id] = true
		}
		if s.claiming {
			s.staleEarly[uuid.Nil] = true
		}
	}
	for _, id := range ids {
		if s.executing[id] != nil {
			s.stale[id] = true
		}
		if s.claiming {
			s.staleEarly[id] = true
		}
	}
	if len(s.stale) > 0 {
		goroutine.Signal(s.refreshes)
	}
}

// refreshLoop reads the rows that have changed.
func (s *Session) refreshLoop(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.refreshes:
		}
		s.mu.Lock()
		var held []store.HeldRun
		for id := range s.stale {
			if e := s.executing[id]; e != nil {
				held = append(held, e.held())
			}
		}
		clear(s.stale)
		s.mu.Unlock()
		if len(held) == 0 {
			continue
		}
		states, err := s.store.HeldStates(s.background, s.store.Pool(), held, s.refusesOne)
		if err != nil {
			s.databaseTrouble(err) // the next heartbeat refreshes, too
			continue
		}
		s.fetch(s.apply(states))
	}
}

// fetch gives executions what reached their runs. What is too much for one query, or cannot be read, is read for each run
// alone, beside the refreshes.
func (s *Session) fetch(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	// The executions as they are before the query: for a later one of the same run a message may be read that an earlier one
	// was about to take.
	of := make(map[uuid.UUID]*execution, len(ids))
	s.mu.Lock()
	for _, id := range ids {
		if e := s.executing[id]; e != nil {
			of[id] = e
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.background, sharedTimeout)
	defer cancel()
	inboxes, err := s.store.Inbox(ctx, ids)
	if err != nil && !s.readable() {
		s.databaseTrouble(err) // the next heartbeat refreshes, too
		return
	}
	for id, e := range of {
		if err != nil {
			s.loads.fetch(e)
		} else if n := inboxes[id]; n != nil {
			e.deliver(n)
		}
	}
}

// apply tells executions what their rows say, and returns those that something reached.
func (s *Session) apply(states []store.HeldRunState) (woken []uuid.UUID) {
	for _, st := range states {
		s.mu.Lock()
		e := s.executing[st.RunID]
		s.mu.Unlock()
		switch {
		case e == nil || e.run.Lease != st.Lease:
		case st.Holds:
			e.setTerm(st.Term)
			if st.Cancel {
				e.cancelRequested(st.Deadline)
			}
			if e.isBehind(st.Wakeups) {
				woken = append(woken, st.RunID)
			}
		case st.Status == store.Cancelled:
			e.stop(stopCancelled, errCancelled)
		default:
			e.stop(stopLost, ErrLeaseLost)
		}
	}
	return woken
}
