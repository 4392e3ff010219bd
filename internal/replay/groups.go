package replay

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A GroupSpec describes a group of branches that a workflow function starts.
type GroupSpec struct {
	Name        string
	BadName     error // why the name is invalid; nil if it is valid
	Members     []MemberSpec
	Hashes      []string      // of Map: a hash of each item; nil otherwise
	Invalid     error         // why the options are invalid; nil if they are valid
	Refused     error         // of Map: why an item is refused; nil if none is
	Timeout     time.Duration // zero: none
	Concurrency int           // zero: all branches at once
	Collect     bool          // a failure does not cancel the other branches
}

// A MemberSpec is a branch of a group.
type MemberSpec struct {
	Name    string
	BadName error                      // why the name is invalid; nil if it is valid
	Call    func(*Branch) (any, error) // nil is refused
}

// A group is a set of branches that the function starts and awaits together. Only the goroutine of b uses it, except
// ends. See doc_groups.go.
type group struct {
	e        *Run
	b        *Branch
	id       string
	spec     GroupSpec
	members  []member
	started  int            // members[:started] were started
	races    bool           // the group is a Race. Set by First.
	ends     ends           // of the started members. The execution's mutex guards it.
	row      *store.StepRow // the newest record; nil if there is none, or the run's attempt forgets it
	attempt  int            // number of the next record
	decision decision
	recalled bool // the decision comes from the history: all branches but the winner's are closed. Set by recall.
}

// A member is a branch of a group.
type member struct {
	name   string
	call   func(*Branch) (any, error)
	future *Future // nil until started
	branch *Branch

	// The branch's end. Set by group.run when it takes the branch's result.
	over  bool // the fields below are set
	value any
	ended time.Time // the branch's Now
	err   error
}

var errGroupTime = errors.New("the group's time is over")

