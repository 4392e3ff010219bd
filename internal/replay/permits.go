package replay

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// longestLimitWait is how long a step waits for a slot until it asks again although the limit has not called its run.
const longestLimitWait = 5 * time.Minute

// A heldPermit is the permit of the attempt that is under way or about to begin.
type heldPermit struct {
	line   *limits.Line
	permit *limits.Permit
	event  event // an answer has come, or the run was called. The execution's mutex guards it.
}

// acquire waits until the limit of the step, if it has one, lets the attempt begin. A long wait suspends the run, and
// the step keeps its place in the line. failed is the attempt's failure. See doc_limits.go.
func (s *stepCall) acquire() (failed, err error) {
	if s.spec.Limit == "" {
		return nil, nil
	}
	b, e := s.b, s.b.e
	h := &heldPermit{line: e.limits.Of(s.spec.Limit)}
	h.permit = limits.NewPermit(store.Place{
		RunID: e.RunID, Lease: e.Lease,
		StepID: fmt.Sprintf("%s#%d", s.id, s.attempt),
	}, func() { e.answered(h) })
	defer e.listen(h)()
	defer func() {
		switch {
		case s.permit != nil:
		case e.stopped(): // the run may come back
			h.line.Yield(h.permit)
		default:
			h.line.Leave(h.permit, 0)
		}
	}()
	why := "limit " + s.spec.Limit
	granted, err := b.awaitPermit(h, why)
	if err != nil {
		return nil, err
	}
	switch missing, refused := h.permit.Refusal(); {
	case granted:
	case missing:
		return failure.Of(kind.Unavailable, fmt.Errorf("nobody has set the limit %q: call admin.Client.SetLimit",
			s.spec.Limit)), nil
	case refused != nil:
		return failure.Of(kind.Database, fmt.Errorf("the place of the step in the line of limit %q cannot be "+
			"stored: %w", s.spec.Limit, refused)), nil
	default:
		e.stop(stopLost, standing.ErrLeaseLost)
		runtime.Goexit()
	}
	if err := b.waitFor(&wait{until: h.permit.At(), why: why, inMemory: true}, nil, 0); err != nil {
		return nil, err
	}
	s.permit = h
	return nil, nil
}

// awaitPermit asks for the permit, and returns once it is granted or refused.
func (b *Branch) awaitPermit(h *heldPermit, why string) (granted bool, err error) {
	e, p := b.e, h.permit
	asked := 0 // the calls that came before the last ask
	h.line.Ask(p)
	for inMemory := true; ; {
		e.Lock()
		past, calls := h.event.fired, h.event.calls
		e.Unlock()
		state, at := h.line.Look(p)
		w := &wait{why: why, inMemory: true}
		switch {
		case state == limits.Granted || state == limits.Refused:
			return state == limits.Granted, nil
		case state == limits.Asking:
		case calls > asked: // the last answer may be older than the call
			if h.line.Ask(p) {
				asked = calls
			}
			continue
		case !at.IsZero():
			w = &wait{until: at, why: why, need: 1}
		case inMemory:
			w.until = e.Now().Add(memoryWait)
		default:
			w = &wait{until: e.Now().Add(longestLimitWait), why: why, need: 1}
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
			h.line.Ask(p)
		}
	}
}

// answered lets an answer fire the event of h.
func (e *Run) answered(h *heldPermit) {
	e.Lock()
	defer e.Unlock()
	e.fireLocked(&h.event)
}

// listen lets news of the run, too, fire the event of h until the returned function is called.
func (e *Run) listen(h *heldPermit) (stop func()) {
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
	if h == nil || !h.permit.IsLate(s.b.e.Now()) {
		return false
	}
	s.permit = nil
	h.line.Yield(h.permit)
	return true
}

// releaseAfter gives up the permit, if the attempt has one, after its function has returned err.
func (s *stepCall) releaseAfter(err error) {
	if s.permit != nil {
		s.release(s.b.e.errors().Classify(err).After)
	}
}

// release gives up the permit, if the attempt has one. paused is the pause that its error asks for.
func (s *stepCall) release(paused time.Duration) {
	if h := s.permit; h != nil {
		s.permit = nil
		h.line.Leave(h.permit, paused)
	}
}
