package ui

import (
	"context"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// bulkVerbs are the changes of many runs. None of them pauses runs: a pause of their queue, workflow, key or group does
// that in one step. None needs what only a run of its own has, such as a step.
func bulkVerbs() []deeds.Deed {
	return slices.DeleteFunc(deeds.All(), func(d deeds.Deed) bool { return d.Many == nil || d.Verb == string(Fork) })
}

// bulkFields are the fields of a change of many runs. If some of them must be filled before there is a plan, they are
// all.
func bulkFields(d deeds.Deed) (all []deeds.Field) {
	for _, f := range d.Fields {
		own := len(d.Many.Ask) == 0 && !f.One && !f.Rare && f.Kind != deeds.Hidden && f.Kind != deeds.Several
		if own || slices.Contains(d.Many.Ask, f.Name) {
			all = append(all, f)
		}
	}
	return all
}

// bulkCalls change one run, and try a change of those that a filter selects.
type bulkCalls struct {
	dry func(context.Context, kagzi.RunFilter) (admin.BulkResult, error)
	one func(context.Context, kagzi.RunID) (kagzi.RunID, error) // returns the new run, if it makes one
}

// permitted returns the calls of a deed without the runs that Authorize refuses.
func (b *bulkForms) permitted(d deeds.Deed, f web.Form) bulkCalls {
	asked := askedBy(b.client, f)
	refused := func(id kagzi.RunID) error {
		return f.Allow(asks(Verb(d.Verb), OnRun, string(id)), asks(View, OnRun, string(id)))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			would, err := d.Many.Dry(ctx, asked, rf)
			would.Changed = slices.DeleteFunc(would.Changed, func(id kagzi.RunID) bool {
				why := refused(id)
				if why != nil && would.Skipped == nil {
					would.Skipped = map[kagzi.RunID]error{}
				}
				if why != nil {
					would.Skipped[id] = why
				}
				return why != nil
			})
			return would, err
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			id = kagzi.RunID(web.Canonical(string(id)))
			if err := refused(id); err != nil {
				return "", err
			}
			return d.Many.One(ctx, asked, id)
		},
	}
}
