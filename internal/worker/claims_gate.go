package worker

import "sync"

// A gate says whether a session claims runs.
type gate struct {
	drains chan struct{} // closed when the drain begins

	mu *sync.Mutex // the session's. It guards the fields below.
	// others may take the worker for dead, so it claims nothing. Set by fence and rename, reset by lift.
	fenced bool
	// the worker claims nothing any more. Set by shut, for good.
	draining bool
}

func newGate(mu *sync.Mutex) *gate { return &gate{mu: mu, drains: make(chan struct{})} }

// openLocked reports whether the session claims.
func (g *gate) openLocked() bool { return !g.draining && !g.fenced }

func (g *gate) isFenced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced
}

// drainBegins returns a channel that is closed when the drain begins.
func (g *gate) drainBegins() <-chan struct{} { return g.drains }

// shut makes the session claim nothing any more. It reports whether that is new.
func (g *gate) shut() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first, g.draining = !g.draining, true
	return first
}
