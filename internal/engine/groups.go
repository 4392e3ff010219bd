package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A decision is what a group remembers, so that a replay returns the same: its record's output. At most one of Failed,
// Winner and TimedOut is set.
type decision struct {
	Items    []string `json:"items,omitempty"`    // of Map: a hash of each
	Failed   string   `json:"failed,omitempty"`   // the branch whose error was returned
	Winner   string   `json:"winner,omitempty"`   // of Race
	TimedOut bool     `json:"timedOut,omitempty"` // the group's Timeout was first
	Started  int      `json:"started,omitempty"`  // how many branches had begun by then; zero: all
}

// made reports whether one branch, or the time, has decided for all.
func (d *decision) made() bool { return d.Failed != "" || d.Winner != "" || d.TimedOut }

// A group is a set of branches that belong together.
type group struct {
	b        *Branch
	id       string
	spec     GroupSpec
	members  []member
	started  int
	races    bool           // what the branches take is theirs only if they win
	ends     ends           // of the started ones
	row      *store.StepRow // the newest record; nil if there is none, or it is forgotten
	attempt  int            // of the next record
	decision decision
	recalled bool // the decision is the history's: the branches are replayed from there only
}

// A groupSpec is a group of branches as the workflow function asks for it.
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

// A memberSpec is a branch of a group.
type MemberSpec struct {
	Name    string
	BadName error                      // what is wrong with the name, nil if nothing is
	Call    func(*Branch) (any, error) // nil is refused
}

// A member is a branch of a group.
type member struct {
	name   string
	call   func(*Branch) (any, error)
	future *Future // nil until started
	branch *Branch

	// How it ended, once that was taken in.
	over  bool
	value any
	ended time.Time // the branch's Now
	err   error
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

// recall takes in the group's record, and refuses items other than those it was made for.
func (g *group) recall(row *store.StepRow, hashes []string) {
	e := g.b.e
	if err := json.Unmarshal(row.Output, &g.decision); err != nil {
		e.nondeterministic("the record of %q is unreadable: %v", g.id, err)
	}
	if len(hashes) != len(g.decision.Items) {
		e.nondeterministic("Map %q was begun with %d items and now gets %d", g.id, len(g.decision.Items), len(hashes))
	}
	for i := range hashes {
		if hashes[i] != g.decision.Items[i] {
			e.nondeterministic("item %d of Map %q is not what it was when the Map was begun (a field added to its type changes it too, unless it is omitted while zero)", i, g.id)
		}
	}
	if g.attempt = row.Attempt; row.Status != store.Running {
		g.attempt++
	}
	if e.forgot(row) {
		g.decision = decision{}
		return
	}
	g.row, g.recalled = row, g.decision.made()
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

// record prepares the group's record with its decision.
func (g *group) record(status string) *store.Record {
	r := g.b.e.newRecord(g.id, store.KindMarker, status, g.attempt, g.attempt)
	r.Output, _ = json.Marshal(g.decision) // strings, a number and a bool
	if status == store.Failed {
		r.ErrorKind, r.Error = failure.KindUnknown, "branches failed"
		if g.decision.Failed != "" {
			r.Error = fmt.Sprintf("branch %q failed", g.decision.Failed)
		}
	}
	return r
}

// write records the decision and waits for the record: only then may the workflow act on it.
func (g *group) write(status string) error {
	if err := g.b.begins(); err != nil {
		return err
	}
	g.row = g.b.record(g.record(status))
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

var errGroupTime = errors.New("the group's time is over")

// timeout is the group's error once its time is over. It is permanent: in another attempt of the run the time is over, too.
func (g *group) timeout() error {
	g.b.advance(g.row.WakeAt)
	return failure.Permanent(failure.KindTimeout, fmt.Errorf("kagzi: branches of %q were not done after %v", g.id, g.spec.Timeout))
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

// dead returns the branches that the group's decision has ended.
func (g *group) dead() (out []*Branch) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && m.branch.dead.Load() {
			out = append(out, m.branch)
		}
	}
	return out
}

// learn takes over the failures that nothing has followed in the branches. Those in a branch that has won a race, or whose
// group has decided without it, count as dealt with.
func (g *group) learn() {
	var end *knownFailure
	switch {
	case g.decision.Failed != "":
		end = g.b.fails(g.id)
	case g.decision.made():
		end = &knownFailure{}
		end.followed.Store(true)
	}
	for i := range g.members {
		m := &g.members[i]
		if !m.over {
			continue
		}
		if m.name == g.decision.Winner {
			m.branch.follow()
		} else if m.branch.end == nil || g.decision.Failed == "" && end != nil {
			m.branch.end = end
		}
		g.b.learn(m.branch)
	}
}

// decide ends the group: it records the decision, and cancels the branches but the one that made it, if one did. What a
// failure decides is recorded before, because a branch that is cancelled may record what it was about. Losers of a race,
// and who was too late, record nothing any more.
func (g *group) decide(d decision, by int) error {
	if d.Items = g.decision.Items; g.started < len(g.members) {
		d.Started = g.started
	}
	g.decision = d
	if d.Failed != "" {
		if err := g.write(store.Failed); err != nil {
			return err
		}
		g.markDead(-1)
		g.cancel(by)
		return nil
	}
	g.lose(by)
	g.dropDeferred(by)
	if err := g.write(store.Completed); err != nil {
		return err
	}
	g.markDead(by)
	return nil
}

// end says that the decision has ended the branches but the one given, unless it is that of a group that has lost itself,
// which is not recorded.
func (g *group) markDead(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but && !g.b.hasLost() {
			m.branch.dead.Store(true)
		}
	}
}

// abandon cancels the branches, because the group itself was cancelled. What racers have read goes back, so they must
// record nothing that follows from it.
func (g *group) abandon() {
	if g.races {
		g.lose(-1)
	}
	g.cancel(-1)
	g.dropDeferred(-1)
}

// cancel cancels the branches but the one given.
func (g *group) cancel(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but && !m.branch.closed {
			m.branch.cancel(errBranchCancelled)
		}
	}
}

