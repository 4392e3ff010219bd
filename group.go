package kagzi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A decision is what a group remembers, so that a replay returns the same: its record's output.
type decision struct {
	Items    []string `json:"items,omitempty"`    // of Map: a hash of each
	Failed   string   `json:"failed,omitempty"`   // the branch whose error was returned
	Winner   string   `json:"winner,omitempty"`   // of Race
	TimedOut bool     `json:"timedOut,omitempty"` // the group's Timeout was first
}

// A group is a set of branches that belong together.
type group[T any] struct {
	b         *branch
	id        string
	cfg       branchConfig
	members   []member[T]
	started   int
	races     bool           // what the branches take is theirs only if they win
	ends      ends           // of the started ones
	row       *store.StepRow // the newest record; nil if there is none
	forgotten bool           // row is a failure of an earlier attempt of the run
	decision  decision
}

// ends are the branches of a group in the order in which they ended. The execution's mutex guards them.
type ends struct {
	event
	order []int
}

// newGroup checks the call and takes in what is recorded of the group.
func newGroup[T any](ctx Context, name string, members []member[T], opts []BranchOption, hashes []string) (*group[T], error) {
	b, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	id, err := b.enter("branch group", name)
	if err != nil {
		return nil, err
	}
	g := &group[T]{b: b, id: id, members: members}
	if g.cfg, err = branchOptions(opts); err != nil {
		return nil, b.misuse(failed(err, "%q", id))
	}
	for _, m := range members {
		if err := validateStepName("branch", m.name); err != nil {
			return nil, b.misuse(failed(err, "%q", id))
		}
		if m.fn == nil {
			return nil, b.misuse(fmt.Errorf("kagzi: %q: the function of branch %q is nil", id, m.name))
		}
	}
	if g.row = b.lookup(id, store.KindMarker); g.row != nil {
		g.recall(hashes)
	}
	if g.open() && (hashes != nil || g.cfg.timeout > 0 || g.row != nil) {
		g.begin(hashes)
	}
	return g, nil
}

// recall takes in the group's record, and refuses items other than those it was made for.
func (g *group[T]) recall(hashes []string) {
	e := g.b.e
	if err := json.Unmarshal(g.row.Output, &g.decision); err != nil {
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
	if g.row.RunAttempt != e.attempt && e.audit == nil && g.row.Status == store.Failed {
		g.forgotten, g.decision.Failed = true, "" // the run's next attempt forgets failures
	}
}

// open reports whether the group is not recorded, or as a failure that is forgotten.
func (g *group[T]) open() bool { return g.row == nil || g.forgotten }

// begin records the items and the deadline, and that a failure is forgotten: else what undoes the run would find the
// group decided by it. For that and the items nobody waits: the record is written before those of the branches. A deadline
// is the database's.
func (g *group[T]) begin(hashes []string) {
	g.b.begins()
	g.decision.Items = hashes
	r := g.record(store.Running)
	if g.cfg.timeout > 0 {
		r.Wake = g.cfg.timeout
		g.row = g.b.record(r)
		return
	}
	g.row = &r.StepRow
	g.b.deferRecord(r)
}

// record prepares the group's record with its decision. A failure of an earlier attempt of the run stays; the
// new attempt's record follows it.
func (g *group[T]) record(status string) *store.Record {
	attempt := 1
	if g.row != nil {
		if attempt = g.row.Attempt; g.row.Status == store.Failed {
			attempt++
		}
	}
	r := g.b.e.newRecord(g.id, store.KindMarker, status, attempt, attempt)
	r.Output, _ = json.Marshal(g.decision) // strings and a bool
	if status == store.Failed {
		r.ErrorKind, r.Error = string(KindUnknown), "branches failed"
		if g.decision.Failed != "" {
			r.Error = fmt.Sprintf("branch %q failed", g.decision.Failed)
		}
	}
	return r
}

// decide records the decision and waits for the record: only then may the workflow act on it.
func (g *group[T]) decide(status string) {
	g.b.begins()
	g.row = g.b.record(g.record(status))
}

// start starts the next branch, or the one given.
func (g *group[T]) start(i int) {
	m := &g.members[i]
	m.future = &Future[T]{}
	g.started++
	m.branch = m.future.start(g.b, g.races, g.id+"/"+m.name, m.fn, &g.ends, i)
}

// next waits until another branch has ended and returns its place. It returns an error of kind timeout once the
// group's time is over, and the cause if the group itself is cancelled.
func (g *group[T]) next(taken int) (int, error) {
	var deadline time.Time
	if g.row != nil && g.cfg.timeout > 0 && g.row.Status == store.Running { // else it was decided in time
		deadline = g.row.WakeAt
	}
	if err := g.b.wait(deadline, "branches "+g.id, &g.ends.event, taken); err != nil {
		return 0, err
	}
	if g.b.ctx.Err() != nil { // the branches' errors may come from there
		return 0, context.Cause(g.b.ctx)
	}
	g.b.e.mu.Lock()
	defer g.b.e.mu.Unlock()
	if len(g.ends.order) == taken {
		return 0, g.timeout()
	}
	return g.ends.order[taken], nil
}

func (g *group[T]) timeout() error {
	g.b.advance(g.row.WakeAt)
	return kinded{KindTimeout, fmt.Errorf("kagzi: branches of %q were not done after %v", g.id, g.cfg.timeout)}
}

// cancel cancels the branches but the one given, and waits for them if the group itself goes on.
func (g *group[T]) cancel(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but {
			m.branch.cancel(errBranchCancelled)
		}
	}
}

