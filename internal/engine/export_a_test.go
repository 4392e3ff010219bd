package engine

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Extending is the name of the operation that extends leases, as the log has it.
const Extending = extending

// Fence ends all that s executes, as its heartbeater does when it has been silent for too long because of why.
func Fence(s *Session, why string) { newHeartbeater(s).fence(why) }

// Register registers the worker of s, which does not run, and returns the backend of the heartbeater's connection.
func Register(ctx context.Context, s *Session) (backend int, end func(), err error) {
	h := newHeartbeater(s)
	if err := h.begin(ctx); err != nil {
		return 0, nil, err
	}
	return int(h.conn.PgConn().PID()), h.end, nil
}

// ClaimsWithin reports whether the claim loop claims within d although nothing wakes it.
func ClaimsWithin(s *Session, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.nextClaim) <= d
}

// Listens reports whether the process of s has a connection over which notifications come.
func Listens(s *Session) bool { return s.cfg.Hints.Listening() }

// HoldUp keeps the execution of the run from ending until release is called.
func HoldUp(s *Session, run uuid.UUID) (release func()) {
	s.mu.Lock()
	e := s.executing[run]
	s.mu.Unlock()
	e.mu.Lock()
	return sync.OnceFunc(e.mu.Unlock)
}

// HasStoppedAll reports whether all that s executed was stopped.
func HasStoppedAll(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stops > 0
}

// Silence makes s as if the database had last answered it, and failed it, so long ago.
func Silence(s *Session, d time.Duration) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.heard = time.Now().Add(-d)
	s.troubled.Store(new(time.Now().Add(-d)))
}

// DatabaseTrouble notes what the database failed s with.
func DatabaseTrouble(s *Session, err error) { s.databaseTrouble(err) }

// Heard notes an answer of the database that has just come.
func Heard(s *Session) { s.clock.set(time.Now(), time.Now(), time.Now()) }
