package ui

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	durations "github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A bulkVerb is a change of many runs.
type bulkVerb struct {
	verb      Verb
	past      string
	to        []kagzi.Status // that it applies to
	says      string
	danger    bool
	activates bool        // it takes the run's ID
	deletes   bool        // children go with their parents
	stops     bool        // it has no effect on a run that is cancelled already
	fields    []web.Field // of the page that shows the plan
	ask       []web.Field // that must be filled before there is a plan
	read      func(b *bulkForms, f web.Form) (bulkCalls, error)
}

// appliesTo reports whether a run of the status may be changed.
func (v bulkVerb) appliesTo(s kagzi.Status) bool { return slices.Contains(v.to, s) }

// statuses returns the names of those that it applies to.
func (v bulkVerb) statuses() string {
	var names []string
	for _, s := range v.to {
		names = append(names, strings.ToLower(string(s)))
	}
	return strings.Join(names, " ")
}

// bulkCalls change one run, and try a change of those that a filter selects.
type bulkCalls struct {
	dry func(context.Context, kagzi.RunFilter) (admin.BulkResult, error)
	one func(context.Context, kagzi.RunID) (kagzi.RunID, error) // returns the new run, if it makes one
}

// bulkVerbs are the changes of many runs. None of them pauses runs: a pause of their queue, workflow, key or group does
// that in one step.
func bulkVerbs() []bulkVerb {
	active, over := statuses["active"], statuses["ended"]
	return []bulkVerb{
		{
			verb: Cancel, past: "cancelled", to: active, stops: true,
			says: "Each run ends as cancelled, with its children. Compensations run first.", read: bulkCancel,
			fields: []web.Field{{
				Name: "grace", Label: "Grace", Sort: "text", Hint: "30s",
				Help: "How long steps under way may go on before they are told to stop.",
			}},
		},
		{
			verb: Terminate, past: "terminated", to: active, stops: true, danger: true,
			says: "Each run ends at once, with its children, and without compensations.", read: bulkTerminate,
		},
		{
			verb: Resume, past: "resumed", to: []kagzi.Status{kagzi.StatusFailed, kagzi.StatusCancelled},
			activates: true, read: bulkResume,
			says: "Each run continues: what made it fail is tried again, and all recorded results stay.",
		},
		{
			verb: Restart, past: "restarted", to: over, activates: true, read: bulkRestart,
			says: "For each run a new one starts with the same input and ID, and executes every step anew. A run " +
				"without an ID is restarted again whenever this is repeated.",
		},
		{verb: Unpause, past: "unpaused", to: active, says: "Each run goes on, also if its queue or workflow is " +
			"paused.", read: bulkUnpause},
		{
			verb: Update, past: "updated", to: []kagzi.Status{kagzi.StatusPending, kagzi.StatusSleeping},
			read: bulkUpdate,
			says: "Each run is changed if it waits. One that a worker executes is left out.",
			ask: []web.Field{
				{Name: "queue", Label: "Queue", Sort: "text", Help: "Workers of that queue claim the runs from " +
					"now on."},
				{Name: "priority", Label: "Priority", Sort: "select", Options: append([]web.Option{{Label: "as it is"}},
					priorities(0)[1:]...)},
				{
					Name: "due", Label: "Due", Sort: "text", Hint: "now, 2h, or 2026-10-01 08:00 (UTC)",
					Help: "Of pending runs.",
				},
			},
		},
		{
			verb: Delete, past: "deleted", to: over, danger: true, deletes: true, read: bulkDelete,
			says: "Each run is deleted for good, with its steps, messages and children.",
		},
	}
}

// permitted returns the calls without the runs that Authorize refuses.
func permitted(verb Verb, c bulkCalls, f web.Form) bulkCalls {
	refused := func(id kagzi.RunID) error {
		return f.Allow(asks(verb, OnRun, string(id)), asks(View, OnRun, string(id)))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			would, err := c.dry(ctx, rf)
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
			return c.one(ctx, id)
		},
	}
}

// noNew is the answer of a change that makes no run.
func noNew(err error) (kagzi.RunID, error) { return "", err }

func bulkCancel(b *bulkForms, f web.Form) (c bulkCalls, err error) {
	opts := f.Options()
	if s := f.Get("grace"); s != "" {
		grace, err := durations.Parse(s)
		if err != nil {
			return c, web.BadRequest("The grace %q is no duration: write 30s or 5m.", s)
		}
		opts = append(opts, kagzi.Grace(grace))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.CancelAll(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.client.Cancel(ctx, id, opts...))
		},
	}, nil
}

func bulkTerminate(b *bulkForms, f web.Form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.TerminateAll(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.admin.Terminate(ctx, id, f.Options()...))
		},
	}, nil
}

func bulkResume(b *bulkForms, f web.Form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.ResumeAll(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.admin.Resume(ctx, id, f.Options()...))
		},
	}, nil
}

func bulkRestart(b *bulkForms, f web.Form) (bulkCalls, error) {
	var opts []admin.RestartOption
	if f.Actor != "" {
		opts = append(opts, kagzi.Actor(f.Actor))
	}
	if f.Reason() != "" {
		opts = append(opts, kagzi.Reason(f.Reason()))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.RestartAll(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return b.admin.Restart(ctx, id, opts...)
		},
	}, nil
}

func bulkUnpause(b *bulkForms, f web.Form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.UnpauseRuns(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.admin.UnpauseRun(ctx, id, f.Options()...))
		},
	}, nil
}

func bulkUpdate(b *bulkForms, f web.Form) (bulkCalls, error) {
	opts, err := updates(f.Get("queue"), f.Get("priority"), f.Get("due"), time.Now())
	all := append(opts, updateOptions(f)...)
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.UpdateAll(ctx, rf, append(opts, admin.DryRun())...)
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.admin.Update(ctx, id, all...))
		},
	}, err
}

func bulkDelete(b *bulkForms, f web.Form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (admin.BulkResult, error) {
			return b.admin.DeleteAll(ctx, rf, admin.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return noNew(b.admin.Delete(ctx, id, f.Options()...))
		},
	}, nil
}
