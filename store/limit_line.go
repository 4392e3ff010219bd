package store

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The states of a place: see doc_limits.go.
const (
	placeWaiting = "WAITING"
	placeCalled  = "CALLED"
	placeRunning = "RUNNING"
)

// A limitLine is a limit under its lock, with the steps that ask and the head of its line.
type limitLine struct {
	now     time.Time
	nextAt  time.Time     // of the next token
	every   time.Duration // between two tokens; zero: a step needs none
	running int           // slots that steps have
	free    int           // slots that no step has
	called  int           // units that are kept for calls that are not answered yet
	asks    []*limitStep  // the steps that ask
	head    []*limitStep  // the first steps that wait, in the order of the line
	more    bool          // the line goes on behind the head
	given   int           // tokens that serve has given
	last    int           // of these, to the last step
}

// A limitStep is a step that asks, or that waits at the head of the line.
type limitStep struct {
	Place
	ord     int       // of a step that asks, from 1; zero: it waits elsewhere
	comes   bool      // its run could begin it now
	over    bool      // its run is over
	had     string    // the state of its place; empty: it has none
	keeps   int       // the units of its place
	askedAt time.Time // its place in the line
	state   string    // serve sets this and what follows; empty: the step stays as it is
	dueAt   time.Time // see kagzi.limit_places
	callAt  time.Time // of a call, when the run is to come
}

// id returns the step's place without what changes with it.
func (s *limitStep) id() Place { return Place{RunID: s.RunID, StepID: s.StepID} }

// came reports whether the step was called and is here.
func (s *limitStep) came() bool { return s.ord > 0 && s.had == placeCalled }

// rank orders the line: steps that were called and are here go first.
func (s *limitStep) rank() int {
	if s.came() {
		return 1
	}
	return 2
}

// call calls the step for a time. A slot or a token is kept for it until then.
func (s *limitStep) call(at, until time.Time) { s.state, s.callAt, s.dueAt = placeCalled, at, until }

// room is the number of tokens whose time comes while one would be kept. If all of these are given at once, the next
// one is called for, too.
func (l *limitLine) room() int {
	if l.every == 0 && !l.nextAt.After(l.now.Add(limitKept)) {
		return math.MaxInt
	}
	return max(l.tokens(limitKept), l.tokens(LimitSoon)+1)
}

// fits reports whether a step may begin behind others that have so many units, as far as tokens and slots go. The next
// step has the time of the token behind its units: so a step needs only one whose time comes, or if no other is called,
// any. A step that wants more slots than there are begins when none has one.
func (l *limitLine) fits(s *limitStep, behind, room int, noneCalled bool) bool {
	return (behind < room || noneCalled) &&
		(behind < l.free && s.Units <= l.free-behind || behind == 0 && l.running == 0 && l.free > 0)
}

// longestDebt bounds the time for which a step holds up the next one. Of much more there is no time.Duration.
const longestDebt = 100 * 365 * 24 * time.Hour

// token returns the time of the nth token from now.
func (l *limitLine) token(nth int) time.Time {
	return l.nextAt.Add(time.Duration(min(int64(nth), int64(longestDebt/max(l.every, 1)))) * l.every)
}

// tokens returns how many tokens come within a time from now.
func (l *limitLine) tokens(within time.Duration) int {
	ahead := l.now.Add(within).Sub(l.nextAt)
	if ahead < 0 {
		return 0
	}
	return 1 + int(min(ahead/max(l.every, 1), math.MaxInt32))
}

// serve decides the fate of each step. First come the steps that were called and are here. Behind them stand the
// calls that are not answered yet, and then all others in the order in which they asked. While there is room, a step
// that is here begins if its token comes soon, and any other is called for the time of its token. Steps at the head
// that could not come are called, too, so that others have their turn, and nothing is kept for them. Behind a step that
// does not fit all others wait.
//
// It reports whether it has looked at too few steps: then those that ask must not begin before the others behind the
// head.
func (l *limitLine) serve() (short bool) {
	line, absent := l.order()
	room, known := l.room(), l.called
	if len(line) == 0 && len(l.head) < mostLooked { // no other has a turn: people see that the first one does not come
		absent = absent[:min(len(absent), 1)]
	}
	for _, s := range absent {
		s.call(l.now, l.now)
	}
	full, taken, called := false, 0, l.called
	for _, s := range line {
		nth := taken
		if !s.came() {
			nth += l.called
		}
		if s.came() || l.more && !s.askedAt.After(l.head[len(l.head)-1].askedAt) {
			known += s.Units
		}
		if full = full || !l.fits(s, nth, room, called == 0); full {
			s.state, s.dueAt = placeWaiting, s.askedAt
			continue
		}
		taken += s.Units
		at := l.token(nth)
		if s.ord > 0 && !at.After(l.now.Add(LimitSoon)) {
			s.state, s.dueAt = placeRunning, latest(l.now, l.token(l.given))
			l.given, l.last = l.given+s.Units, s.Units
		} else {
			at = latest(at, l.now.Add(LimitSoon))
			called += s.Units
			s.call(at.Add(-LimitSoon), at.Add(limitKept))
		}
	}
	return l.more && known+l.called < min(room, l.free)
}

// order returns the steps that could begin, in their order, and those at the head that could not.
func (l *limitLine) order() (line, absent []*limitStep) {
	asking := map[Place]bool{}
	for i, s := range l.asks {
		switch {
		case s.had == placeRunning:
			continue
		case s.had == placeCalled && s.dueAt.After(l.now):
			l.called -= s.keeps
		case s.had == "":
			s.askedAt = l.now.Add(time.Duration(i) * time.Microsecond)
		}
		asking[s.id()] = true
		line = append(line, s)
	}
	for _, s := range l.head {
		switch {
		case asking[s.id()] || s.over:
		case s.comes:
			line = append(line, s)
		default:
			absent = append(absent, s)
		}
	}
	slices.SortStableFunc(line, func(a, b *limitStep) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.askedAt.Compare(b.askedAt))
	})
	return line, absent
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
