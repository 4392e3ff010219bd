package ui

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	durations "github.com/kagzi/kagzi/internal/duration"
)

// A bulkVerb is a change of many runs.
type bulkVerb struct {
	verb      Verb
	past      string
	to        []kagzi.Status // that it applies to
	says      string
	danger    bool
	activates bool    // it takes the run's ID
	deletes   bool    // children go with their parents
	stops     bool    // it has no effect on a run that is cancelled already
	fields    []field // of the page that shows the plan
	ask       []field // that must be filled before there is a plan
	read      func(d *dashboard, f form) (bulkCalls, error)
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
	dry func(context.Context, kagzi.RunFilter) (kagzi.BulkResult, error)
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
			fields: []field{{
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
			ask: []field{
				{Name: "queue", Label: "Queue", Sort: "text", Help: "Workers of that queue claim the runs from " +
					"now on."},
				{Name: "priority", Label: "Priority", Sort: "select", Options: append([]option{{Label: "as it is"}},
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
func (d *dashboard) permitted(verb Verb, c bulkCalls, f form) bulkCalls {
	refused := func(id kagzi.RunID) error {
		return d.allow(f.r, Action{verb, OnRun, string(id)}, Action{View, OnRun, string(id)})
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
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
			id = kagzi.RunID(canonical(string(id)))
			if err := refused(id); err != nil {
				return "", err
			}
			return c.one(ctx, id)
		},
	}
}

// changed has no new run.
func changed(err error) (kagzi.RunID, error) { return "", err }

func bulkCancel(d *dashboard, f form) (c bulkCalls, err error) {
	opts := f.options()
	if s := f.get("grace"); s != "" {
		grace, err := durations.Parse(s)
		if err != nil {
			return c, badRequest("The grace %q is no duration: write 30s or 5m.", s)
		}
		opts = append(opts, kagzi.Grace(grace))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.CancelAll(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.Cancel(ctx, id, opts...))
		},
	}, nil
}

func bulkTerminate(d *dashboard, f form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.TerminateAll(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.Terminate(ctx, id, f.options()...))
		},
	}, nil
}

func bulkResume(d *dashboard, f form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.ResumeAll(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.Resume(ctx, id, f.options()...))
		},
	}, nil
}

func bulkRestart(d *dashboard, f form) (bulkCalls, error) {
	var opts []kagzi.RestartOption
	if f.actor != "" {
		opts = append(opts, kagzi.Actor(f.actor))
	}
	if f.reason() != "" {
		opts = append(opts, kagzi.Reason(f.reason()))
	}
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.RestartAll(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return d.client.Restart(ctx, id, opts...)
		},
	}, nil
}

func bulkUnpause(d *dashboard, f form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.UnpauseRuns(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.UnpauseRun(ctx, id, f.options()...))
		},
	}, nil
}

func bulkUpdate(d *dashboard, f form) (bulkCalls, error) {
	opts, err := updates(f.get("queue"), f.get("priority"), f.get("due"), time.Now())
	all := append(opts, f.updateOptions()...)
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.UpdateAll(ctx, rf, append(opts, kagzi.DryRun())...)
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.Update(ctx, id, all...))
		},
	}, err
}

func bulkDelete(d *dashboard, f form) (bulkCalls, error) {
	return bulkCalls{
		dry: func(ctx context.Context, rf kagzi.RunFilter) (kagzi.BulkResult, error) {
			return d.client.DeleteAll(ctx, rf, kagzi.DryRun())
		},
		one: func(ctx context.Context, id kagzi.RunID) (kagzi.RunID, error) {
			return changed(d.client.Delete(ctx, id, f.options()...))
		},
	}, nil
}

// updates reads what an update of one or many runs changes.
func updates(queue, priority, due string, now time.Time) (opts []kagzi.UpdateOption, err error) {
	if queue != "" {
		opts = append(opts, kagzi.Queue(queue))
	}
	if priority != "" {
		n, err := strconv.Atoi(priority)
		if err != nil {
			return nil, badRequest("The priority is %q: give 1 to 4.", priority)
		}
		opts = append(opts, kagzi.Priority(n))
	}
	if due != "" {
		at, err := future(due, now)
		if err != nil {
			return nil, err
		}
		opts = append(opts, at)
	}
	return opts, nil
}
