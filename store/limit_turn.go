package store

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// serveLines decides the fate of each step. First come the steps that were called and are here. Behind them stand the
// calls that are not answered yet, and then all others in the order in which they asked. While there is room, a step
// that is here begins if its token comes soon, and any other is called for the time of its token. Steps at the head
// that could not come are called, too, so that others have their turn, and nothing is kept for them. Behind a step that
// does not fit all others wait.
//
// It reports whether it has looked at too few steps: then those that ask must not begin before the others behind the
// head.
func serveLines(lines []*limitLine) (short bool) {
	for _, t := range turnsIn(lines) {
		t.serve()
	}
	for _, l := range lines {
		short = short || l.more && l.known+l.called < min(l.room, l.free)
	}
	return short
}

// turnsIn returns the turns of the steps that could begin, in their order: steps that were called and are here go
// first. Those at the head that could not begin are called.
func turnsIn(lines []*limitLine) (turns []*turn) {
	now := lines[len(lines)-1].now
	ofAsk := map[int]*turn{}
	for _, l := range lines {
		l.now = now
		asks, coming, absent := l.order()
		for _, s := range asks {
			t := ofAsk[s.ord]
			if t == nil {
				t = &turn{now: now}
				ofAsk[s.ord], turns = t, append(turns, t)
			}
			t.steps = append(t.steps, s)
		}
		for _, s := range coming {
			turns = append(turns, &turn{now: now, steps: []*limitStep{s}})
		}
		l.room = l.tokens()
		if len(asks)+len(coming) == 0 && len(l.head) < mostLooked {
			absent = absent[:min(len(absent), 1)] // no other has a turn: people see that the first one does not come
		}
		for _, s := range absent {
			s.call(now, now)
		}
	}
	for _, t := range turns {
		t.prepare()
	}
	slices.SortStableFunc(turns, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.askedAt.Compare(b.askedAt))
	})
	return turns
}

// A turn is the turn of one step, in the line of its limit, or if it asks and has several, in each of them. See
// doc_limits.go.
type turn struct {
	now     time.Time
	steps   []*limitStep // in the order of width
	rank    int          // 1: it was called everywhere, and is here; 2: any other
	askedAt time.Time
}

// prepare sets the turn's place among others: it is that of the step's first question to any of the limits.
func (t *turn) prepare() {
	first := t.steps[0]
	t.rank, t.askedAt = 1, first.askedAt
	for _, s := range t.steps {
		if !s.came() {
			t.rank = 2
		}
		if s.askedAt.Before(t.askedAt) {
			t.askedAt = s.askedAt
		}
	}
	for _, s := range t.steps {
		l := s.line
		s.askedAt = t.askedAt
		if s.came() || l.more && !s.askedAt.After(l.head[len(l.head)-1].askedAt) {
			l.known += s.units
		}
	}
	slices.SortStableFunc(t.steps, func(a, b *limitStep) int { // of one width in the order of the locks
		return cmp.Compare(a.line.width(), b.line.width())
	})
}

// serve lets the step begin if all of its limits do. If its tokens come later, it is called for their time, and else it
// waits for the first limit that lacks room.
func (t *turn) serve() {
	at := t.now
	for i, s := range t.steps {
		if !s.fits() {
			t.waitFor(i)
			return
		}
		at = latest(at, s.line.token(s.behind()))
	}
	if s := t.steps[0]; s.ord > 0 && !at.After(t.now.Add(LimitSoon)) {
		t.begin(at)
		return
	}
	t.callFor(latest(at, t.now.Add(LimitSoon)))
}

// begin lets the step begin at a time. A limit whose token came before gives the next one after that time, too: so no
// two steps are closer than any rate allows.
func (t *turn) begin(at time.Time) {
	for _, s := range t.steps {
		l := s.line
		if moved := at.Sub(l.token(l.given)); len(t.steps) > 1 && l.every > 0 && moved > 0 {
			l.nextAt = l.nextAt.Add(moved)
		}
		s.state, s.dueAt = placeRunning, latest(t.now, l.token(l.given))
		l.taken, l.given, l.last = l.taken+s.units, l.given+s.units, s.units
	}
}

// callFor calls the step for the time of its tokens. A limit whose turn is long before keeps nothing for it.
func (t *turn) callFor(at time.Time) {
	for _, s := range t.steps {
		l := s.line
		if at.After(latest(t.now, l.token(s.behind())).Add(limitHeld)) {
			s.leave()
			continue
		}
		l.taken, l.calls = l.taken+s.units, l.calls+s.units
		s.call(at.Add(-LimitSoon), at.Add(limitKept))
	}
}

// waitFor leaves the step in the line of its nth limit, until that calls it. Meanwhile others keep what they have for
// it, or nothing, if steps that could begin at once can use it.
func (t *turn) waitFor(nth int) {
	lacks := t.steps[nth].line
	first, held := !lacks.full && lacks.hasNoneBefore(t.askedAt), limitHeld
	if first {
		held = limitHeldFirst
	}
	lacks.full = true
	for i, s := range t.steps {
		switch {
		case i == nth:
			s.state, s.dueAt = placeWaiting, s.askedAt
		case s.isKept(lacks, i < nth, first):
			s.line.taken, s.line.calls = s.line.taken+s.units, s.line.calls+s.units
			s.state, s.dueAt, s.callAt = placeCalled, t.now.Add(held), time.Time{}
		default:
			s.leave()
		}
	}
}

// isKept reports whether a slot or a token is kept for the step while it waits for another limit. A limit that comes
// before, with fewer slots, keeps one: most of the steps in its line wait for the other one, too. Of the steps that
// wait for a rate, only the first keeps its slot, and of those that wait for a slot, only the first keeps its token.
func (s *limitStep) isKept(lacks *limitLine, before, first bool) bool {
	if s.line.slots == 0 {
		return first && s.came()
	}
	return before && (lacks.slots > 0 || first)
}

// width orders the limits of a step: a limit that is not set comes first, and one without slots last.
func (l *limitLine) width() int {
	switch {
	case l.unset:
		return 0
	case l.slots == 0:
		return math.MaxInt
	}
	return l.slots
}

// leave takes the step out of a line while it waits in another one. Nothing is kept for it.
func (s *limitStep) leave() {
	if s.had != "" {
		s.state = placeLeft
	}
}

// isHeld reports whether something is kept for the step while it waits in another line.
func (s *limitStep) isHeld() bool { return s.state == placeCalled && s.callAt.IsZero() }
