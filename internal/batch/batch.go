// Package batch combines the writes of many goroutines into few transactions.
package batch

import (
	"cmp"
	"runtime"
	"sync"
)

// Config says how a Batcher flushes.
type Config[T any] struct {
	// Flush writes items, which were added in this order. It may change the slice but must not keep it: its memory is
	// used again. Each item must have its own way to notify those who wait for it.
	Flush func(items []T)

	// MaxItems is the largest number of items in one flush. Zero means 1,000.
	MaxItems int

	// Flushes is how many flushes may run at once. With more than one, each still takes the oldest items, but a later
	// one may end first. Zero means 1.
	Flushes int
}

// A Batcher gathers items from many goroutines into shared flushes. An idle Batcher flushes at once. A busy one puts
// all items that arrive meanwhile into its next flush. It has no goroutine while idle, so it need not be closed. It is
// safe for concurrent use.
type Batcher[T any] struct {
	cfg Config[T]

	mu       sync.Mutex
	pending  []T // oldest first
	spare    []T // an emptied slice, which becomes pending at the next flush
	flushers int // goroutines in run; at least one while an item is pending
	idle     sync.Cond
}

// New returns a Batcher that flushes as cfg says.
func New[T any](cfg Config[T]) *Batcher[T] {
	cfg.MaxItems = cmp.Or(cfg.MaxItems, 1000)
	cfg.Flushes = cmp.Or(cfg.Flushes, 1)
	b := &Batcher[T]{cfg: cfg}
	b.idle.L = &b.mu
	return b
}

// Add appends item and returns without waiting for a flush.
func (b *Batcher[T]) Add(item T) {
	b.mu.Lock()
	b.pending = append(b.pending, item)
	start := b.flushers < b.cfg.Flushes
	if start {
		b.flushers++
	}
	b.mu.Unlock()
	if start {
		go b.run()
	}
}

// Wait returns once nothing is pending or being flushed.
func (b *Batcher[T]) Wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.flushers > 0 {
		b.idle.Wait()
	}
}

// run flushes until nothing is pending.
func (b *Batcher[T]) run() {
	for {
		b.gather()
		items := b.take()
		if items == nil {
			return
		}
		b.cfg.Flush(items)
		b.recycle(items)
	}
}

// gather yields the processor as long as that brings more items. The goroutines that the last flush released are about
// to add their next items, and the flush would start with the first of these: 100 goroutines that add and wait in a
// loop get flushes of 50 items without yielding, of 63 if it yields once, of 100 with this.
func (b *Batcher[T]) gather() {
	const most = 4 // yields: each may take until all other goroutines have run once
	before := b.waiting()
	for range most {
		runtime.Gosched()
		now := b.waiting()
		if now <= before || now >= b.cfg.MaxItems {
			return
		}
		before = now
	}
}

func (b *Batcher[T]) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// take removes the items of the next flush, or ends the flusher that calls it and returns nil.
func (b *Batcher[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		b.flushers--
		if b.flushers == 0 {
			b.idle.Broadcast()
		}
		return nil
	}
	if len(b.pending) <= b.cfg.MaxItems {
		items := b.pending
		b.pending, b.spare = b.spare, nil
		return items
	}
	n := b.cfg.MaxItems
	items := b.pending[:n:n] // the rest stays where it is: nothing is copied
	b.pending = b.pending[n:]
	return items
}

// recycle clears the slice of a flush and keeps it for the next.
func (b *Batcher[T]) recycle(items []T) {
	clear(items)
	if cap(items) > 2*b.cfg.MaxItems {
		return // a backlog made it this large
	}
	b.mu.Lock()
	if cap(items) > cap(b.spare) {
		b.spare = items[:0]
	}
	b.mu.Unlock()
}
