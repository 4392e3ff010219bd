package engine

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// Refresh marks the runs in ids for a refresh, because their rows have changed; nil marks all. It does not block. If
// ids has the worker's own ID, somebody has asked it to drain or has declared it dead: Refresh asks for a heartbeat,
// which reads the worker's row. See doc_wakeups.go.
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
		for id := range s.reserved {
			s.reserved[id] = true
		}
	}
	for _, id := range ids {
		if s.executing[id] != nil {
			s.stale[id] = true
		}
		if s.claiming {
			s.staleEarly[id] = true
		}
		if _, ok := s.reserved[id]; ok {
			s.reserved[id] = true
		}
	}
	if len(s.stale) > 0 {
		goroutine.Signal(s.refreshes)
	}
}

// refreshLoop reads the rows of the runs that are marked as stale, until stop is closed.
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
		if len(held) > 0 {
			s.readStates(held)
		}
	}
}

// readStates reads the rows of runs, and passes what has changed to their executions.
func (s *Session) readStates(held []store.HeldRun) {
	states, err := s.store.Leases.HeldStates(s.background, s.store.Pool(), held, s.refusesOne)
	if err != nil {
		s.databaseTrouble(err) // the next heartbeat refreshes, too
		return
	}
	s.fetch(s.apply(states))
}

// fetch reads the inboxes of runs and delivers them to their executions. If one query for all fails, each run's inbox
// is read alone, beside the refreshes.
func (s *Session) fetch(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	// Look the executions up before the query. A later execution of the same run could get a message that the earlier
	// one was about to take.
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
	inboxes, err := s.store.Messages.Inbox(ctx, ids)
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

// apply passes the rows' states to their executions, and returns the runs that have new messages or ended children.
func (s *Session) apply(states []store.HeldRunState) (woken []uuid.UUID) {
	for _, st := range states {
		s.mu.Lock()
		e := s.executing[st.RunID]
		s.mu.Unlock()
		switch {
		case e == nil || e.Lease != st.Lease:
		case st.Holds:
			e.setTerm(st.Term)
			if st.Cancel {
				e.cancelRequested(st.Deadline)
			}
			e.setPaused(st.Paused)
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

// hasNews reads the row of the execution's run, and passes its state to the execution.
func (s *Session) hasNews(e *execution) { s.readStates([]store.HeldRun{e.held()}) }
