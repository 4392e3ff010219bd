package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A GroupSpec is a group of branches as the workflow function asks for it.
type GroupSpec struct {
	Name        string
	BadName     error // what is wrong with the name, nil if nothing is
	Members     []MemberSpec
	Hashes      []string      // of Map: one of each item; nil otherwise
	Invalid     error         // what is wrong with the options
	Timeout     time.Duration // zero: none
	Concurrency int           // zero: all branches at once
	Collect     bool          // every branch runs to its end
}

// A MemberSpec is a branch of a group.
type MemberSpec struct {
	Name    string
	BadName error                      // what is wrong with the name, nil if nothing is
	Call    func(*Branch) (any, error) // nil is refused
}

// A group is a set of branches that belong together.
type group struct {
	b        *Branch
	id       string
	spec     GroupSpec
	members  []member
	started  int            // members that were started: the first so many
	races    bool           // it is a Race. Set by first.
	ends     ends           // of the started ones
	row      *store.StepRow // the newest record; nil if there is none, or it is forgotten
	attempt  int            // of the next record
	decision decision
	recalled bool // the decision is the history's, set by recall: the branches begin nothing new
}

// A member is a branch of a group.
type member struct {
	name   string
	call   func(*Branch) (any, error)
	future *Future // nil until started
	branch *Branch

	// How it ended, set by group.run when it takes the branch's result.
	over  bool
	value any
	ended time.Time // the branch's Now
	err   error
}

var errGroupTime = errors.New("the group's time is over")

// All runs every branch, and returns what each returned; nothing if that is decided by a failure or the time.
func (b *Branch) All(spec GroupSpec) ([]any, error) {
	g, err := b.newGroup(spec)
	if err != nil {
		return nil, err
	}
	return g.all()
}

func (g *group) all() ([]any, error) {
	if g.decision.Winner != "" {
		g.b.e.nondeterministic("%q was recorded as a Race, and is another group of branches now: give the new one another name", g.id)
	}
	out := make([]any, len(g.members))
	err := g.run(func(m *member) (d decision) {
		if m.err != nil && !g.spec.Collect {
			d.Failed = m.name
		}
		return d
	})
	switch {
	case err != nil:
		return out, err
	case g.decision.TimedOut:
		return out, g.timeout()
	case g.decision.Failed != "":
		return out, g.failure()
	}
	for i := range g.members {
		out[i] = g.members[i].value
	}
	return out, g.close()
}

// First runs every branch until one succeeds.
func (b *Branch) First(spec GroupSpec) (winner string, result any, err error) {
	g, err := b.newGroup(spec)
	if err != nil {
		return "", nil, err
	}
	return g.first()
}

func (g *group) first() (winner string, result any, err error) {
	if g.decision.Failed != "" {
		g.b.e.nondeterministic("%q was recorded as a Parallel, and is a Race now: give the new one another name", g.id)
	}
	g.races = true
	err = g.run(func(m *member) (d decision) {
		if m.err == nil {
			d.Winner = m.name
		}
		return d
	})
	switch {
	case err != nil:
		return "", result, err
	case g.decision.TimedOut:
		return "", result, g.timeout()
	case g.decision.Winner != "":
		m := g.decisive(g.decision.Winner)
		if m.err != nil && (g.b.closed || g.b.ctx.Err() != nil) { // by code that is new in front of what it had done
			return "", result, errBranchCancelled
		}
		if m.err != nil {
			g.b.e.nondeterministic("branch %q won %q, and fails in a replay: %v", m.name, g.id, m.err)
		}
		return m.name, m.value, nil
	}
	g.keepDeferred()
	return "", result, g.close()
}

// newGroup checks the call and takes in what is recorded of the group.
func (b *Branch) newGroup(spec GroupSpec) (*group, error) {
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	g := &group{b: b, id: id, spec: spec, attempt: 1}
	if spec.Invalid != nil {
		return nil, b.Misuse(failure.Wrap(spec.Invalid, "%q", id))
	}
	g.members = make([]member, len(spec.Members))
	for i, m := range spec.Members {
		if m.BadName != nil {
			return nil, b.Misuse(failure.Wrap(m.BadName, "%q", id))
		}
		if m.Call == nil {
			return nil, b.Misuse(fmt.Errorf("kagzi: %q: the function of branch %q is nil", id, m.Name))
		}
		g.members[i] = member{name: m.Name, call: m.Call}
	}
	hashes := spec.Hashes
	if row := b.lookup(id, store.KindMarker); row != nil {
		g.recall(row, hashes)
	}
	if err := b.beginsBranch(id); err != nil {
		return nil, err
	}
	if g.row == nil && (hashes != nil || g.spec.Timeout > 0) {
		return g, g.begin(hashes)
	}
	return g, nil
}

