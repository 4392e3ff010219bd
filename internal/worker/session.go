package worker

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/standing"
)

// A Session is one call of Worker.Run: its claim loop and its executions. It hears what its runs tell their host (see
// holder), and what flushes make of them (see flushes).
type Session struct {
	*standing.Worker
	*roster
	*claimer
	*news
	*watchdog
	cfg    Config
	limits *limits.Limits
	tally  tally
	writes *flusher // what the runs record
	loads  *loader  // reads the histories of claimed runs

	// claims and reservations under way, the resolving of those without an answer, and what yields orphans
	unfinished sync.WaitGroup
	stopClaims context.CancelFunc // begins the drain

	// guards what its parts say that it guards. It is locked after an execution's mutex, never before one.
	mu         sync.Mutex
	poolClosed bool // the application has closed the pool. Set by poolIsClosed, for good.
}

// Stuck returns for how long the database has given neither answer nor error, and whether that is too long to be
// explained: heartbeats are sent all the time, and each of them ends soon.
func (s *Session) Stuck() (silence time.Duration, stuck bool) {
	last := s.Clock.Heard()
	if troubled := s.Troubled(); troubled.After(last) {
		last = troubled
	}
	silence = time.Since(last)
	// three times the longest might overflow
	return silence, silence/3 > max(20*time.Second, s.cfg.longestGap())
}

// Outage returns the state of the database's outage, as the session sees it.
func (s *Session) Outage() *outage.Outage { return s.Away }

// Failures returns the operations that fail now although the database answers.
func (s *Session) Failures() []outage.Failure { return s.Failing.Now() }

// ended is called when the run's last write is written, or is given up. The session forgets the run.
func (s *Session) ended(h *held, over bool) {
	s.loads.releaseMemory(h)
	s.forget(h, over)
}

func (s *Session) lock()   { s.mu.Lock() }
func (s *Session) unlock() { s.mu.Unlock() }
