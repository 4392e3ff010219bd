package ui

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A family is the view model of the runs that belong to a run.
type family struct {
	Ancestors []kagzi.RunInfo // the oldest first
	Children  []child
	More      bool // children than these
	Relatives []relative
}

// Any reports whether the run has a family.
func (f family) Any() bool { return len(f.Ancestors)+len(f.Children)+len(f.Relatives) > 0 }

// A child is a run that the run started, with some of its own children.
type child struct {
	kagzi.RunInfo
	Children []kagzi.RunInfo
	More     bool
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
	mostAncestors     = 8
	mostKin           = 30
	mostParents       = 8 // how many children are asked for their own children
	mostGrandchildren = 5
	mostRelatives     = 10
	familyEvery       = 3 * time.Second
)

// family returns the runs above and below the run. The number of looks is bounded.
func (p *runPage) family(ctx context.Context, run kagzi.RunInfo, log []admin.LogEntry,
	h *history,
) (family, error) {
	parents := false
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

func (p *runPage) children(ctx context.Context, f *family, id kagzi.RunID) error {
	runs, err := p.client.List(ctx, kagzi.RunFilter{Parent: id, Limit: mostKin + 1})
	if err != nil {
		return err
	}
	if f.More = len(runs) > mostKin; f.More {
		runs = runs[:mostKin]
	}
	for i, run := range runs {
		c := child{RunInfo: run}
		if i < mostParents {
			if c.Children, err = p.client.List(ctx, kagzi.RunFilter{Parent: run.ID, Limit: mostGrandchildren +
				1}); err != nil {
				return err
			}
			if c.More = len(c.Children) > mostGrandchildren; c.More {
				c.Children = c.Children[:mostGrandchildren]
			}
		}
		f.Children = append(f.Children, c)
	}
	return nil
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
