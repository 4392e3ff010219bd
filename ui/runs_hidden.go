package ui

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// The sorts of runs that the list can hide.
const (
	hideConsumers     = "consumers"
	hideCompensations = "compensations"
)

// A hiding says which runs the list hides.
type hiding struct {
	consumers     map[string]bool // their names, which are the workflows of their runs; nil if they are shown
	compensations bool
}

// wrongSort returns the error of a query that asks to hide something else.
func wrongSort(q web.Query) error {
	for _, sort := range q.Values["hide"] {
		if sort != "" && sort != hideConsumers && sort != hideCompensations {
			return web.BadRequest("There is nothing called %q to hide: use %s or %s.", sort, hideConsumers,
				hideCompensations)
		}
	}
	return nil
}

// hidingOf returns what the query asks to hide.
func (p *runsPage) hidingOf(ctx context.Context, q web.Query) (h hiding, err error) {
	if slices.Contains(q.Values["hide"], hideConsumers) {
		h.consumers, err = p.consumers(ctx)
	}
	h.compensations = slices.Contains(q.Values["hide"], hideCompensations)
	return h, err
}

// consumersEvery is how often the names of consumers are looked up: there are rarely new ones.
const consumersEvery = 30 * time.Second

// consumers returns the names of consumers.
func (p *runsPage) consumers(ctx context.Context) (map[string]bool, error) {
	f := p.cache.Get(ctx, "names of consumers", consumersEvery, func(ctx context.Context) (any, error) {
		all, err := p.admin.Consumers.List(ctx)
		names := map[string]bool{}
		for _, c := range all {
			names[c.Name] = true
		}
		return names, err
	})
	names, _ := f.View.(map[string]bool)
	return names, f.Err
}

// compensationStep ends the name under which a run starts one of its compensations.
const compensationStep = "#compensation"

// any reports whether some sort of runs is hidden.
func (h hiding) any() bool { return h.consumers != nil || h.compensations }

// hides reports whether the list hides the run.
func (h hiding) hides(r kagzi.RunInfo) bool {
	return h.consumers[r.Workflow] || h.compensations && strings.HasSuffix(r.ParentStep, compensationStep)
}

const (
	// mostSifted is how many runs a page reads at most to find those that are not hidden.
	mostSifted   = 1000
	siftedAtOnce = 250
)

// sift fills the page of the list with runs that are not hidden. It reads a bounded number of runs, so a page may have
// few of them although others follow.
func (v *runList) sift(ctx context.Context, c *kagzi.Client, q web.Query, f kagzi.RunFilter, h hiding) error {
	f.Limit = pageSize + 1 // so that it is known whether another page follows
	if h.any() {
		f.Limit = siftedAtOnce
	}
	for read := 0; read == 0 || read < mostSifted; {
		runs, err := c.List(ctx, f)
		if err != nil {
			return err
		}
		for _, r := range runs {
			switch {
			case h.hides(r):
				v.Hidden++
			case len(v.Runs) == pageSize:
				v.Next = q.With("after", string(v.Runs[pageSize-1].ID))
				return nil
			default:
				v.Runs = append(v.Runs, r)
			}
		}
		if len(runs) < f.Limit {
			return nil
		}
		read, f.After = read+len(runs), runs[len(runs)-1].ID
	}
	v.Next = q.With("after", string(f.After))
	return nil
}

// Hides reports whether the list hides a sort of runs.
func (s *screen) Hides(sort string) bool { return slices.Contains(s.Query.Values["hide"], sort) }
