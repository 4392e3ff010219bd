package limits

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// Limits are the part of a session in the limits on steps. Each limit, or set of limits, that its steps have used has a
// line. See doc_limits.go.
type Limits struct {
	worker *standing.Worker

	mu    sync.Mutex       // guards lines
	lines map[string]*Line // by the names of its limits
}

// New returns the limits of a session of the worker.
func New(w *standing.Worker) *Limits { return &Limits{worker: w} }

// Of returns the line of the steps that have these limits.
func (l *Limits) Of(names ...string) *Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := strings.Join(names, "\x00") // no name has this character
	line := l.lines[name]
	if line == nil {
		line = &Line{worker: l.worker, names: names}
		line.batcher = batch.New(batch.Config[task]{Flush: line.serve})
		if l.lines == nil {
			l.lines = map[string]*Line{}
		}
		l.lines[name] = line
	}
	return line
}

// Wait returns once nothing is under way. It is called after Worker.GiveUp, when no execution is left.
func (l *Limits) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		line.stop()
		line.batcher.Wait()
	}
}

// A Line is what a session asks of a limit, or of several at once, for the steps that have these. Steps that ask about
// the same time share a transaction.
type Line struct {
	worker  *standing.Worker
	names   []string
	batcher *batch.Batcher[task]

	mu      sync.Mutex    // guards the fields below, and the permits
	waiting []*Permit     // permits that wait for a slot in memory, in the order of the line
	slots   int           // how many slots the limit has; zero: it is not known, or any number
	again   *time.Timer   // serves the limit again; nil if that is not to be
	pause   time.Duration // the last one before that
	stopped bool          // the session ends. Set by stop, for good.
}

// Names returns the names of the line's limits.
func (l *Line) Names() string { return strings.Join(l.names, ", ") }

// A task is one thing to ask of a limit. The zero task only serves it.
type task struct {
	ask    *Permit
	leave  *store.Place
	yield  *store.Place
	paused time.Duration // with leave or yield: its error asks for this pause
}

// A State is the state of a permit.
type State int

const (
	Asking  State = iota // its branch waits for an answer
	Waiting              // the last answer was to wait
	served               // as Waiting, and the session asks for it, because a slot may be free
	Granted              // the step may begin
	Refused              // the server refuses its place, or the lease is lost
	gone                 // its branch has given it up
)

// A Permit is the right of an attempt of a step to begin.
type Permit struct {
	place store.Place
	tell  func() // tells its branch that an answer has come

	// The line's mutex guards these.
	state  State
	at     time.Time     // when granted, the time of the token; else when to ask again, zero if the run is called
	kept   bool          // the table has the step's place
	yields bool          // with gone: the step keeps its place
	failed error         // with Refused: the server refuses the step's place
	late   time.Duration // with Granted: how late the step may begin; zero: at any time
	pauses bool          // with Granted: an error of the step may pause a limit
	waits  string        // with Waiting: the limit that it waits for
}

// NewPermit returns a permit that was not asked for yet. tell is called when an answer has come.
func NewPermit(place store.Place, tell func()) *Permit { return &Permit{place: place, tell: tell} }

// At returns, of a granted permit, the time of the token.
func (p *Permit) At() time.Time { return p.at }

// IsLate reports whether a granted permit has a token that is too old by now.
func (p *Permit) IsLate(now time.Time) bool { return p.late > 0 && now.Sub(p.at) > p.late }

// Pauses reports, of a granted permit, whether an error of its step may pause the limit.
func (p *Permit) Pauses() bool { return p.pauses }

// Refusal returns why a permit was refused: the error with which the server refuses the step's place. If it is nil, the
// lease is lost.
func (p *Permit) Refusal() error { return p.failed }

// Ask asks for the permit, unless the session has: then that answer is awaited, and Ask returns false. There is one
// question at a time.
func (l *Line) Ask(p *Permit) (asks bool) {
	l.mu.Lock()
	asks = p.state != served
	p.state = Asking
	l.mu.Unlock()
	if asks {
		l.add(task{ask: p})
	}
	return asks
}

// Leave gives up the permit and the step's place: it has returned, or its branch does not want to begin it any more.
// paused is the pause that its error asks for.
func (l *Line) Leave(p *Permit, paused time.Duration) {
	if state, kept := l.drop(p, false); kept && (state == Granted || state == Waiting) || paused > 0 {
		l.add(task{leave: &p.place, paused: paused})
	}
}

// Yield gives up the permit. The step keeps its place in the line. paused is the pause that its error asks for.
func (l *Line) Yield(p *Permit, paused time.Duration) {
	if state, kept := l.drop(p, true); kept && state == Granted || paused > 0 {
		l.add(task{yield: &p.place, paused: paused})
	}
}

// add gives the task to the batcher. After the session's end no batcher is left to do it: then others take back what
// the session has.
func (l *Line) add(t task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.batcher.Add(t)
	}
}

// drop sets the permit's state to gone, and returns the state before. If an answer is on its way, answer does the
// rest.
func (l *Line) drop(p *Permit, yields bool) (before State, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = p.state
	p.state, p.yields = gone, yields
	l.forgetLocked(p)
	return before, p.kept
}

