package localpg

import (
	"context"
	"sync"
	"time"
)

// startTimeout bounds the start of what a test binary shares.
const startTimeout = time.Minute

// A Shared is what all tests of a binary use, started by the first that asks.
type Shared[S any] struct {
	Start func(context.Context) (S, error)

	mu      sync.Mutex
	started bool
	it      S
	err     error
}

// Get returns it. A failure is kept, so that it costs one test its time and not all.
func (s *Shared[S]) Get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.it, s.err = s.Start(ctx)
		s.started = true
	}
	return s.it, s.err
}

// Stop calls stop with it, if it was started.
func (s *Shared[S]) Stop(stop func(S) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.err != nil {
		return nil
	}
	s.started = false
	return stop(s.it)
}
