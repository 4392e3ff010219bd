package store

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
)

// The states of a place: see doc_limits.go.
const (
	placeWaiting = "WAITING"
	placeCalled  = "CALLED"
	placeRunning = "RUNNING"
)

// A limitLine is a limit under its lock, with the steps that ask and the head of its line.
type limitLine struct {
	name    string
	nth     int // of the limits of the steps that ask
	now     time.Time
	unset   bool          // it was neither declared nor set
	nextAt  time.Time     // of the next token
	every   time.Duration // between two tokens; zero: a step needs none
	slots   int           // zero: any number
	running int           // slots that steps have
	free    int           // slots that no step has
	called  int           // units that are kept for calls that are not answered yet
	asks    []*limitStep  // the steps that ask
	head    []*limitStep  // the first steps that wait, in the order of the line
	more    bool          // the line goes on behind the head

	// serveLines sets these
	room  int  // tokens that may be given or called for
	known int  // units of the steps that it has looked at and that come before all others
	taken int  // units of the steps that begin or are called
	calls int  // of these, units of the steps that are called
	full  bool // a step did not fit, so all others wait
	given int  // tokens that were given
	last  int  // of these, to the last step
}

// A limitStep is a step that asks, or that waits at the head of the line. Of a step with several limits there is one
// for each.
type limitStep struct {
	Place
	line    *limitLine
	units   int
	ord     int       // of a step that asks, from 1; zero: it waits elsewhere
	comes   bool      // its run could begin it now
	over    bool      // its run is over
	had     string    // the state of its place; empty: it has none
	keeps   int       // the units of its place
	askedAt time.Time // its place in the line
	state   string    // serveLines sets this and what follows; empty: the step stays as it is
	dueAt   time.Time // see kagzi.limit_places
	callAt  time.Time // of a call, when the run is to come; zero: it is not woken
}

// A placeKey tells steps apart.
type placeKey struct {
	run uuid.UUID
	id  string
}

func (s *limitStep) key() placeKey { return placeKey{s.RunID, s.StepID} }

// came reports whether the step was called and is here.
func (s *limitStep) came() bool { return s.ord > 0 && s.had == placeCalled }

// call calls the step for a time. A slot or a token is kept for it until then.
func (s *limitStep) call(at, until time.Time) { s.state, s.callAt, s.dueAt = placeCalled, at, until }

// tokens is the number of tokens whose time comes while one would be kept. If all of these are given at once, the next
// one is called for, too.
func (l *limitLine) tokens() int {
	if l.every == 0 && !l.nextAt.After(l.now.Add(limitKept)) {
		return math.MaxInt
	}
	return max(l.tokensWithin(limitKept), l.tokensWithin(LimitSoon)+1)
}

// behind returns how many units come before the step's.
func (s *limitStep) behind() int {
	if s.came() {
		return s.line.taken
	}
	return s.line.taken + s.line.called
}

// fits reports whether the step may begin behind the others, as far as tokens and slots go. The next step has the time
// of the token behind its units: so a step needs only one whose time comes, or if no other is called, any. A step that
// wants more slots than there are begins when none has one.
func (s *limitStep) fits() bool {
	l, n := s.line, s.behind()
	return !l.full && (n < l.room || l.called+l.calls == 0) &&
		(n < l.free && s.units <= l.free-n || n == 0 && l.running == 0 && l.free > 0)
}

// longestDebt bounds the time for which a step holds up the next one. Of much more there is no time.Duration.
const longestDebt = 100 * 365 * 24 * time.Hour

// token returns the time of the nth token from now.
func (l *limitLine) token(nth int) time.Time {
	return l.nextAt.Add(time.Duration(min(int64(nth), int64(longestDebt/max(l.every, 1)))) * l.every)
}

// tokensWithin returns how many tokens come within a time from now.
func (l *limitLine) tokensWithin(d time.Duration) int {
	ahead := l.now.Add(d).Sub(l.nextAt)
	if ahead < 0 {
		return 0
	}
	return 1 + int(min(ahead/max(l.every, 1), math.MaxInt32))
}

// late returns until when a step may begin with a token of a time.
func (l *limitLine) late(at time.Time) time.Time {
	return at.Add(max(LimitSoon, l.every/limitLate))
}

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
		return cmp.Or(-cmp.Compare(a.came, b.came), a.askedAt.Compare(b.askedAt))
	})
	return turns
}

// order returns the steps that ask and have not begun, those at the head that could begin, and those that could not.
func (l *limitLine) order() (asks, coming, absent []*limitStep) {
	asking := map[placeKey]bool{}
	for i, s := range l.asks {
		switch {
		case s.had == placeRunning:
			continue
		case s.had == placeCalled && s.dueAt.After(l.now):
			l.called -= s.keeps
		case s.had == "":
			s.askedAt = l.now.Add(time.Duration(i) * time.Microsecond)
		}
		asking[s.key()] = true
		asks = append(asks, s)
	}
	for _, s := range l.head {
		switch {
		case asking[s.key()] || s.over:
		case s.comes:
			coming = append(coming, s)
		default:
			absent = append(absent, s)
		}
	}
	return asks, coming, absent
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
