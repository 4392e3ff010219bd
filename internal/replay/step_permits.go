package replay

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A heldPermit is a permit of the attempt that is under way or about to begin.
type heldPermit struct {
	line   *limits.Line
	permit *limits.Permit
	event  event // an answer has come, or the run was called. The execution's mutex guards it.
}

// acquire waits until the limits of the step, if it has any, let the attempt begin. It takes one after the other, and
// keeps those that it has while it waits for another in memory. A longer wait suspends the run: then the step keeps its
// place in that line, and has left all others. failed is the attempt's failure. See doc_limits.go.
func (s *stepCall) acquire() (failed, err error) {
	if s.spec.Limits == nil {
		return nil, nil
	}
	s.permits = make([]*heldPermit, len(s.spec.Limits))
	ready := false
	defer func() {
		switch {
		case ready:
		case s.e.stopped(): // the run may come back
			s.yieldPermits()
		default:
			s.release(0)
		}
	}()
	for i := s.nextPermit(); i >= 0; i = s.nextPermit() {
		if failed, err = s.acquireOf(i); failed != nil || err != nil {
			return failed, err
		}
	}
	var last *heldPermit // whose token comes last
	for _, h := range s.permits {
		if last == nil || h.permit.At().After(last.permit.At()) {
			last = h
		}
	}
	w := &wait{until: last.permit.At(), what: waits.Wait{Kind: waits.Limit, Name: last.line.Name()}, inMemory: true}
	if err := s.b.waitFor(w, next{}); err != nil {
		return nil, err
	}
	ready = true
	return nil, nil
}

// nextPermit returns which of the permits that the attempt lacks comes next; -1: it lacks none.
func (s *stepCall) nextPermit() int {
	next := -1
	var first *limits.Line
	for i, l := range s.spec.Limits {
		if s.permits[i] != nil {
			continue
		}
		if line := s.e.line(l.Name); first == nil || limits.Compare(line, first) < 0 {
			next, first = i, line
		}
	}
	return next
}

// acquireOf waits for the permit of one limit of the step.
func (s *stepCall) acquireOf(i int) (failed, err error) {
	e, limit := s.e, s.spec.Limits[i]
	place := store.Place{
		RunID: e.RunID, Lease: e.Lease, StepID: fmt.Sprintf("%s#%d", s.id, s.attempt), Units: limit.Units,
	}
	if i > 0 {
		place.StepID = fmt.Sprintf("%s+%d", place.StepID, i+1)
	}
	h := &heldPermit{line: e.line(limit.Name)}
	h.permit = limits.NewPermit(place, func() { e.fire(&h.event) })
	defer e.listen(&h.event)()
	defer func() {
		switch {
		case s.permits[i] != nil:
		case e.stopped(): // the run may come back
			h.line.Yield(h.permit, 0)
		default:
			h.line.Leave(h.permit, 0)
		}
	}()
	state, err := s.awaitPermit(h, i)
	if err != nil {
		return nil, err
	}
	switch refused := h.permit.Refusal(); {
	case state == limits.Granted:
		s.permits[i] = h
		return nil, nil
	case state == limits.Waiting:
		return nil, nil
	case refused != nil:
		return failure.Of(kind.Database, fmt.Errorf("the place of the step in the line of limit %q cannot be "+
			"stored: %w", limit.Name, refused)), nil
	default:
		e.stop(stopLost, standing.ErrLeaseLost)
		runtime.Goexit()
		return nil, nil
	}
}

// slotsWait is how long a step that has its slots waits with them for a token, in memory. If it gave them back sooner,
// the first one in the line of tokens would often come when the slots are taken by those behind it.
const slotsWait = 30 * time.Second

