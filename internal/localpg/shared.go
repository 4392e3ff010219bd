package localpg

import (
	"context"
	"sync"
	"time"
)

// startTimeout bounds the start of a shared resource.
const startTimeout = 3 * time.Minute

// A Shared is a resource that all tests of a binary share. The first test that asks for it starts it.
type Shared[S any] struct {
	Start func(context.Context) (S, error)

	mu      sync.Mutex
	started bool
	value   S
	err     error
}

// Get returns the resource. It also keeps a failure to start, so that only one test waits for it.
func (s *Shared[S]) Get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.value, s.err = s.Start(ctx)
		s.started = true
	}
	return s.value, s.err
}

// Stop calls stop with the resource, if it was started.
func (s *Shared[S]) Stop(stop func(S) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.err != nil {
		return nil
	}
	s.started = false
	return stop(s.value)
}
