package engine

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// longestLimitWait is how long a step waits for a slot until it asks again although nobody has called its run.
const longestLimitWait = 5 * time.Minute

// A heldPermit is the permit of the attempt that is under way or about to begin.
type heldPermit struct {
	line   *limitLine
	permit *permit
	event  event // an answer has come, or the run was called. The execution's mutex guards it.
}

// acquire waits until the limit of the step, if it has one, lets the attempt begin. A long wait suspends the run, and
// the step keeps its place in the line. failed is the attempt's failure. See store/doc_limits.go.
func (s *stepCall) acquire() (failed, err error) {
	if s.spec.Limit == "" {
		return nil, nil
	}
	b, e := s.b, s.b.e
	h := &heldPermit{line: e.limits.of(s.spec.Limit)}
	h.permit = &permit{place: store.Place{
		RunID: e.RunID, Lease: e.Lease,
		StepID: fmt.Sprintf("%s#%d", s.id, s.attempt),
	}}
	defer e.listen(h)()
	defer func() {
		switch {
		case s.permit != nil:
		case e.stopped(): // the run may come back
			h.line.yield(h.permit)
		default:
			h.line.leave(h.permit, 0)
		}
	}()
	why := "limit " + s.spec.Limit
	switch granted, err := b.awaitPermit(h, why); {
	case err != nil:
		return nil, err
	case !granted && h.permit.missing:
		return failure.Of(kind.Unavailable, fmt.Errorf("nobody has set the limit %q: call admin.Client.SetLimit",
			s.spec.Limit)), nil
	case !granted && h.permit.failed != nil:
		return failure.Of(kind.Database, fmt.Errorf("the place of the step in the line of limit %q cannot be "+
			"stored: %w", s.spec.Limit, h.permit.failed)), nil
	case !granted:
		e.stop(stopLost, ErrLeaseLost)
		runtime.Goexit()
	}
	if err := b.waitFor(&wait{until: h.permit.at, why: why, inMemory: true}, nil, 0); err != nil {
		return nil, err
	}
	s.permit = h
	return nil, nil
}

// awaitPermit asks for the permit, and returns once it is granted or refused.
func (b *Branch) awaitPermit(h *heldPermit, why string) (granted bool, err error) {
	e, p := b.e, h.permit
	asked := 0 // the calls that came before the last ask
	h.line.ask(p)
	for inMemory := true; ; {
		e.Lock()
		past, calls := h.event.fired, h.event.calls
		e.Unlock()
		state, at := h.line.look(p)
		w := &wait{why: why, inMemory: true}
		switch {
		case state == permitGranted || state == permitRefused:
			return state == permitGranted, nil
		case state == permitAsking:
		case calls > asked: // the last answer may be older than the call
			if h.line.ask(p) {
				asked = calls
			}
			continue
		case !at.IsZero():
			w = &wait{until: at, why: why, need: 1}
		case inMemory:
			w.until = e.now().Add(memoryWait)
		default:
			w = &wait{until: e.now().Add(longestLimitWait), why: why, need: 1}
		}
		if err := b.waitFor(w, &h.event, past); err != nil {
			return false, err
		}
		e.Lock()
		told := h.event.fired > past
		e.Unlock()
		switch {
		case told:
		case inMemory && at.IsZero():
			inMemory = false
		default: // its time has come
			h.line.ask(p)
		}
	}
}

// listen lets answers, and news of the run, fire the event of h until the returned function is called.
func (e *execution) listen(h *heldPermit) (stop func()) {
	h.permit.tell = func() {
		e.Lock()
		defer e.Unlock()
		e.fireLocked(&h.event)
	}
	e.Lock()
	defer e.Unlock()
	e.callLocked(&h.event)
	return func() {
		e.Lock()
		defer e.Unlock()
		e.callNoMoreLocked(&h.event)
	}
}

// isLate reports whether the attempt has a token that is too old by now: it must not begin, because others may begin
// with theirs. The step then keeps its place, and gets the next token.
func (s *stepCall) isLate() bool {
	h := s.permit
	if h == nil || h.permit.late == 0 || s.b.e.now().Sub(h.permit.at) <= h.permit.late {
		return false
	}
	s.permit = nil
	h.line.yield(h.permit)
	return true
}

// releaseAfter gives up the permit, if the attempt has one, after its function has returned err.
func (s *stepCall) releaseAfter(err error) {
	if s.permit != nil {
		s.release(s.b.e.errors.Classify(err).After)
	}
}

// release gives up the permit, if the attempt has one. paused is the pause that its error asks for.
func (s *stepCall) release(paused time.Duration) {
	if h := s.permit; h != nil {
		s.permit = nil
		h.line.leave(h.permit, paused)
	}
}
