package changes

import (
	"context"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

// oneChange is what a verb for one run prints as JSON.
type oneChange struct {
	Verb string      `json:"verb"`
	Run  kagzi.Ref   `json:"run"`
	New  kagzi.RunID `json:"new,omitempty"`

	DryRun bool `json:"dry_run,omitempty"` // nothing was changed, and Status is that of the run

	// of a run that was to be stopped: an active one while it is being cancelled
	Status kagzi.Status `json:"status,omitempty"`
	// it was cancelled, was being cancelled was paused before, or had the values that it was to get
	Already bool `json:"already,omitempty"`
}

// tryOne shows what a verb would do to one run, and changes nothing. Its error is that which the verb would have.
func tryOne(ctx context.Context, p *command.Program, c *kagzi.Client, v *verb, ref kagzi.Ref) error {
	run, err := c.Get(ctx, ref)
	if err != nil {
		return err
	}
	if v.stops && run.Status == kagzi.StatusCancelled {
		return p.Done(oneChange{Verb: v.name, Run: ref, DryRun: true, Status: run.Status, Already: true},
			"%s was cancelled already, %s: nothing would be changed", ref, p.Screen.Time(run.EndedAt))
	}
	would, err := v.all(ctx, c, kagzi.RunFilter{
		IDs:    []kagzi.RunID{run.ID},
		Status: slices.Concat(selection.Statuses["active"], selection.Statuses["ended"]),
	})
	reason := would.Skipped[run.ID]
	switch {
	case err != nil:
		return err
	case reason != nil && v.already != nil && !command.Inapplicable(reason):
		return p.Done(oneChange{Verb: v.name, Run: ref, DryRun: true, Status: run.Status, Already: true},
			"%s was so already: nothing would be changed", ref)
	case reason != nil:
		return reason
	}
	return p.Done(oneChange{Verb: v.name, Run: ref, DryRun: true, Status: run.Status},
		"%s would be %s: nothing was changed", ref, v.past)
}

func changeOne(ctx context.Context, p *command.Program, c *kagzi.Client, v *verb, ref kagzi.Ref) error {
	if v.stops {
		return stopOne(ctx, p, c, v, ref)
	}
	if v.already != nil {
		return changeUnlessSo(ctx, p, c, v, ref)
	}
	as, err := v.one(ctx, c, ref)
	if err != nil {
		return err
	}
	if as != "" {
		return p.Done(oneChange{Verb: v.name, Run: ref, New: as}, "%s %s as run %s", v.past, ref, as)
	}
	return p.Done(oneChange{Verb: v.name, Run: ref}, "%s %s", v.past, ref)
}

// changeUnlessSo is changeOne for a verb that may have nothing to change: it looks at the run before and after, and
// says so.
func changeUnlessSo(ctx context.Context, p *command.Program, c *kagzi.Client, v *verb, ref kagzi.Ref) error {
	var before was
	var err error
	if before.run, err = c.Get(ctx, ref); err == nil {
		before.log, err = admin.New(c).RunLog(ctx, before.run.ID)
	}
	if err == nil {
		_, err = v.one(ctx, c, before.run.ID) // an ID may be that of another run by now
	}
	if err != nil {
		return err
	}
	why, err := v.already(ctx, c, before)
	if err != nil {
		return err
	}
	if why != "" {
		return p.Done(oneChange{Verb: v.name, Run: ref, Already: true}, "%s %s", ref, why)
	}
	return p.Done(oneChange{Verb: v.name, Run: ref}, "%s %s", v.past, ref)
}
