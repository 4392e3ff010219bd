package worker

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// Refresh marks the runs in ids for a refresh, because their rows have changed; nil marks all. It does not block. If
// ids has the worker's own ID, it was asked to drain or declared dead: Refresh asks for a heartbeat,
// which reads the worker's row. See doc_wakeups.go.
func (s *Session) Refresh(ids []uuid.UUID) {
	s.lock()
	defer s.unlock()
	if ids == nil || slices.Contains(ids, s.ID()) {
		goroutine.Signal(s.Heartbeats)
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
		s.lock()
		var held []store.HeldRun
		for id := range s.stale {
			if h := s.executing[id]; h != nil {
				held = append(held, h.lease())
			}
		}
		clear(s.stale)
		s.unlock()
		if len(held) > 0 {
			s.readStates(held)
		}
	}
}

// readStates reads the rows of runs, and passes what has changed to their executions.
func (s *Session) readStates(held []store.HeldRun) {
	states, err := s.Store.Leases.HeldStates(context.Background(), s.Store.Pool(), held, s.RefusesOne)
	if err != nil {
		s.Trouble(err) // the next heartbeat refreshes, too
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
	of := make(map[uuid.UUID]*held, len(ids))
	s.lock()
	for _, id := range ids {
		if h := s.executing[id]; h != nil {
			of[id] = h
		}
	}
	s.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	inboxes, err := s.Store.Messages.Inbox(ctx, ids)
	if err != nil && !s.Readable() {
		s.Trouble(err) // the next heartbeat refreshes, too
		return
	}
	for id, h := range of {
		if err != nil {
			s.loads.fetch(h)
		} else if n := inboxes[id]; n != nil {
			h.run.Deliver(n, nil)
		}
	}
}

// apply passes the rows' states to their runs, and returns the runs that have new messages or ended children.
func (s *Session) apply(states []store.HeldRunState) (woken []uuid.UUID) {
	for _, st := range states {
		s.lock()
		h := s.executing[st.RunID]
		s.unlock()
		if h != nil && h.Lease == st.Lease && h.run.Update(st) {
			woken = append(woken, st.RunID)
		}
	}
	return woken
}

// hasNews reads the run's row, and passes its state to the run.
func (s *Session) hasNews(h *held) { s.readStates([]store.HeldRun{h.lease()}) }
