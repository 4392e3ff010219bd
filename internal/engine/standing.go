package engine

import (
	"sync"
	"time"
)

// A standing is what a worker knows of whether the fleet may take it for dead. The zero standing is that of a session
// which nobody watches.
type standing struct {
	maxSilence time.Duration // the worker may be silent for so long; see heartbeater.begin
	grace      time.Duration // and go without the connection that the fleet watches for so long; zero: nobody concludes from it

	mu      sync.Mutex
	sent    time.Time // the last heartbeat that was answered
	watched bool      // it announced the connection
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

// connectionLost notes that the connection was lost, unless that is known: when it was last heard of, if it was tried again and again
// since then, else at the time given.
func (s *standing) connectionLost(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.After(at.Add(-s.grace)) {
		at = s.heard
	}
	if s.watched && s.lost.IsZero() {
		s.lost = at
	}
}

// forgetLoss forgets that the connection was lost: the server itself went down, and a restarted server does not miss it.
func (s *standing) forgetLoss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Time{}
}

// ends returns until when nobody takes the worker for dead, and why somebody may then.
func (s *standing) ends() (until time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, why = s.sent.Add(s.maxSilence), "no heartbeat was answered for too long"
	if lost := s.lost.Add(s.grace); !s.lost.IsZero() && lost.Before(until) {
		until, why = lost, "the connection of the heartbeats is lost, and no other was had in time"
	}
	return until, why
}

// presumedDead returns why others may take the worker for dead by now; "" if they do not.
func (s *standing) presumedDead(now time.Time) string {
	if until, why := s.ends(); s.maxSilence > 0 && past(now, until) {
		return why
	}
	return ""
}

// past reports whether t is over by now; this process has read both. The monotonic clock stands still while the system is
// suspended, and the wall clock may be set: what either says counts.
func past(now, t time.Time) bool { return now.After(t) || now.Round(0).After(t.Round(0)) }
