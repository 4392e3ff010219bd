package engine

import (
	"sync"
	"time"
)

// A standing is a worker's knowledge of whether others may take it for dead. The zero standing is for a session that no
// failure detector watches. See doc_leases.go.
type standing struct {
	// Set by heartbeater.begin, before the session executes anything.
	maxSilence time.Duration // how long the worker may go without an answered heartbeat; zero: for ever
	grace      time.Duration // how long it may go without the watched connection; zero: the connection is not evidence

	mu      sync.Mutex // guards the fields below
	sent    time.Time  // when the last answered heartbeat was sent
	watched bool       // that heartbeat named the connection, so the failure detector watches it. Set by answered.
	heard   time.Time  // when the last message was sent whose answer proved that the server has the connection
	// when the connection was lost; zero while it is there or not watched. Set by connectionLost, reset by answered,
	// hear and forgetLoss.
	lost time.Time
}

// hear records that the server has the connection: it answered a message that was sent at that time. So the connection
// is not lost, although a doubt may have been recorded.
func (s *standing) hear(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.heard) {
		s.heard, s.lost = sent, time.Time{}
	}
}

// lastSent returns when the last answered heartbeat was sent.
func (s *standing) lastSent() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// silent reports whether the connection may have been lost for so long that others take the worker for dead. A run
// claimed later than the last sign of the connection is not affected before the same time has passed since its claim.
func (s *standing) silent(now, claimed time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.heard
	if claimed.After(last) {
		last = claimed
	}
	return s.watched && past(now, last.Add(s.grace))
}

// answered records that a heartbeat sent at that time was answered. watched says that it named the connection.
func (s *standing) answered(sent time.Time, watched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.watched, s.heard, s.lost = sent, watched && s.grace > 0, sent, time.Time{}
}

// connectionLost records that the connection was lost, unless it is recorded already. The time of the loss is when the
// server last answered over it, or, if that is longer than grace before at, at.
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

// forgetLoss forgets that the connection was lost: the server itself went down, and a restarted server does not miss
// it.
func (s *standing) forgetLoss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Time{}
}

// ends returns when others may begin to take the worker for dead, and why.
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

// past reports whether now is after t by either clock; this process has read both times. The monotonic clock stands
// still while the system is suspended, and the wall clock may be set.
func past(now, t time.Time) bool { return now.After(t) || now.Round(0).After(t.Round(0)) }
