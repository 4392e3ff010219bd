package replay

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A decision is what a group has decided, so that every replay returns the same. It is the output of the group's
// record. At most one of Failed, Winner and TimedOut is set. See doc_groups.go.
type decision struct {
	Items    []string `json:"items,omitempty"`    // of Map: a hash of each
	Failed   string   `json:"failed,omitempty"`   // the branch whose error was returned
	Winner   string   `json:"winner,omitempty"`   // of Race
	TimedOut bool     `json:"timedOut,omitempty"` // the group's Timeout ended it
	Started  int      `json:"started,omitempty"`  // how many branches had begun by then; zero: all of them
}

// made reports whether one branch, or the timeout, has decided the group.
func (d *decision) made() bool { return d.Failed != "" || d.Winner != "" || d.TimedOut }

// isTimeout reports whether the group's Timeout has decided it.
func (d *decision) isTimeout() bool { return d.TimedOut }

// ends reports whether the decision, which is made, has ended the branch of that name.
func (d *decision) ends(name string) bool { return name != d.Winner }

// recall takes over the group's record. It quarantines the run if the items are not those of the record.
func (g *group) recall(row *store.StepRow, hashes []string) {
	e := g.e
	if g.spec.Refused != nil {
		e.nondeterministic(g.id, "Map %q was begun with items that it refuses now: %v", g.id, g.spec.Refused)
	}
	if err := json.Unmarshal(row.Output, &g.decision); err != nil {
		e.nondeterministic(g.id, "the record of %q is unreadable: %v", g.id, err)
	}
	if len(hashes) != len(g.decision.Items) {
		e.nondeterministic(g.id, "Map %q was begun with %d items and now gets %d", g.id, len(g.decision.Items),
			len(hashes))
	}
	for i := range hashes {
		if hashes[i] != g.decision.Items[i] {
			e.nondeterministic(g.id, "item %d of Map %q is not what it was when the Map was begun (a field added to "+
				"its type changes it too, unless it is omitted while zero)", i, g.id)
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

// record prepares the group's record, with its decision.
func (g *group) record(status string) *store.Record {
	r := g.e.newRecord(g.id, store.KindMarker, status, g.attempt, g.attempt)
	r.Output, _ = json.Marshal(g.decision) // strings, a number and a bool
	if status == store.Failed {
		r.ErrorKind, r.Error = string(kind.Unknown), "branches failed"
		if g.decision.Failed != "" {
			r.Error = fmt.Sprintf("branch %q failed", g.decision.Failed)
		}
	}
	return r
}

// write records the decision and waits until that is written: only then may the workflow act on it.
func (g *group) write(status string) error {
	if err := g.b.begins(); err != nil {
		return err
	}
	g.row = g.b.record(g.record(status))
	return nil
}

// decide ends the group by a decision of branch by, or of none if by is -1: it records the decision, and cancels all
// branches but that one. The decision of a failure is written before the cancel, because cancelled branches may still
// record the operations that they are in. Losers of a race, and branches that are late for the timeout, stop recording
// before the decision is written.
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

// markDead marks all branches but the given one as ended by the decision. It marks none if the group's own branch has
// lost: then the decision is not recorded.
func (g *group) markDead(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but && !g.b.hasLost() {
			m.branch.die()
		}
	}
}

// dead returns the branches that the decision has ended.
func (g *group) dead() (out []*node) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && m.branch.isDead() {
			out = append(out, m.branch.at())
		}
	}
	return out
}

// abandon cancels the branches, because the group's own branch was cancelled. The messages that racers have taken go
// back, so racers must record nothing that follows from them.
func (g *group) abandon() {
	if g.races {
		g.lose(-1)
	}
	g.cancel(-1)
	g.dropDeferred(-1)
}

// cancel cancels all branches but the given one.
func (g *group) cancel(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but && !m.branch.Closed() {
			m.branch.callOff()
		}
	}
}

// lose keeps all branches but the given one from recording anything more, and cancels them.
func (g *group) lose(but int) {
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && i != but {
			m.branch.lose()
		}
	}
	g.e.Failpoint("losers stopped", g.e.RunID)
	g.cancel(but)
}

// dropDeferred drops the deferred records of a race's losers; those of the winner pass to the group's branch. If winner
// is -1, all lose.
func (g *group) dropDeferred(winner int) {
	if !g.races {
		return
	}
	e := g.e
	e.Lock()
	defer e.Unlock()
	for i := range g.members {
		if m := &g.members[i]; i == winner {
			m.branch.raceNoMoreLocked() // from now on, branches below it keep what they take
		} else if m.branch != nil {
			e.putBackLocked(e.dropDeferredLocked(m.branch.at()))
		}
	}
}

// keepDeferred passes the deferred records of all branches to the group's branch: none has won, and none has lost.
func (g *group) keepDeferred() {
	e := g.e
	e.Lock()
	defer e.Unlock()
	for i := range g.members {
		g.members[i].branch.raceNoMoreLocked()
	}
}

// learn gives the group's branch the failures that nothing has followed in the members. Failures in the winner of a
// race, and in branches that a race or the timeout was decided without, count as followed.
func (g *group) learn() {
	var end *knownFailure
	switch {
	case g.decision.Failed != "":
		end = g.b.fails(g.id)
	case g.decision.made():
		end = followedFailure()
	}
	g.outrun()
	for i := range g.members {
		m := &g.members[i]
		if !m.over {
			continue
		}
		if m.name == g.decision.Winner {
			m.branch.follow()
		} else {
			m.branch.endsWith(end, g.decision.Failed == "")
		}
		g.b.learn(m.branch)
	}
}

// outrun marks the losers of a race that has a winner.
func (g *group) outrun() {
	g.e.Lock()
	defer g.e.Unlock()
	for i := range g.members {
		if m := &g.members[i]; m.branch != nil && g.decision.Winner != "" && m.name != g.decision.Winner {
			m.branch.outrunLocked()
		}
	}
}

// decisive returns the member of that name, which decided the group.
func (g *group) decisive(name string) *member {
	i := slices.IndexFunc(g.members, func(m member) bool { return m.name == name && m.over })
	if i < 0 {
		g.e.nondeterministic(g.id, "branch %q decided %q and is not there any more", name, g.id)
	}
	g.b.advance(g.members[i].ended)
	return &g.members[i]
}

// failure returns the error of a group that the failure of a branch decided.
func (g *group) failure() error {
	m := g.decisive(g.decision.Failed)
	if m.err == nil {
		g.e.nondeterministic(g.id, "branch %q failed, which decided %q, and succeeds in a replay", m.name, g.id)
	}
	var others []BranchFailure
	for i := range g.members { // they may fail the group again, in an attempt that forgets only m's failure
		if other := &g.members[i]; other != m && other.err != nil {
			others = append(others, g.failureOf(other))
		}
	}
	return g.e.errors().Branch(m.future.failureOf(m.name, m.err, others))
}

func (g *group) failureOf(m *member) BranchFailure {
	return m.future.failureOf(m.name, m.err, nil)
}

// timeout returns the group's error after its deadline. It is permanent: another attempt of the run has the same
// deadline.
func (g *group) timeout() error {
	g.b.advance(g.row.WakeAt)
	return failure.Permanent(kind.Timeout, fmt.Errorf("kagzi: branches of %q were not done after %v", g.id,
		g.spec.Timeout))
}
