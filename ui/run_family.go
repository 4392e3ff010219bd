package ui

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi"
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
func (d *dashboard) family(ctx context.Context, v *runView, h *history) (family, error) {
	parents := false
	for _, a := range h.attempts {
		parents = parents || a.Child != ""
	}
	if !parents && v.Run.Parent == "" && v.Run.Origin == "" && len(v.Log) == 0 {
		return family{}, nil
	}
	f := d.cache.get(ctx, "family "+string(v.Run.ID), familyEvery, func(ctx context.Context) (any, error) {
		var f family
		err := d.ancestors(ctx, &f, v.Run.Parent)
		if err == nil && parents {
			err = d.children(ctx, &f, v.Run.ID)
		}
		if err == nil {
			err = d.relatives(ctx, &f, v)
		}
		return f, err
	})
	out, _ := f.view.(family)
	return out, f.err
}

func (d *dashboard) ancestors(ctx context.Context, f *family, id kagzi.RunID) error {
	for id != "" && len(f.Ancestors) < mostAncestors {
		run, err := d.client.Get(ctx, id)
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

func (d *dashboard) children(ctx context.Context, f *family, id kagzi.RunID) error {
	runs, err := d.client.List(ctx, kagzi.RunFilter{Parent: id, Limit: mostKin + 1})
	if err != nil {
		return err
	}
	if f.More = len(runs) > mostKin; f.More {
		runs = runs[:mostKin]
	}
	for i, run := range runs {
		c := child{RunInfo: run}
		if i < mostParents {
			if c.Children, err = d.client.List(ctx, kagzi.RunFilter{Parent: run.ID, Limit: mostGrandchildren +
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
func (d *dashboard) relatives(ctx context.Context, f *family, v *runView) error {
	for _, e := range v.Log {
		if e.Other == "" || e.Event != "RESTARTED" && e.Event != "FORKED" || len(f.Relatives) >= mostRelatives {
			continue
		}
		r := relative{How: "restarted", From: e.Other == v.Run.Origin, Step: e.Step, At: e.At}
		if e.Event == "FORKED" {
			r.How = "forked"
		}
		run, err := d.client.Get(ctx, e.Other)
		if err != nil && !errors.Is(err, kagzi.ErrNotFound) {
			return err
		}
		run.ID, run.Input, run.Output = e.Other, nil, nil
		r.RunInfo = run
		f.Relatives = append(f.Relatives, r)
	}
	return nil
}