// lose keeps the branches but the one given from recording anything more, and cancels them.
func (g *group) lose(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but {
			m.branch.lost.Store(true)
		}
	}
	g.b.e.env.failpoint("losers muted", g.b.e.run.RunID)
	g.cancel(but)
}

// dropDeferred drops the deferred records of the losers of a race. Those of the winner are the group's branch's; -1: all lose.
func (g *group) dropDeferred(winner int) {
	if !g.races {
		return
	}
	e := g.b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range g.members {
		if m := &g.members[i]; i == winner {
			m.branch.racing = false // what branches below it read from now on is theirs
		} else if m.branch != nil {
			e.putBackLocked(e.dropDeferredLocked(m.branch))
		}
	}
}

// keepDeferred makes the deferred records of all branches those of the group's branch: none has won, and none has lost.
func (g *group) keepDeferred() {
	e := g.b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range g.members {
		g.members[i].branch.racing = false
	}
}

// all runs every branch, and returns what each returned; nothing if that is decided by a failure or the time.
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

// first runs every branch until one succeeds.
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

// decisive returns the branch that decided the group.
func (g *group) decisive(name string) *member {
	i := slices.IndexFunc(g.members, func(m member) bool { return m.name == name && m.over })
	if i < 0 {
		g.b.e.nondeterministic("branch %q decided %q and is not there any more", name, g.id)
	}
	g.b.advance(g.members[i].ended)
	return &g.members[i]
}

// failure is the error of a group that a branch decided by failing.
func (g *group) failure() error {
	m := g.decisive(g.decision.Failed)
	if m.err == nil {
		g.b.e.nondeterministic("branch %q failed, which decided %q, and succeeds in a replay", m.name, g.id)
	}
	f := g.failureOf(m)
	for i := range g.members { // they may be why the group fails again, in an attempt that forgets only m's failure
		if other := &g.members[i]; other != m && other.err != nil {
			f.Others = append(f.Others, g.failureOf(other))
		}
	}
	return g.b.e.env.errors.Branch(f)
}

func (g *group) failureOf(m *member) BranchFailure {
	return BranchFailure{Name: m.name, Index: m.branch.result.index, ID: m.branch.result.name, Err: m.err}
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