// awaitPermit asks for the permit of the ith limit, and returns once it is granted or refused, or the answer says what
// the limit has, and another one comes first. Before a long wait it gives back all that the step has.
func (s *stepCall) awaitPermit(h *heldPermit, i int) (state limits.State, err error) {
	e, b, p := s.e, s.b, h.permit
	what := waits.Wait{Kind: waits.Limit, Name: h.line.Name()}
	asked := 0 // the calls that came before the last ask
	h.line.Ask(p)
	begun := e.Now()
	for inMemory := true; ; {
		e.Lock()
		on, calls := h.event.heardLocked()
		e.Unlock()
		var at time.Time
		state, at = h.line.Look(p)
		var w *wait
		switch {
		case state == limits.Granted || state == limits.Refused:
			return state, nil
		case state == limits.Asking:
			w = &wait{what: what, inMemory: true}
		case s.nextPermit() != i:
			return state, nil
		case calls > asked: // the last answer may be older than the call
			if h.line.Ask(p) {
				asked = calls
			}
			continue
		case h.line.HasTokensAlone() && s.hasSlots() && e.Now().Sub(begun) < slotsWait:
			w = &wait{until: begun.Add(slotsWait), what: what, inMemory: true}
			if !at.IsZero() && at.Before(w.until) {
				w.until = at
			}
		case !at.IsZero():
			s.release(0)
			w = &wait{until: at, what: what, need: 1}
		case inMemory:
			w = &wait{until: e.Now().Add(memoryWait), what: what, inMemory: true}
		default:
			s.release(0)
			w = &wait{what: what, need: 1}
		}
		if err := b.waitFor(w, on); err != nil {
			return state, err
		}
		e.Lock()
		told := on.hasComeLocked()
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

// hasSlots reports whether the step has slots of its limits.
func (s *stepCall) hasSlots() bool {
	return slices.ContainsFunc(s.permits, func(h *heldPermit) bool { return h != nil && !h.line.HasTokensAlone() })
}

// isLate reports whether the attempt has a token that is too old by now: it must not begin, because others may begin
// with theirs. The step then keeps its places, and gets the next token.
func (s *stepCall) isLate() bool {
	now := s.e.Now()
	late := slices.ContainsFunc(s.permits, func(h *heldPermit) bool { return h != nil && h.permit.IsLate(now) })
	if late {
		s.yieldPermits()
	}
	return late
}

// shortestPause is the shortest pause of a limit that puts off a step: a step must not call a busy service in a loop.
const shortestPause = 100 * time.Millisecond

// putsOff reports whether the attempt's error asks for a pause that one of its limits honours. Then the attempt does
// not count: the step keeps its place, and begins again when the limit goes on.
func (s *stepCall) putsOff(err error) bool {
	pauses := func(h *heldPermit) bool { return h != nil && h.permit.Pauses() }
	if err == nil || !slices.ContainsFunc(s.permits, pauses) {
		return false
	}
	class := s.e.errors().Classify(err)
	if _, again := nextAttempt(class, s.spec.Retry, 0); !again || class.After <= 0 {
		return false
	}
	if s.spec.AtMostOnce { // its next attempt has another number, and a place of its own
		s.release(max(class.After, shortestPause))
		return true
	}
	for i, h := range s.permits {
		if pauses(h) {
			s.e.log().Warn("kagzi: step is put off, and its limit pauses", "step", s.id, "limit", h.line.Name(),
				"pause", class.After, "error", text.OneLine(failure.Text(err)))
			s.permits[i] = nil
			h.line.Yield(h.permit, max(class.After, shortestPause))
		}
	}
	return true
}

// releaseAfter gives up the permits that the attempt has, after its function has returned err.
func (s *stepCall) releaseAfter(err error) {
	if s.permits != nil {
		s.release(s.e.errors().Classify(err).After)
	}
}

// release gives up the permits that the attempt has. paused is the pause that its error asks for.
func (s *stepCall) release(paused time.Duration) {
	for i, h := range s.permits {
		if h != nil {
			s.permits[i] = nil
			h.line.Leave(h.permit, paused)
		}
	}
}

// yieldPermits gives up the permits that the attempt has, and keeps its places in the lines.
func (s *stepCall) yieldPermits() {
	for i, h := range s.permits {
		if h != nil {
			s.permits[i] = nil
			h.line.Yield(h.permit, 0)
		}
	}
}