// All runs every branch and returns their results. It returns an error if a failure or the Timeout decides the group,
// or, with Collect, if a branch failed.
func (b *Branch) All(spec GroupSpec) ([]any, error) {
	defer b.operate().done()
	g, err := newGroup(b, spec)
	if err != nil {
		return nil, err
	}
	if g.decision.Winner != "" {
		g.e.nondeterministic(g.id, "%q was recorded as a Race, and is another group of branches now: give the new "+
			"one another name", g.id)
	}
	out := make([]any, len(g.members))
	err = g.run(func(m *member) (d decision) {
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

// First runs every branch until one succeeds, and returns the winner's name and result. It returns an error if all
// branches failed, or if the Timeout decides the group.
func (b *Branch) First(spec GroupSpec) (winner string, result any, err error) {
	defer b.operate().done()
	g, err := newGroup(b, spec)
	if err != nil {
		return "", nil, err
	}
	if g.decision.Failed != "" {
		g.e.nondeterministic(g.id, "%q was recorded as a Parallel, and is a Race now: give the new one "+
			"another name", g.id)
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
		return "", nil, err
	case g.decision.TimedOut:
		return "", nil, g.timeout()
	case g.decision.Winner != "":
		m := g.decisive(g.decision.Winner)
		if m.err != nil && (g.b.Closed() || g.b.Err() != nil) { // new code precedes the winner's recorded operations
			return "", nil, errBranchCancelled
		}
		if m.err != nil {
			g.e.nondeterministic(g.id, "branch %q won %q, and fails in a replay: %v", m.name, g.id, m.err)
		}
		return m.name, m.value, nil
	}
	g.keepDeferred()
	return "", nil, g.close()
}

// newGroup checks the call and reads the group's record in the history, if there is one.
func newGroup(b *Branch, spec GroupSpec) (*group, error) {
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	e := b.execution()
	g := &group{e: e, b: b, id: id, spec: spec, attempt: 1}
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
		if len(id)+1+len(m.Name) > longestPath {
			return nil, b.Misuse(checkPath(id + "/" + m.Name))
		}
		g.members[i] = member{name: m.Name, call: m.Call}
	}
	hashes := spec.Hashes
	switch row := b.lookup(id, store.KindMarker); {
	case row == nil:
	case !isRefusal(row):
		g.recall(row, hashes)
	case e.forgot(row):
		g.attempt = row.Attempt + 1
	default:
		return nil, b.refusal(row)
	}
	if spec.Refused != nil {
		return nil, b.refuse(id, store.KindMarker, g.attempt, spec.Refused)
	}
	if err := b.beginsBranch(id); err != nil {
		return nil, err
	}
	if g.row == nil && (hashes != nil || g.spec.Timeout > 0) {
		return g, g.begin(hashes)
	}
	return g, nil
}

// begin records the items and the deadline. Without a deadline the record is deferred: it is written before the records
// of the branches. With one, begin waits for the record, because the database computes the deadline.
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

// run starts the branches and calls decides with each branch that ends. It returns nil once all started branches have
// ended, or if the group itself is cancelled after its decision; without a decision, the members' ends are the group's
// result. It returns the cause if the group itself is cancelled before.
func (g *group) run(decides func(*member) decision) error {
	defer g.pass()
	defer g.learn()
	for limit := g.atOnce(); g.started < limit; {
		g.start()
	}
	for taken := 0; taken < g.started; {
		i, err := g.next(taken)
		switch {
		case errors.Is(err, errGroupTime):
			if err := g.decide(decision{TimedOut: true}, -1); err != nil {
				return err
			}
		case err != nil && g.decision.made() && !g.recalled:
			return nil
		case err != nil:
			g.abandon()
			return err
		default:
			taken++
			if err := g.takeEnd(i, decides); err != nil {
				return err
			}
		}
	}
	if g.decision.made() && !g.recalled {
		g.e.cancelChildrenBelow(g.b.at(), g.dead()...)
		g.e.exitIfStopped()
	}
	return nil
}

// pass counts the group as passed by its branch. What follows has a later time than the decision, because a fork
// compares these times.
func (g *group) pass() {
	if g.decision.made() {
		g.b.advance(g.row.FinishedAt)
	}
	g.b.passedBranch(g.id)
}

// atOnce returns how many branches are started at first. After a decision, these are all that had been started.
func (g *group) atOnce() int {
	switch {
	case g.recalled && g.decision.Started > 0:
		return min(len(g.members), g.decision.Started)
	case !g.recalled && g.spec.Concurrency > 0:
		return min(len(g.members), g.spec.Concurrency)
	}
	return len(g.members)
}

// takeEnd takes the end of the member with that index. It decides the group, or starts the next branch, unless the
// group is decided.
func (g *group) takeEnd(i int, decides func(*member) decision) error {
	m := &g.members[i]
	m.value, m.ended, m.err = m.future.take(g.b)
	m.over = true
	if g.decision.made() {
		return nil
	}
	if d := decides(m); d.made() {
		return g.decide(d, i)
	}
	if g.started < len(g.members) {
		g.start()
	}
	return nil
}

// start starts the next branch.
func (g *group) start() {
	i := g.started
	m := &g.members[i]
	g.started++
	m.branch = g.b.newBranch(g.id + "/" + m.name)
	m.branch.joins(&g.ends, i, g.races && !g.recalled)
	if g.recalled && m.name != g.decision.Winner { // branches that the winner started may go on
		m.branch.close(g.row.FinishedAt)
	}
	m.future = &Future{}
	m.future.start(m.branch, m.call)
}

// next waits until more than taken branches have ended, and returns the index of the next one. It returns errGroupTime
// once the group's Timeout is over, and the cause if the group itself is cancelled.
func (g *group) next(taken int) (int, error) {
	var deadline time.Time
	// otherwise the group was decided in time
	if g.row != nil && g.spec.Timeout > 0 && g.row.Status == store.Running && !g.b.Closed() {
		deadline = g.row.WakeAt
	}
	err := g.b.wait(deadline, waits.Wait{Kind: waits.Timeout, Name: g.id}, g.ends.after(taken))
	behind := g.b.behind()
	if behind {
		g.b.waitAnyway(g.ends.after(taken))
	}
	if cause := g.b.cancelled(); cause != nil && !behind { // the cancellation may be what the branches failed with
		return 0, cause
	}
	g.e.Lock()
	defer g.e.Unlock()
	switch i, ended := g.ends.atLocked(taken); {
	case ended:
		return i, nil
	case err == nil && !behind:
		return 0, errGroupTime
	}
	return 0, cmp.Or[error](err, errBranchCancelled)
}

// close ends a group whose branches have all ended, and returns their failures. With a Timeout the workflow may act on
// the end only once it is recorded: a replay after the deadline must not find the group open.
func (g *group) close() error {
	var failures []BranchFailure
	status, now := store.Completed, g.b.Now()
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
	case !g.b.Closed():
		g.b.deferRecord(g.record(status))
	}
	if failures != nil {
		return g.e.errors().Branches(failures)
	}
	return nil
}
