package starts

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/store"
)

// Bounds of one statement. The bytes are those of the inputs; a larger input has a statement of its own.
const (
	mostTogether = 1000
	mostBytes    = 8 << 20
)

// A start is one caller's run in the batcher. Both the caller and the flush move its state, with compare-and-swap.
type start struct {
	run   *store.NewRun
	ctx   context.Context // the caller's
	state atomic.Int32
	told  chan bool // of capacity one: whether the run was stored. If not, the caller starts it by itself.
}

// The states of a start.
const (
	waiting int32 = iota // nothing was sent
	sent                 // the run was sent
	settled              // the flush has told the caller
	left                 // the caller has given up
)

// shares reports whether the run can be inserted together with others: whether it exists already can then be found out
// afterwards.
func (s *Starts) shares(r *store.NewRun) bool {
	return r.IfActive == "" && r.IfEnded == "" && len(r.Messages) == 0 && !s.held.has(r.ExternalID)
}

// together inserts the run together with those of other callers, and reports whether that stored it. If not, and there is no
// error, the caller starts it by itself: that finds out why. If ctx ends before the run is sent, nothing is started. After that
// only a deadline ends the wait: see store.Start.
func (s *Starts) together(ctx context.Context, run *store.NewRun) (stored bool, err error) {
	p := &start{run: run, ctx: ctx, told: make(chan bool, 1)}
	s.batcher.Add(p)
	select {
	case stored = <-p.told:
		return stored, nil
	case <-ctx.Done():
	}
	if p.state.CompareAndSwap(waiting, left) {
		return false, fmt.Errorf("nothing was started: %w", ctx.Err())
	}
	var over <-chan time.Time
	if t, ok := ctx.Deadline(); ok {
		over = time.After(time.Until(t))
	}
	select {
	case stored = <-p.told:
	case <-over:
		if p.state.CompareAndSwap(sent, left) {
			return false, fmt.Errorf("no answer came in time, so the run may have been started: %w", context.DeadlineExceeded)
		}
		stored = <-p.told
	}
	return stored, nil
}

// flush inserts the runs of the batcher, in statements of mostBytes.
func (s *Starts) flush(all []*start) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size+len(all[n].run.Input) <= mostBytes) {
			size += len(all[n].run.Input)
			n++
		}
		s.insert(all[:n])
		all = all[n:]
	}
}

// insert inserts the runs with one statement. If that fails, each caller starts its run by itself, as if there were no others:
// so every caller gets its own error, and a lost answer is looked for as ever. Only if the statement waited for a lock, the
// runs without an ID, which cannot have caused that, stay together.
func (s *Starts) insert(some []*start) {
	stored, err := s.store.StartTogether(context.WithoutCancel(some[0].ctx), func() []*store.NewRun {
		var runs []*store.NewRun
		for _, p := range some {
			if p.state.CompareAndSwap(waiting, sent) || p.state.Load() == sent {
				runs = append(runs, p.run)
			}
		}
		return runs
	})
	if store.Locked(err) {
		var rest []*start
		for _, p := range some {
			if id := p.run.ExternalID; id == "" {
				rest = append(rest, p)
			} else {
				s.held.add(id)
				s.tell(p, false)
			}
		}
		if len(rest) > 0 && len(rest) < len(some) {
			s.insert(rest)
			return
		}
		some = rest
	}
	for _, p := range some {
		s.tell(p, stored[p.run.RunID])
	}
}

// tell tells the caller whether its run was stored. If the caller has given up meanwhile, a stored run is announced here.
func (s *Starts) tell(p *start, stored bool) {
	if p.state.Swap(settled) != left {
		p.told <- stored
		return
	}
	if stored {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()                                 // nobody waits for the notification
		_ = s.hints.Due(ctx, nil, dueRun(p.run)) // fails only in a transaction
	}
}
