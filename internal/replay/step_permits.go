package replay

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A heldPermit is the permit of the attempt that is under way or about to begin, of all of its limits together.
type heldPermit struct {
	line   *limits.Line
	permit *limits.Permit
	event  event // an answer has come, or the run was called. The execution's mutex guards it.
}

// acquire waits until the limits of the step, if it has any, let the attempt begin. A long wait suspends the run, and
// the step keeps its place in the line. failed is the attempt's failure. See doc_limits.go.
func (s *stepCall) acquire() (failed, err error) {
	if len(s.spec.Limits) == 0 {
		return nil, nil
	}
	b, e := s.b, s.e
	place := store.Place{RunID: e.RunID, Lease: e.Lease, StepID: fmt.Sprintf("%s#%d", s.id, s.attempt)}
	var names []string
	for _, l := range s.spec.Limits {
		names, place.Units = append(names, l.Name), append(place.Units, l.Units)
	}
	h := &heldPermit{line: e.line(names)}
	h.permit = limits.NewPermit(place, func() { e.fire(&h.event) })
	defer e.listen(&h.event)()
	defer func() {
		switch {
		case s.permit != nil:
		case e.stopped(): // the run may come back
			h.line.Yield(h.permit, 0)
		default:
			h.line.Leave(h.permit, 0)
		}
	}()
	granted, what, err := awaitPermit(e, b, h)
	if err != nil {
		return nil, err
	}
	switch refused := h.permit.Refusal(); {
	case granted:
	case refused != nil:
		return failure.Of(kind.Database, fmt.Errorf("the place of the step in the line of limit %q cannot be "+
			"stored: %w", what.Name, refused)), nil
	default:
		e.stop(stopLost, standing.ErrLeaseLost)
		runtime.Goexit()
	}
	if err := b.waitFor(&wait{until: h.permit.At(), what: what, inMemory: true}, next{}); err != nil {
		return nil, err
	}
	s.permit = h
	return nil, nil
}

// awaitPermit asks for the permit, and returns once it is granted or refused. what is the wait for the last limit that
// the step has waited for.
func awaitPermit(e *Run, b *Branch, h *heldPermit) (granted bool, what waits.Wait, err error) {
	p := h.permit
	asked := 0 // the calls that came before the last ask
	h.line.Ask(p)
	for inMemory := true; ; {
		e.Lock()
		on, calls := h.event.heardLocked()
		e.Unlock()
		state, at, limit := h.line.Look(p)
		what = waits.Wait{Kind: waits.Limit, Name: limit}
		var w *wait
		switch {
		case state == limits.Granted || state == limits.Refused:
			return state == limits.Granted, what, nil
		case state == limits.Asking:
			w = &wait{what: what, inMemory: true}
		case calls > asked: // the last answer may be older than the call
			if h.line.Ask(p) {
				asked = calls
			}
			continue
		case !at.IsZero():
			w = &wait{until: at, what: what, need: 1}
		case inMemory:
			w = &wait{until: e.Now().Add(memoryWait), what: what, inMemory: true}
		default:
			w = &wait{what: what, need: 1}
		}
		if err := b.waitFor(w, on); err != nil {
			return false, what, err
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

// isLate reports whether the attempt has a token that is too old by now: it must not begin, because others may begin
// with theirs. The step then keeps its place, and gets the next token.
func (s *stepCall) isLate() bool {
	h := s.permit
	if h == nil || !h.permit.IsLate(s.e.Now()) {
		return false
	}
	s.permit = nil
	h.line.Yield(h.permit, 0)
	return true
}

// shortestPause is the shortest pause of a limit that puts off a step: a step must not call a busy service in a loop.
const shortestPause = 100 * time.Millisecond

// putsOff reports whether the attempt's error asks for a pause that its limit honours. Then the attempt does not count:
// the step keeps its place, and begins again when the limit goes on. One with AtMostOnce leaves the line: its attempt
// has a record, so the next one has another number, and asks for a place of its own.
func (s *stepCall) putsOff(err error) bool {
	h := s.permit
	if err == nil || h == nil || !h.permit.Pauses() {
		return false
	}
	class := s.e.errors().Classify(err)
	if _, again := nextAttempt(class, s.spec.Retry, 0); !again || class.After <= 0 {
		return false
	}
	s.e.log().Warn("kagzi: step is put off, and its limit pauses", "step", s.id, "limit", h.line.Names(), "pause",
		class.After, "error", text.OneLine(failure.Text(err)))
	pause := max(class.After, shortestPause)
	if s.spec.AtMostOnce {
		s.release(pause)
		return true
	}
	s.permit = nil
	h.line.Yield(h.permit, pause)
	return true
}

// releaseAfter gives up the permit, if the attempt has one, after its function has returned err.
func (s *stepCall) releaseAfter(err error) {
	if s.permit != nil {
		s.release(s.e.errors().Classify(err).After)
	}
}

// release gives up the permit, if the attempt has one. paused is the pause that its error asks for.
func (s *stepCall) release(paused time.Duration) {
	if h := s.permit; h != nil {
		s.permit = nil
		h.line.Leave(h.permit, paused)
	}
}