func (g *group[T]) join(taken int) {
	for ; taken < g.started; taken++ {
		if err := g.b.wait(time.Time{}, "branches "+g.id, &g.ends.event, taken); err != nil {
			return
		}
	}
}

// all runs every branch, and returns what each returned; nothing if that is decided by a failure or the time.
func (g *group[T]) all() ([]T, error) {
	defer g.b.passedBranch(g.id)
	if g.decision.Winner != "" {
		g.b.e.nondeterministic("%q was recorded as a Race, and is another group of branches now: give the new one another name", g.id)
	}
	out := make([]T, len(g.members))
	if g.decision.TimedOut {
		return out, g.timeout()
	}
	if g.decision.Failed != "" {
		_, err := g.decided(g.decision.Failed, false)
		return out, err
	}
	limit := len(g.members)
	if g.cfg.concurrency > 0 {
		limit = min(limit, g.cfg.concurrency)
	}
	for g.started < limit {
		g.start(g.started)
	}
	var failures BranchErrors
	now := g.b.now
	for taken := 0; taken < g.started; taken++ {
		i, err := g.next(taken)
		if err != nil {
			clear(out)
			return out, g.stop(err, taken)
		}
		value, ended, err := g.members[i].future.take(g.b)
		if err != nil {
			failure := &BranchError{Name: g.members[i].name, Index: i, Err: err}
			if !g.cfg.collect {
				g.b.advance(ended)
				clear(out)
				return out, g.fail(failure, taken+1)
			}
			failures = append(failures, failure)
		}
		if out[i] = value; ended.After(now) {
			now = ended
		}
		if g.started < len(g.members) {
			g.start(g.started)
		}
	}
	g.b.advance(now)
	g.close(failures)
	if failures != nil {
		slices.SortFunc(failures, func(a, b *BranchError) int { return a.Index - b.Index })
		return out, failures
	}
	return out, nil
}

// close records that the group is over. With a Timeout the workflow may act on that only once it is recorded: a
// replay that comes after the deadline must not find the group open. One that has failures is FAILED, or the run's next
// attempt, which forgets them, would have nowhere to record what it comes to.
func (g *group[T]) close(failures BranchErrors) {
	status := store.Completed
	if failures != nil {
		status = store.Failed
	}
	switch {
	case g.row == nil || g.row.Status != store.Running:
	case g.cfg.timeout > 0:
		g.decide(status)
	default:
		g.b.deferRecord(g.record(status))
	}
}

