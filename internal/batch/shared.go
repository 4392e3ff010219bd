package batch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A Shared is one caller's part of a flush that answers each caller with an R. Both the caller and the flush move its
// state, with compare-and-swap.
type Shared[R any] struct {
	ctx   context.Context // the caller's
	state atomic.Int32
	told  chan R // of capacity one
}

// The states of a Shared.
const (
	waiting int32 = iota // nothing was sent
	sent                 // it was sent
	settled              // the flush has told the caller
	left                 // the caller has given up
)

var (
	// ErrUnsent reports that the caller's context has ended before its part was sent.
	ErrUnsent = errors.New("it was not sent")
	// ErrUnanswered reports that the caller's deadline has passed before there was an answer.
	ErrUnanswered = errors.New("no answer came in time")
)

// NewShared returns the part of a caller with this context.
func NewShared[R any](ctx context.Context) *Shared[R] {
	return &Shared[R]{ctx: ctx, told: make(chan R, 1)}
}

// Context returns the caller's context.
func (s *Shared[R]) Context() context.Context { return s.ctx }

// Send reports whether the part is to be sent: the caller has not given up. It may be called again.
func (s *Shared[R]) Send() bool {
	return s.state.CompareAndSwap(waiting, sent) || s.state.Load() == sent
}

// Tell tells the caller the answer. It reports whether the caller had not given up.
func (s *Shared[R]) Tell(r R) bool {
	if s.state.Swap(settled) == left {
		return false
	}
	s.told <- r
	return true
}

// Wait returns the answer. If the context ends before the part was sent, Wait returns ErrUnsent. After that only a
// deadline ends the wait, as for every statement: then it returns ErrUnanswered.
func (s *Shared[R]) Wait() (r R, err error) {
	select {
	case r = <-s.told:
		return r, nil
	case <-s.ctx.Done():
	}
	if s.state.CompareAndSwap(waiting, left) {
		return r, ErrUnsent
	}
	var over <-chan time.Time
	if t, ok := s.ctx.Deadline(); ok {
		over = time.After(time.Until(t))
	}
	select {
	case r = <-s.told:
	case <-over:
		if s.state.CompareAndSwap(sent, left) {
			return r, ErrUnanswered
		}
		r = <-s.told
	}
	return r, nil
}
