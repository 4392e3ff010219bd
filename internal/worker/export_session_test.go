package worker

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Extending is the name that logs have for the operation of extending leases.
const Extending = extending

// Limits that tests come to.
const (
	MaxRecoveries = maxRecoveries
	SharedEach    = sharedEach
)

// HardHistories returns how many runs the session remembers as too large or too slow for the shared queries.
func HardHistories(s *Session) int {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	return len(s.loads.hard)
}

// Fence fences s for the reason why, as its heartbeater does when no heartbeat was answered for too long.
func Fence(s *Session, why string) { newHeartbeater(s).fence(why) }

// Register registers the worker of s, which does not run, and returns the process ID of the heartbeater's backend.
func Register(ctx context.Context, s *Session) (backend int, end func(), err error) {
	h := newHeartbeater(s)
	if err := h.begin(ctx); err != nil {
		return 0, nil, err
	}
	return int(h.conn.PgConn().PID()), h.end, nil
}

// ClaimsWithin reports whether the claim loop claims within d although nothing wakes it.
func ClaimsWithin(s *Session, d time.Duration) bool {
	s.lock()
	defer s.unlock()
	return !s.claims.Drained(time.Now().Add(d))
}

// Listens reports whether the process of s has a connection over which notifications come.
func Listens(s *Session) bool { return s.cfg.Hints.Listening() }

// HoldUp keeps the execution of the run from ending until release is called.
func HoldUp(s *Session, run uuid.UUID) (release func()) {
	h := s.of(run)
	h.Lock()
	return sync.OnceFunc(h.Unlock)
}

// HasStoppedAll reports whether s has stopped all of its executions.
func HasStoppedAll(s *Session) bool {
	s.lock()
	defer s.unlock()
	return s.stops > 0
}

// Silence sets the times when the database last answered s, and when it last failed s, to d ago.
func Silence(s *Session, d time.Duration) { s.SilentSince(time.Now().Add(-d)) }

// DatabaseTrouble makes s note an error of the database.
func DatabaseTrouble(s *Session, err error) { s.Trouble(err) }

// Heard makes s note an answer of the database that has just come.
func Heard(s *Session) { s.Clock.Set(time.Now(), time.Now(), time.Now()) }

// Calm reports whether runs may begin in s as they are started: no due run waits, as far as s knows, and no claim is to
// come soon.
func Calm(s *Session) bool {
	s.lock()
	defer s.unlock()
	return s.claims.Drained(time.Now().Add(time.Minute))
}

// Slots returns how many slots of s are free.
func Slots(s *Session) int {
	s.lock()
	defer s.unlock()
	return s.claims.FreeSlots()
}

// Drains reports whether s drains.
func Drains(s *Session) bool {
	s.lock()
	defer s.unlock()
	return s.draining
}

// SearchStrays makes the session, which runs, search for strays among the leases that are at least that old.
func SearchStrays(s *Session, age time.Duration) {
	s.lock()
	s.orphans.strays.age = age
	s.unlock()
	s.orphans.strays.wake <- struct{}{}
}
