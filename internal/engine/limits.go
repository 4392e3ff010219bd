package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// limits is a session's part in the limits on steps. Each limit that its steps have used has a line. See
// store/doc_limits.go.
type limits struct {
	env *environment

	mu    sync.Mutex            // guards lines
	lines map[string]*limitLine // by the limit's name
}

// of returns the line of a limit.
func (l *limits) of(name string) *limitLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[name]
	if line == nil {
		line = &limitLine{env: l.env, name: name}
		line.batcher = batch.New(batch.Config[limitTask]{Flush: line.serve})
		if l.lines == nil {
			l.lines = map[string]*limitLine{}
		}
		l.lines[name] = line
	}
	return line
}

// wait returns once nothing is under way. It is called after giveUp, when no execution is left.
func (l *limits) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		line.stop()
		line.batcher.Wait()
	}
}

// A limitLine is what a session asks of one limit. Steps that ask about the same time share a transaction.
type limitLine struct {
	env     *environment
	name    string
	batcher *batch.Batcher[limitTask]

	mu      sync.Mutex    // guards the fields below, and the permits
	waiting []*permit     // permits that wait for a slot in memory, in the order of the line
	slots   int           // how many slots the limit has; zero: it is not known, or any number
	again   *time.Timer   // serves the limit again; nil if that is not to be
	pause   time.Duration // the last one before that
	stopped bool          // the session ends. Set by stop, for good.
}

// A limitTask is one thing to ask of a limit. The zero task only serves it.
type limitTask struct {
	ask    *permit
	leave  *store.Place
	yield  *store.Place
	paused time.Duration // with leave: its error asks for this pause
}

// A permitState says what became of a permit.
type permitState int

const (
	permitAsking  permitState = iota // its branch waits for an answer
	permitWaiting                    // the last answer was to wait
	permitServed                     // as permitWaiting, and the session asks for it, because a slot may be free
	permitGranted                    // the step may begin
	permitRefused                    // there is no such limit, or the lease is lost
	permitGone                       // its branch has given it up
)

// A permit is the right of an attempt of a step to begin.
type permit struct {
	place store.Place
	tell  func() // tells its branch that an answer has come

	// The line's mutex guards these.
	state   permitState
	at      time.Time     // when granted, the time of the token; else when to ask again, zero if the run is called
	kept    bool          // the table has the step's place
	yields  bool          // with permitGone: the step keeps its place
	missing bool          // with permitRefused: there is no such limit
	failed  error         // with permitRefused: the server refuses the step's place
	late    time.Duration // with permitGranted: how late the step may begin; zero: at any time
}

// ask asks for the permit, unless the session has: then that answer is awaited, and ask returns false. There is one
// question at a time.
func (l *limitLine) ask(p *permit) (asks bool) {
	l.mu.Lock()
	asks = p.state != permitServed
	p.state = permitAsking
	l.mu.Unlock()
	if asks {
		l.add(limitTask{ask: p})
	}
	return asks
}

// leave gives up the permit and the step's place: it has returned, or its branch does not want to begin it any more.
// paused is the pause that its error asks for.
func (l *limitLine) leave(p *permit, paused time.Duration) {
	if state, kept := l.drop(p, false); kept && (state == permitGranted || state == permitWaiting) || paused > 0 {
		l.add(limitTask{leave: &p.place, paused: paused})
	}
}

// yield gives up the permit. The step keeps its place in the line.
func (l *limitLine) yield(p *permit) {
	if state, kept := l.drop(p, true); kept && state == permitGranted {
		l.add(limitTask{yield: &p.place})
	}
}

// add gives the task to the batcher. After the session's end nobody is left to do it: then others take back what the
// session has.
func (l *limitLine) add(t limitTask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.batcher.Add(t)
	}
}

// drop sets the permit's state to permitGone, and returns the state before. If an answer is on its way, answer does the
// rest.
func (l *limitLine) drop(p *permit, yields bool) (before permitState, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = p.state
	p.state, p.yields = permitGone, yields
	l.forgetLocked(p)
	return before, p.kept
}