// decided runs, in a replay, the one branch whose success or failure decided the group: what the others would do
// now changes nothing any more.
func (g *group[T]) decided(name string, success bool) (result T, err error) {
	i := slices.IndexFunc(g.members, func(m member[T]) bool { return m.name == name })
	if i < 0 {
		g.b.e.nondeterministic("branch %q decided %q and is not there any more", name, g.id)
	}
	g.start(i)
	for taken := 0; ; taken++ {
		k, err := g.next(taken)
		if err != nil {
			return result, g.stop(err, taken)
		}
		if k == i {
			break
		}
	}
	value, ended, err := g.members[i].future.take(g.b)
	g.b.advance(ended)
	switch {
	case err == nil && success:
		return value, nil
	case err == nil:
		g.b.e.nondeterministic("branch %q failed, which decided %q, and succeeds in a replay", name, g.id)
	case success:
		g.b.e.nondeterministic("branch %q won %q, and fails in a replay: %v", name, g.id, err)
	}
	return result, &BranchError{Name: name, Index: i, Err: err}
}

// fail ends the group with the failure of a branch.
func (g *group[T]) fail(failure *BranchError, taken int) error {
	g.decision.Failed = failure.Name
	g.decide(store.Failed)
	g.cancel(failure.Index)
	g.join(taken)
	return failure
}

// stop ends the group because its time is over, or because it was cancelled itself.
func (g *group[T]) stop(cause error, taken int) error {
	if errors.Is(cause, KindTimeout) && !g.decision.TimedOut && g.b.ctx.Err() == nil {
		g.decision.TimedOut = true
		g.mute(-1)
		g.inherit(-1)
		g.decide(store.Completed)
	}
	if g.races { // what they read goes back: they must record nothing that follows from it
		g.mute(-1)
	}
	g.cancel(-1)
	g.inherit(-1)
	g.join(taken)
	return cause
}

// mute keeps the branches but the one given from recording anything more, and cancels them.
func (g *group[T]) mute(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but {
			m.branch.mute.Store(true)
		}
	}
	g.cancel(but)
}

// inherit leaves what the branch deferred that won to the group's, and drops what the others did; -1: all of them.
func (g *group[T]) inherit(winner int) {
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
			e.dropDeferredLocked(m.branch)
		}
	}
}

// adopt leaves what all branches deferred to the group's: none has won, and none has lost.
func (g *group[T]) adopt() {
	e := g.b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range g.members {
		g.members[i].branch.racing = false
	}
}

// first runs every branch until one succeeds.
func (g *group[T]) first() (winner string, result T, err error) {
	defer g.b.passedBranch(g.id)
	if g.decision.Failed != "" {
		g.b.e.nondeterministic("%q was recorded as a Parallel, and is a Race now: give the new one another name", g.id)
	}
	if g.decision.TimedOut {
		return "", result, g.timeout()
	}
	if winner = g.decision.Winner; winner != "" {
		result, err = g.decided(winner, true)
		return winner, result, err
	}
	g.races = true
	for i := range g.members {
		g.start(i)
	}
	var failures BranchErrors
	now := g.b.now
	for taken := 0; taken < g.started; taken++ {
		i, err := g.next(taken)
		if err != nil {
			return "", result, g.stop(err, taken)
		}
		value, ended, err := g.members[i].future.take(g.b)
		if err == nil {
			g.b.advance(ended)
			g.decision.Winner = g.members[i].name
			g.mute(i)
			g.inherit(i)
			g.decide(store.Completed)
			g.join(taken + 1)
			return g.members[i].name, value, nil
		}
		if ended.After(now) {
			now = ended
		}
		failures = append(failures, &BranchError{Name: g.members[i].name, Index: i, Err: err})
	}
	g.b.advance(now)
	g.adopt()
	g.close(failures)
	slices.SortFunc(failures, func(a, b *BranchError) int { return a.Index - b.Index })
	return "", result, failures
}
