package batch

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A Shared statement sends the items of many callers, and answers each caller with an R. It is safe for concurrent use.
type Shared[T, R any] struct {
	cfg     SharedConfig[T, R]
	batcher *Batcher[*Part[T, R]]
}

// SharedConfig says what a Shared statement does.
type SharedConfig[T, R any] struct {
	What, Done string              // one item and what becomes of it, for errors: "the run", "started"
	Size       func(T) int         // of an item in bytes
	Send       func([]*Part[T, R]) // sends the parts, and tells each caller
}

// Bounds of one statement. A larger item has a statement of its own.
const (
	mostShared      = 1000
	mostSharedBytes = 8 << 20
)

// NewShared returns a Shared statement. It starts nothing.
func NewShared[T, R any](cfg SharedConfig[T, R]) *Shared[T, R] {
	s := &Shared[T, R]{cfg: cfg}
	s.batcher = New(Config[*Part[T, R]]{Flush: s.flush, MaxItems: mostShared})
	return s
}

// flush sends the parts, in statements of mostSharedBytes.
func (s *Shared[T, R]) flush(all []*Part[T, R]) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size+s.cfg.Size(all[n].Item) <= mostSharedBytes) {
			size += s.cfg.Size(all[n].Item)
			n++
		}
		s.cfg.Send(all[:n])
		all = all[n:]
	}
}

// Do sends the item together with those of other callers, and returns its answer. If ctx ends before the item is sent,
// nothing is done. After that only a deadline ends the wait, as for every statement.
func (s *Shared[T, R]) Do(ctx context.Context, item T) (r R, err error) {
	p := &Part[T, R]{Item: item, ctx: ctx, told: make(chan R, 1)}
	s.batcher.Add(p)
	select {
	case r = <-p.told:
		return r, nil
	case <-ctx.Done():
	}
	if p.state.CompareAndSwap(waiting, left) {
		return r, fmt.Errorf("nothing was %s: %w", s.cfg.Done, ctx.Err())
	}
	var over <-chan time.Time
	if t, ok := ctx.Deadline(); ok {
		over = time.After(time.Until(t))
	}
	select {
	case r = <-p.told:
	case <-over:
		if p.state.CompareAndSwap(sent, left) {
			return r, fmt.Errorf("no answer came in time, so %s may have been %s: %w", s.cfg.What, s.cfg.Done,
				context.DeadlineExceeded)
		}
		r = <-p.told
	}
	return r, nil
}

// Wait returns once nothing is pending or being sent.
func (s *Shared[T, R]) Wait() { s.batcher.Wait() }

// A Part is one caller's part of a Shared statement. Both the caller and the statement move its state, with
// compare-and-swap.
type Part[T, R any] struct {
	Item T

	ctx   context.Context // the caller's
	state atomic.Int32
	told  chan R // of capacity one
}

// The states of a Part.
const (
	waiting int32 = iota // nothing was sent
	sent                 // it was sent
	settled              // the statement has told the caller
	left                 // the caller has given up
)

// Context returns the caller's context.
func (p *Part[T, R]) Context() context.Context { return p.ctx }

// Send reports whether the part is to be sent: the caller has not given up. It may be called again.
func (p *Part[T, R]) Send() bool {
	return p.state.CompareAndSwap(waiting, sent) || p.state.Load() == sent
}

// Tell tells the caller the answer. It reports whether the caller had not given up.
func (p *Part[T, R]) Tell(r R) bool {
	if p.state.Swap(settled) == left {
		return false
	}
	p.told <- r
	return true
}
