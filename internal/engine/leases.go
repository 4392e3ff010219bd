package engine

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// What a worker may do under a lease is asked here, each time before it calls code of the application. A timer would not
// do: after the process was frozen, goroutines that are ready to run come before it.

// past reports whether t is over by now; this process has read both. The monotonic clock stands still while the system is
// suspended, and the wall clock may be set: what either says counts.
func past(now, t time.Time) bool { return now.After(t) || now.Round(0).After(t.Round(0)) }

// setTerm notes what the table says of the lease, unless a later question was answered before.
func (e *execution) setTerm(t store.Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.Asked.After(e.term.Asked) {
		e.term = t
	}
}

// mayNot says why the run may be another worker's by now; "" if it is this one's for certain.
func (e *execution) mayNot() string {
	if !e.mode.writes() {
		return ""
	}
	e.mu.Lock()
	ends := e.term.Ends
	e.mu.Unlock()
	now := time.Now()
	if past(now, ends) {
		return "the lease is over"
	}
	return e.env.standing.mayNot(now)
}

// exitUnlessHeld exits the goroutine if the execution has ended, and ends it if the run may be another worker's. While the
// worker does not hear from the server it waits: it hears again, or its executions end.
func (e *execution) exitUnlessHeld(step string) {
	e.exitIfStopped()
	for e.mode.writes() && e.env.standing.silent(time.Now(), e.run.Term.Asked) {
		goroutine.Signal(e.env.heartbeats)
		select {
		case <-e.done:
			e.exitIfStopped()
		case <-time.After(silentPause):
		}
	}
	if why := e.mayNot(); why != "" {
		e.log().Warn("kagzi: a step is not called, and the run is given back: another worker may hold it", "step", step, "because", why)
		e.stop(stopShutdown, ErrLeaseLost)
	}
	e.exitIfStopped()
}

// silentPause is how often a step that waits for the server to be heard looks again.
const silentPause = 50 * time.Millisecond

// extend gives the runs another timeout that are past half of theirs: a fast run never pays. One whose lease cannot be
// extended costs no other its own, and goes on until that is over.
func (s *Session) extend(ctx context.Context, db store.DB, states []store.HeldRunState) error {
	timeout := s.cfg.LeaseTimeout
	var late []store.HeldRun
	for _, st := range states {
		if st.Holds && st.Term.Ends.Sub(st.Term.Asked) < timeout/2 {
			late = append(late, store.HeldRun{RunID: st.RunID, Lease: st.Lease})
		}
	}
	if len(late) == 0 || s.cfg.FixedLease {
		return nil
	}
	all := true
	terms, err := s.store.ExtendLeases(ctx, db, late, timeout, func(held store.HeldRun, err error) {
		all = false
		s.refusesOne(held, err)
	})
	for held, term := range terms {
		s.mu.Lock()
		e := s.executing[held.RunID]
		s.mu.Unlock()
		if e != nil && e.run.Lease == held.Lease {
			e.setTerm(term)
		}
	}
	if err == nil && all {
		s.failures.Over(s.logger(s.ID()), extending)
	}
	return err
}

const extending = "extend leases" // as the store names it in its errors

// A standing is what a worker knows of whether the fleet may take it for dead. The zero standing is that of a session
// which nobody watches.
type standing struct {
	patience time.Duration // the worker may be silent for so long; see heart.begin
	grace    time.Duration // and go without the connection that the fleet watches for so long; zero: nobody concludes from it

	mu      sync.Mutex
	sent    time.Time // the last heartbeat that was answered
	watched bool      // it told of the connection
	heard   time.Time // when was sent what was last answered over that connection, or told that the server has it
	lost    time.Time // that connection; zero while it is there, or nobody watches it
}

// hear notes that the server has the connection, as it says in answer to what was sent then.
func (s *standing) hear(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.heard) {
		s.heard = sent
	}
}

// silent reports whether the server may have gone without the connection for so long that others conclude from it. Nobody
// concludes anything of what was claimed since then.
func (s *standing) silent(now, claimed time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.heard
	if claimed.After(last) {
		last = claimed
	}
	return s.watched && past(now, last.Add(s.grace))
}

// answered notes that the heartbeat which was sent then was answered.
func (s *standing) answered(sent time.Time, watched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.watched, s.heard, s.lost = sent, watched && s.grace > 0, sent, time.Time{}
}

// miss notes that the connection was lost, unless that is known: when it was last heard of, if it was tried again and again
// since then, else at the time given.
func (s *standing) miss(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.After(at.Add(-s.grace)) {
		at = s.heard
	}
	if s.watched && s.lost.IsZero() {
		s.lost = at
	}
}

// excuse forgets that the connection was lost: it went with the server, and one that was started again does not miss it.
func (s *standing) excuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Time{}
}

// ends returns until when nobody takes the worker for dead, and why somebody may then.
func (s *standing) ends() (until time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, why = s.sent.Add(s.patience), "no heartbeat was answered for too long"
	if lost := s.lost.Add(s.grace); !s.lost.IsZero() && lost.Before(until) {
		until, why = lost, "the connection of the heartbeats is lost, and no other was had in time"
	}
	return until, why
}

// mayNot says why the worker may be taken for dead by now; "" if nobody does.
func (s *standing) mayNot(now time.Time) string {
	if until, why := s.ends(); s.patience > 0 && past(now, until) {
		return why
	}
	return ""
}
