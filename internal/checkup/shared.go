package checkup

import (
	"context"
	"sync"
	"time"
)

// fresh is for how long an answer serves further callers, so that many of them cost the database as much as one.
const fresh = time.Second

// A Shared gives concurrent callers one answer. The zero value works. It is safe for concurrent use.
type Shared[T any] struct {
	mu   sync.Mutex
	last *answer[T] // the newest one, which may still be in progress; under mu
}

// An answer is in progress until done is closed.
type answer[T any] struct {
	done  chan struct{}
	value T         // written before done is closed, read after
	ended time.Time // when the value was found; zero while in progress; under the Shared's mu
}

// Get returns an answer that is at most a second old, the one that is in progress, or what find returns; false if ctx
// ended first. The answer does not end with the caller who finds it, because others wait for it. If find panics, they
// get instead.
func (s *Shared[T]) Get(ctx context.Context, instead T, find func(context.Context) T) (value T, ok bool) {
	s.mu.Lock()
	a := s.last
	mine := a == nil || !a.ended.IsZero() && time.Since(a.ended) >= fresh
	if mine {
		a = &answer[T]{done: make(chan struct{}), value: instead}
		s.last = a
	}
	s.mu.Unlock()
	if !mine {
		select {
		case <-a.done:
			return a.value, true
		case <-ctx.Done():
			return value, false
		}
	}
	defer func() {
		s.mu.Lock()
		a.ended = time.Now()
		s.mu.Unlock()
		close(a.done)
	}()
	a.value = find(context.WithoutCancel(ctx))
	return a.value, true
}