func (l *limitLine) forgetLocked(p *permit) {
	if i := slices.Index(l.waiting, p); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// look returns the permit's state and time.
func (l *limitLine) look(p *permit) (state permitState, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.state, p.at
}

// serve sends the tasks, in one transaction as a rule, and passes on the answers. While the database is away it repeats
// that, as store.Limits.Serve allows. A task that the server refuses holds up no other. When the session ends, serve
// tries once: others take back what is left.
func (l *limitLine) serve(tasks []limitTask) {
	if slices.ContainsFunc(tasks, func(t limitTask) bool { return t.ask == nil }) { // a slot may be free
		tasks = slices.Concat(l.first(), tasks)
	}
	for failures := 0; failures == 0 || !l.env.closing.Load(); failures++ {
		done := 0 // the first of the tasks
		err := store.Isolate(tasks, func(some []limitTask) error {
			err := l.serveSome(some)
			if err == nil {
				done += len(some)
			}
			return err
		}, func(t limitTask, err error) {
			l.failed(t, err)
			done++
		})
		if err == nil {
			return
		}
		tasks = tasks[done:]
		if !pg.Locked(err) {
			l.env.databaseTrouble(err)
		}
		l.env.pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
	}
}

// serveSome sends the tasks in one transaction, and passes on the answers.
func (l *limitLine) serveSome(tasks []limitTask) error {
	var req store.LimitRequest
	var asks []*permit
	for _, t := range tasks {
		switch {
		case t.ask != nil:
			asks, req.Asks = append(asks, t.ask), append(req.Asks, t.ask.place)
		case t.leave != nil:
			req.Leaves, req.Pause = append(req.Leaves, *t.leave), max(req.Pause, t.paused)
		case t.yield != nil:
			req.Yields = append(req.Yields, *t.yield)
		}
	}
	out, err := l.env.store.Limits.Serve(l.env.background, l.name, req)
	if err != nil {
		return err
	}
	l.env.outage.End()
	l.env.failures.Over(l.env.logger(l.env.ID()), serving)
	l.env.failpoint("after limit", uuid.Nil)
	for i, p := range asks {
		l.answer(p, out, i)
	}
	_ = l.env.hints.Signalled(l.env.noWait, nil, out.Called...) // fails only in a transaction
	l.served(out)
	return nil
}

// failed is called when a task fails by itself. A step whose place the server refuses fails; what it refuses of a step
// that leaves is left to others. Other tasks are done later.
func (l *limitLine) failed(t limitTask, err error) {
	l.env.databaseTrouble(err)
	switch {
	case !pg.Refused(err):
		time.AfterFunc(time.Second, func() { l.add(t) })
	case t.ask != nil:
		l.refuse(t.ask, err)
	}
}

// refuse fails the permit's step: the server refuses its place.
func (l *limitLine) refuse(p *permit, err error) {
	l.mu.Lock()
	l.forgetLocked(p)
	waits := p.state != permitGone
	if waits {
		p.state, p.failed = permitRefused, err
	}
	l.mu.Unlock()
	if waits {
		p.tell()
	}
}

// serving is the operation that fails, as logs and health reports name it: so does Limits.Serve in its errors.
const serving = "serve limit"

// first returns the asks of the permits that wait for a slot in memory and may get one: as many as there are slots.
func (l *limitLine) first() (first []limitTask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.waiting {
		if len(first) == max(l.slots, 1) {
			break
		}
		if p.state == permitWaiting {
			p.state = permitServed
			first = append(first, limitTask{ask: p})
		}
	}
	return first
}

// answer passes the i-th answer on to its permit. A permit whose branch has given it up meanwhile gives back what it
// got.
func (l *limitLine) answer(p *permit, out store.LimitResult, i int) {
	a := store.LimitAnswer{Lost: true}
	if !out.Missing {
		a = out.Answers[i]
	}
	l.mu.Lock()
	p.at, p.kept, p.missing, p.late = a.At, a.Kept || !a.Granted && !a.Lost, out.Missing, out.Late
	tells := p.state == permitAsking || !a.At.IsZero()
	var back limitTask
	switch {
	case p.state == permitGone && p.kept && !p.yields:
		back.leave = &p.place
	case p.state == permitGone && p.kept && a.Granted:
		back.yield = &p.place
	case p.state == permitGone:
		tells = false
	case a.Lost:
		p.state, tells = permitRefused, true
	case a.Granted:
		p.state, tells = permitGranted, true
	default:
		p.state = permitWaiting
	}
	if p.state != permitWaiting || !a.At.IsZero() {
		l.forgetLocked(p)
	} else if !slices.Contains(l.waiting, p) {
		l.waiting = append(l.waiting, p)
	}
	l.mu.Unlock()
	if back != (limitTask{}) {
		l.add(back)
	}
	if tells {
		p.tell()
	}
}

// served notes how many slots the limit has, and serves it again after a pause if some runs could not be called. The
// pause grows from one time to the next.
func (l *limitLine) served(out store.LimitResult) {
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

func (l *limitLine) serveAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = nil
	if !l.stopped {
		l.batcher.Add(limitTask{})
	}
}

func (l *limitLine) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.again != nil {
		l.again.Stop()
	}
}