// begin records the items and the deadline. For the items nobody waits: the record is written before those of the
// branches. A deadline is the database's.
func (g *group) begin(hashes []string) error {
	if err := g.b.begins(); err != nil {
		return err
	}
	g.decision.Items = hashes
	r := g.record(store.Running)
	if g.spec.Timeout > 0 {
		r.Wake = g.spec.Timeout
		g.row = g.b.record(r)
		return nil
	}
	g.row = &r.StepRow
	g.b.deferRecord(r)
	return nil
}

// run starts the branches, and lets judge decide by the end of each. It returns nil once all that were started have ended;
// then the group's decision says what came of it, and if there is none, the ends do. It returns the cause if the group
// itself was cancelled first.
func (g *group) run(judge func(*member) decision) error {
	defer g.b.passedBranch(g.id)
	defer g.learn()
	limit := len(g.members)
	switch {
	case g.recalled && g.decision.Started > 0:
		limit = min(limit, g.decision.Started)
	case !g.recalled && g.spec.Concurrency > 0:
		limit = min(limit, g.spec.Concurrency)
	}
	for g.started < limit {
		g.start()
	}
	for taken := 0; taken < g.started; {
		i, err := g.next(taken)
		switch {
		case errors.Is(err, errGroupTime):
			if err := g.decide(decision{TimedOut: true}, -1); err != nil {
				return err
			}
			continue
		case err != nil && g.decision.made() && !g.recalled:
			return nil
		case err != nil:
			g.abandon()
			return err
		}
		taken++
		m := &g.members[i]
		m.value, m.ended, m.err = m.future.take(g.b)
		m.over = true
		if g.decision.made() {
			continue
		}
		if d := judge(m); d.made() {
			if err := g.decide(d, i); err != nil {
				return err
			}
		} else if g.started < len(g.members) {
			g.start()
		}
	}
	if g.decision.made() && !g.recalled {
		g.b.e.cancelChildrenBelow(g.b, g.dead()...)
		g.b.e.exitIfStopped()
	}
	return nil
}

// start starts the next branch.
func (g *group) start() {
	i := g.started
	m := &g.members[i]
	g.started++
	m.branch = g.b.newBranch(g.id + "/" + m.name)
	m.branch.racing = g.races && !g.recalled
	if g.recalled && m.name != g.decision.Winner { // the winner may have left branches behind
		m.branch.close(g.row.FinishedAt)
	}
	m.branch.result.group, m.branch.result.index = &g.ends, i
	m.future = &Future{}
	m.future.start(m.branch, m.call)
}

// next waits until another branch has ended and returns its place. It returns errGroupTime once the group's time is over,
// and the cause if the group itself is cancelled.
func (g *group) next(taken int) (int, error) {
	var deadline time.Time
	if g.row != nil && g.spec.Timeout > 0 && g.row.Status == store.Running && !g.b.closed { // else it was decided in time
		deadline = g.row.WakeAt
	}
	err := g.b.wait(deadline, "branches "+g.id, &g.ends.event, taken)
	behind := g.b.behind()
	if behind {
		g.b.waitAnyway("branches "+g.id, &g.ends.event, taken)
	}
	if cause := g.b.cancelled(); cause != nil && !behind { // the branches' errors may come from there
		return 0, cause
	}
	g.b.e.mu.Lock()
	defer g.b.e.mu.Unlock()
	switch {
	case len(g.ends.order) > taken:
		return g.ends.order[taken], nil
	case err == nil && !behind:
		return 0, errGroupTime
	}
	return 0, cmp.Or[error](err, errBranchCancelled)
}

// close ends a group of which every branch has ended, and returns what failed. With a Timeout the workflow may act on
// that only once it is recorded: a replay that comes after the deadline must not find the group open.
func (g *group) close() error {
	var failures []BranchFailure
	status, now := store.Completed, g.b.now
	for i := range g.members {
		m := &g.members[i]
		if m.ended.After(now) {
			now = m.ended
		}
		if m.err != nil {
			status = store.Failed
			failures = append(failures, g.failureOf(m))
		}
	}
	g.b.advance(now)
	switch {
	case g.row == nil || g.row.Status != store.Running:
	case g.spec.Timeout > 0:
		if err := g.write(status); err != nil {
			return err
		}
	case !g.b.closed:
		g.b.deferRecord(g.record(status))
	}
	if failures != nil {
		return g.b.e.env.errors.Branches(failures)
	}
	return nil
}
