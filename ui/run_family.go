package ui

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A family is the view model of the runs that belong to a run.
type family struct {
	Ancestors []kagzi.RunInfo // the oldest first
	Children  []child         // all of them if they are few
	Groups    []kinGroup      // else groups of them
	Count     int             // children that were read
	More      bool            // the run has more, which are older
	Relatives []relative
}

// Any reports whether the run has a family.
func (f family) Any() bool { return len(f.Ancestors)+f.Count+len(f.Relatives) > 0 }

// Near returns the ancestors that are drawn: the parent, and its parent above it.
func (f family) Near() []kagzi.RunInfo { return f.Ancestors[max(0, len(f.Ancestors)-nearAncestors):] }

// Far returns the ancestors above those, the oldest first. The path at the top of the page has them, too.
func (f family) Far() []kagzi.RunInfo { return f.Ancestors[:max(0, len(f.Ancestors)-nearAncestors)] }

// MoreGroups returns how many groups are not drawn.
func (f family) MoreGroups() int { return max(0, len(f.Groups)-mostGroups) }

// Drawn returns the groups that are drawn.
func (f family) Drawn() []kinGroup { return f.Groups[:min(len(f.Groups), mostGroups)] }

// A child is a run that the run started.
type child struct {
	kagzi.RunInfo
	Children int  // its own, as far as they were read
	More     bool // it has more than these
}

// A kinGroup is the children of one workflow and status.
type kinGroup struct {
	Workflow string
	Status   kagzi.Status
	Runs     int
}

// A relative is the run that this one was made from, or one made from it.
type relative struct {
	kagzi.RunInfo        // only the ID if it is not there any more
	How           string // "restarted" or "forked"
	From          bool   // this run was made from it
	Step          string // of a fork
	At            time.Time
}

const (
	mostAncestors = 8
	nearAncestors = 2 // that are drawn
	// mostKin is how many children are drawn one by one; each of them is asked for its own children. If there are more,
	// they are drawn as groups.
	mostKin           = 12
	mostGroups        = 12
	mostChildren      = 1000 // that are read; the newest
	mostGrandchildren = 5
	mostRelatives     = 10
	familyEvery       = 3 * time.Second
)

// family returns the runs above and below the run. The number of looks is bounded.
func (p *runPage) family(ctx context.Context, run kagzi.RunInfo, log []admin.LogEntry,
	h *history,
) (family, error) {
	parents := run.Epoch > 0 // the history of earlier epochs is gone, and children of them may be there
	for _, a := range h.attempts {
		parents = parents || a.Child != ""
	}
	if !parents && run.Parent == "" && run.Origin == "" && len(log) == 0 {
		return family{}, nil
	}
	f := p.cache.Get(ctx, "family "+string(run.ID), familyEvery, func(ctx context.Context) (any, error) {
		var f family
		err := p.ancestors(ctx, &f, run.Parent)
		if err == nil && parents {
			err = p.children(ctx, &f, run.ID)
		}
		if err == nil {
			err = p.relatives(ctx, &f, run.Origin, log)
		}
		return f, err
	})
	out, _ := f.View.(family)
	return out, f.Err
}

func (p *runPage) ancestors(ctx context.Context, f *family, id kagzi.RunID) error {
	for id != "" && len(f.Ancestors) < mostAncestors {
		run, err := p.client.Get(ctx, id)
		if errors.Is(err, kagzi.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		run.Input, run.Output = nil, nil
		f.Ancestors = append([]kagzi.RunInfo{run}, f.Ancestors...)
		id = run.Parent
	}
	return nil
}

// children reads the newest children. If they are few, it also counts theirs.
func (p *runPage) children(ctx context.Context, f *family, id kagzi.RunID) error {
	runs, err := p.client.List(ctx, kagzi.RunFilter{Parent: id, Limit: mostChildren + 1})
	if err != nil {
		return err
	}
	if f.More = len(runs) > mostChildren; f.More {
		runs = runs[:mostChildren]
	}
	if f.Count = len(runs); f.Count > mostKin {
		f.Groups = groupsOf(runs)
		return nil
	}
	for _, run := range slices.Backward(runs) { // the oldest first
		theirs, err := p.client.List(ctx, kagzi.RunFilter{Parent: run.ID, Limit: mostGrandchildren + 1})
		if err != nil {
			return err
		}
		n := min(len(theirs), mostGrandchildren)
		f.Children = append(f.Children, child{run, n, len(theirs) > n})
	}
	return nil
}

// groupsOf returns the runs by workflow and status: first those that have failed, then the active ones, and of each the
// largest groups first.
func groupsOf(runs []kagzi.RunInfo) (groups []kinGroup) {
	counts := map[kinGroup]int{}
	for _, r := range runs {
		counts[kinGroup{Workflow: r.Workflow, Status: r.Status}]++
	}
	for g, n := range counts {
		g.Runs = n
		groups = append(groups, g)
	}
	rank := map[kagzi.Status]int{
		kagzi.StatusFailed: 0, kagzi.StatusRunning: 1, kagzi.StatusPending: 1, kagzi.StatusSleeping: 1,
		kagzi.StatusCancelled: 2, kagzi.StatusCompleted: 3,
	}
	slices.SortFunc(groups, func(a, b kinGroup) int {
		return cmp.Or(cmp.Compare(rank[a.Status], rank[b.Status]), cmp.Compare(b.Runs, a.Runs),
			cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Status, b.Status))
	})
	return groups
}

// Says says how the relative and this run belong together: "restarted from", "forked as, from step pay".
func (r relative) Says() string {
	text := r.How + " as"
	if r.From {
		text = r.How + " from"
	}
	if r.Step != "" {
		text += ", at step " + r.Step
	}
	return text
}

// parentage says what an ancestor is to this run.
func parentage(ancestor, run kagzi.RunInfo) string {
	if ancestor.ID == run.Parent {
		return "parent"
	}
	return "parent of the parent"
}

// bond says what a run is to its parent: "child ship", "undoes flight".
func bond(run kagzi.RunInfo) string {
	switch step, undoes := strings.CutSuffix(run.ParentStep, "#compensation"); {
	case undoes:
		return "undoes " + step
	case run.ParentStep != "":
		return "child " + run.ParentStep
	}
	return "child"
}

// relatives fills the runs that the log names: the restarts and forks.
func (p *runPage) relatives(ctx context.Context, f *family, origin kagzi.RunID, log []admin.LogEntry) error {
	for _, e := range log {
		if e.Other == "" || e.Event != "RESTARTED" && e.Event != "FORKED" || len(f.Relatives) >= mostRelatives {
			continue
		}
		r := relative{How: "restarted", From: e.Other == origin, Step: e.Step, At: e.At}
		if e.Event == "FORKED" {
			r.How = "forked"
		}
		run, err := p.client.Get(ctx, e.Other)
		if err != nil && !errors.Is(err, kagzi.ErrNotFound) {
			return err
		}
		run.ID, run.Input, run.Output = e.Other, nil, nil
		r.RunInfo = run
		f.Relatives = append(f.Relatives, r)
	}
	return nil
}
