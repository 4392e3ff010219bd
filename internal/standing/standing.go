package standing

import (
	"sync"
	"time"
)

// A Standing is a worker's knowledge of whether others may take it for dead. The zero Standing is for a session that no
// failure detector watches. See doc_leases.go.
type Standing struct {
	// Set by Watch, and never again.
	maxSilence time.Duration // how long the worker may go without an answered heartbeat; zero: for ever
	grace      time.Duration // how long it may go without the watched connection; zero: the connection is not evidence

	mu      sync.Mutex // guards the fields below
	sent    time.Time  // when the last answered heartbeat was sent
	watched bool       // that heartbeat named the connection, so the failure detector watches it. Set by Answered.
	heard   time.Time  // when the last message was sent whose answer proved that the server has the connection
	// when the connection was lost; zero while it is there or not watched. Set by ConnectionLost, reset by Answered,
	// Hear and ForgetLoss.
	lost time.Time
}

// Watch says that others watch the worker: it may go without an answered heartbeat for maxSilence, and without the
// watched connection for grace, or without a limit if that is zero. It is called before the session executes anything.
func (s *Standing) Watch(maxSilence, grace time.Duration) { s.maxSilence, s.grace = maxSilence, grace }

// Grace returns how long the worker may go without the watched connection; zero: the connection is not evidence.
func (s *Standing) Grace() time.Duration { return s.grace }

// Hear records that the server has the connection: it answered a message that was sent at that time. So the connection
// is not lost, although a doubt may have been recorded.
func (s *Standing) Hear(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.heard) {
		s.heard, s.lost = sent, time.Time{}
	}
}

// LastSent returns when the last answered heartbeat was sent.
func (s *Standing) LastSent() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Silent reports whether the connection may have been lost for so long that others take the worker for dead. A run
// claimed later than the last sign of the connection is not affected before the same time has passed since its claim.
func (s *Standing) Silent(now, claimed time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.heard
	if claimed.After(last) {
		last = claimed
	}
	return s.watched && Past(now, last.Add(s.grace))
}

// Answered records that a heartbeat sent at that time was answered. watched says that it named the connection.
func (s *Standing) Answered(sent time.Time, watched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.watched, s.heard, s.lost = sent, watched && s.grace > 0, sent, time.Time{}
}

// ConnectionLost records that the connection was lost, unless it is recorded already. The time of the loss is when the
// server last answered over it, or, if that is longer than grace before at, at.
func (s *Standing) ConnectionLost(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.After(at.Add(-s.grace)) {
		at = s.heard
	}
	if s.watched && s.lost.IsZero() {
		s.lost = at
	}
}

// ForgetLoss forgets that the connection was lost: the server itself went down, and a restarted server does not miss
// it.
func (s *Standing) ForgetLoss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Time{}
}

// Ends returns when others may begin to take the worker for dead, and why.
func (s *Standing) Ends() (until time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, why = s.sent.Add(s.maxSilence), "no heartbeat was answered for too long"
	if lost := s.lost.Add(s.grace); !s.lost.IsZero() && lost.Before(until) {
		until, why = lost, "the connection of the heartbeats is lost, and no other was had in time"
	}
	return until, why
}

// PresumedDead returns why others may take the worker for dead by now; "" if they do not.
func (s *Standing) PresumedDead(now time.Time) string {
	if until, why := s.Ends(); s.maxSilence > 0 && Past(now, until) {
		return why
	}
	return ""
}

// Past reports whether now is after t by either clock; this process has read both times. The monotonic clock stands
// still while the system is suspended, and the wall clock may be set.
func Past(now, t time.Time) bool { return now.After(t) || now.Round(0).After(t.Round(0)) }
