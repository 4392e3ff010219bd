package store

import (
	"math"
	"time"

	"github.com/google/uuid"
)

// A Place is a step of a run that this worker holds, in the lines of its limits.
type Place struct {
	RunID uuid.UUID
	Lease uuid.UUID
	// with the number of the attempt: a request that arrives late, after its repetition, is about no other attempt
	StepID string
	Units  []int // slots and tokens that the step takes of each limit; nil: one of each. Only of one that asks.
}

// How a limit is served.
const (
	// LimitSoon is how far ahead a token is given to a step that waits for it in memory. The step may begin that late,
	// or by the limitLate-th part of the time between two tokens: otherwise a token of each hour would be lost for a
	// second.
	LimitSoon = 200 * time.Millisecond
	limitLate = 10
	// limitKept is for how long a slot, or a token from its time on, is kept for a step that was called.
	limitKept = time.Second
	// limitHeld is for how long a slot or a token is kept for a step that waits for another of its limits, and
	// limitHeldFirst if it is the first there.
	limitHeld, limitHeldFirst = 10 * time.Second, time.Minute
	// limitOver is for how long a slot counts after its run has ended, if the step's worker does not say that it has
	// returned.
	limitOver = 10 * time.Second
	// A service looks at as many steps of the line as may be called. If too few of them can come, the next ones look at
	// mostLooked, in mostLooks transactions in all.
	mostLooked, mostLooks = 1000, 20
)

// The states of a place: see doc_limits.go.
const (
	placeWaiting = "WAITING"
	placeCalled  = "CALLED"
	placeRunning = "RUNNING"
	placeLeft    = "LEFT" // it has none any more
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
	tally
}

// A tally is what serveLines has found out of a line, and given to its steps.
type tally struct {
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

// A placeKey identifies a step.
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

// late returns how late a step may begin with its token; zero: it has none.
func (l *limitLine) late() time.Duration {
	if l.every == 0 {
		return 0
	}
	return max(LimitSoon, l.every/limitLate)
}

// hasNoneBefore reports whether no step of the head asked before a time.
func (l *limitLine) hasNoneBefore(at time.Time) bool {
	return len(l.head) == 0 || !l.head[0].askedAt.Before(at)
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