func (l *Line) forgetLocked(p *Permit) {
	if i := slices.Index(l.waiting, p); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// Look returns the permit's state and time, and the limit that it waits for.
func (l *Line) Look(p *Permit) (state State, at time.Time, limit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.state, p.at, cmp.Or(p.waits, l.names[0])
}

// serve sends the tasks, in one transaction as a rule, and passes on the answers. While the database is away it repeats
// that, as store.ServeLimit allows. A task that the server refuses holds up no other. When the session ends, serve
// tries once: others take back the rest.
func (l *Line) serve(tasks []task) {
	if slices.ContainsFunc(tasks, func(t task) bool { return t.ask == nil }) { // a slot may be free
		tasks = slices.Concat(l.first(), tasks)
	}
	for failures := 0; failures == 0 || !l.worker.GivesUp(); failures++ {
		done := 0 // the first of the tasks
		err := store.Isolate(tasks, func(some []task) error {
			err := l.serveSome(some)
			if err == nil {
				done += len(some)
			}
			return err
		}, func(t task, err error) {
			l.failed(t, err)
			done++
		})
		if err == nil {
			return
		}
		tasks = tasks[done:]
		if !pg.Locked(err) {
			l.worker.Trouble(err)
		}
		l.worker.Pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
	}
}

// serveSome sends the tasks in one transaction, and passes on the answers.
func (l *Line) serveSome(tasks []task) error {
	var req store.LimitRequest
	var asks []*Permit
	for _, t := range tasks {
		switch {
		case t.ask != nil:
			asks, req.Asks = append(asks, t.ask), append(req.Asks, t.ask.place)
		case t.leave != nil:
			req.Leaves = append(req.Leaves, *t.leave)
		case t.yield != nil:
			req.Yields = append(req.Yields, *t.yield)
		}
		req.Pause = max(req.Pause, t.paused)
	}
	out, err := l.worker.Store.Limits.Serve(context.Background(), l.names, req)
	if err != nil {
		return err
	}
	l.worker.Away.End()
	l.worker.Failing.Over(l.worker.Logger(l.worker.ID()), serving)
	l.worker.Failpoint("after limit", uuid.Nil)
	for i, p := range asks {
		l.answer(p, out, i)
	}
	_ = l.worker.Hints.Signalled(standing.NoWait, nil, out.Called...) // fails only in a transaction
	l.served(out)
	return nil
}

// failed is called when a task fails by itself. A step whose place the server refuses fails; what it refuses of a step
// that leaves is left to others. Other tasks are done later.
func (l *Line) failed(t task, err error) {
	l.worker.Trouble(err)
	switch {
	case !pg.Refused(err):
		time.AfterFunc(time.Second, func() { l.add(t) })
	case t.ask != nil:
		l.refuse(t.ask, err)
	}
}

// refuse fails the permit's step: the server refuses its place.
func (l *Line) refuse(p *Permit, err error) {
	l.mu.Lock()
	l.forgetLocked(p)
	waits := p.state != gone
	if waits {
		p.state, p.failed = Refused, err
	}
	l.mu.Unlock()
	if waits {
		p.tell()
	}
}

// serving is the operation that fails, as logs and health reports name it: store.ServeLimit names it so in its errors.
const serving = "serve limit"

// first returns the asks of the permits that wait for a slot in memory and may get one: as many as there are slots.
func (l *Line) first() (first []task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.waiting {
		if len(first) == max(l.slots, 1) {
			break
		}
		if p.state == Waiting {
			p.state = served
			first = append(first, task{ask: p})
		}
	}
	return first
}

// answer passes the i-th answer on to its permit.
func (l *Line) answer(p *Permit, out store.LimitResult, i int) {
	a := out.Answers[i]
	l.mu.Lock()
	asking := p.state == Asking
	p.at, p.kept, p.late, p.waits = a.At, a.Kept || !a.Granted && !a.Lost, a.Late, a.Waits
	p.pauses = out.RetryAfter
	back := p.answered(a)
	if p.state != Waiting || !a.At.IsZero() {
		l.forgetLocked(p)
	} else if !slices.Contains(l.waiting, p) {
		l.waiting = append(l.waiting, p)
	}
	changed := p.state != gone && (asking || p.state != Waiting || !a.At.IsZero())
	l.mu.Unlock()
	if back != (task{}) {
		l.add(back)
	}
	if changed {
		p.tell()
	}
}

// answered moves the permit to its next state. If its branch has given it up meanwhile, answered returns what the
// permit gives back. The caller holds the lock of the line.
func (p *Permit) answered(a store.LimitAnswer) (back task) {
	switch {
	case p.state == gone && p.kept && !p.yields:
		back.leave = &p.place
	case p.state == gone && p.kept && a.Granted:
		back.yield = &p.place
	case p.state == gone:
	case a.Lost:
		p.state = Refused
	case a.Granted:
		p.state = Granted
	default:
		p.state = Waiting
	}
	return back
}

// served notes how many slots the limit has, and serves it again after a pause if some runs could not be called. The
// pause grows from one time to the next.
func (l *Line) served(out store.LimitResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = out.Slots
	if !out.More {
		l.pause = 0
	} else if l.again == nil && !l.stopped {
		l.pause = min(max(2*l.pause, 20*time.Millisecond), time.Second)
		l.again = time.AfterFunc(l.pause, l.serveAgain)
	}
}

func (l *Line) serveAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = nil
	if !l.stopped {
		l.batcher.Add(task{})
	}
}

func (l *Line) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.again != nil {
		l.again.Stop()
	}
}
