package cli

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// A filter is the flags that select runs.
type filter struct {
	status, metadata                 []string
	workflow, queue, id, parent, key string
	group, schedule, since, until    string
	kind, waitingOn                  string
	endedSince, endedUntil           string
	paused                           bool
	recoveries, limit                int
	set                              *pflag.FlagSet // the command's flags
}

// statuses are the names that --status takes, with those that stand for several.
var statuses = map[string][]kagzi.Status{
	"pending":   {kagzi.StatusPending},
	"running":   {kagzi.StatusRunning},
	"sleeping":  {kagzi.StatusSleeping},
	"completed": {kagzi.StatusCompleted},
	"failed":    {kagzi.StatusFailed},
	"cancelled": {kagzi.StatusCancelled},
	"active":    {kagzi.StatusPending, kagzi.StatusRunning, kagzi.StatusSleeping},
	"ended":     {kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled},
}

// statusNames are the keys of statuses, in the order of a run's life.
var statusNames = []string{"pending", "running", "sleeping", "completed", "failed", "cancelled", "active", "ended"}

// selecting are the flags that select runs; --limit alone does not.
var selecting = []string{
	"status", "workflow", "queue", "parent", "schedule", "key", "group", "metadata", "kind",
	"waiting-on", "min-recoveries", "paused", "since", "until", "ended-since", "ended-until",
}

// flags adds the flags to a command that changes or lists runs.
func (f *filter) flags(c *cobra.Command, limit int, limitUsage string) {
	f.selectingFlags(c)
	c.Flags().IntVar(&f.limit, "limit", limit, limitUsage)
}

// selectingFlags adds the flags that select runs.
func (f *filter) selectingFlags(c *cobra.Command) {
	fs := c.Flags()
	f.set = fs
	fs.StringSliceVarP(&f.status, "status", "s", nil, "only `STATUSES`: "+strings.Join(statusNames, ", ")+
		"; active and ended stand for three each")
	fs.StringVarP(&f.workflow, "workflow", "w", "", "only runs of the workflow `NAME`")
	fs.StringVarP(&f.queue, "queue", "q", "", "only runs of the queue `NAME`")
	fs.StringVar(&f.parent, "parent", "", "only children of the run with the `RUN-ID`")
	fs.StringVar(&f.schedule, "schedule", "", "only runs that the schedule `NAME` started")
	fs.StringVar(&f.key, "key", "", "only runs with the `KEY`")
	fs.StringVar(&f.group, "group", "", "only runs of the `GROUP`")
	fs.StringArrayVarP(&f.metadata, "metadata", "m", nil, "only runs that have the tag, as `NAME=VALUE`; may be "+
		"repeated")
	fs.StringVarP(&f.kind, "kind", "k", "", "only runs whose last failure is of the `KIND`: unavailable, timeout, or "+
		"one of the application")
	fs.StringVar(&f.waitingOn, "waiting-on", "", "only runs that wait for `WHAT`: signal, or all of it, as in "+
		"\"signal approved\"")
	fs.IntVar(&f.recoveries, "min-recoveries", 0, "only runs that were under way when `N` workers or more died since "+
		"their last progress")
	fs.BoolVar(&f.paused, "paused", false, "only active runs that are paused themselves, by kagzi runs pause")
	fs.StringVar(&f.since, "since", "", "only runs started at or after this `TIME`: 1h and 7d ago, 2026-10-01, "+
		"\"2026-10-01 08:00\" or 2026-10-01T08:00:00Z")
	fs.StringVar(&f.until, "until", "", "only runs started before this `TIME`")
	fs.StringVar(&f.endedSince, "ended-since", "", "only runs that ended at or after this `TIME`")
	fs.StringVar(&f.endedUntil, "ended-until", "", "only runs that ended before this `TIME`")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames, cobra.ShellCompDirectiveNoFileComp))
}

// given reports whether a flag selects runs.
func (f *filter) given(fs *pflag.FlagSet) bool {
	for _, name := range selecting {
		if fs.Changed(name) {
			return true
		}
	}
	return false
}

// filter returns what the flags select.
func (f *filter) filter(now time.Time) (kagzi.RunFilter, error) {
	out := kagzi.RunFilter{
		Workflow: f.workflow, Queue: f.queue, ID: kagzi.ID(f.id), Parent: kagzi.RunID(f.parent), Schedule: f.schedule,
		Key: kagzi.Key(f.key), Group: kagzi.Group(f.group), Kind: kind.Kind(f.kind), WaitingOn: f.waitingOn,
		Paused: f.paused, MinRecoveries: f.recoveries, Limit: f.limit,
	}
	for _, name := range selecting { // in a script: --workflow "$NAME" without a NAME would select every run
		if value := f.set.Lookup(name).Value.String(); f.set.Changed(name) && (value == "" || value == "[]") {
			return out, usagef("--%s is empty: give a value, or leave the flag out", name)
		}
	}
	if f.set.Changed("min-recoveries") && f.recoveries < 1 { // zero would select every run
		return out, usagef("--min-recoveries is %d: give a positive number, or leave the flag out", f.recoveries)
	}
	for _, s := range f.status {
		same, ok := statuses[strings.ToLower(strings.TrimSpace(s))]
		if !ok {
			return out, usagef("--status is %q: give one or more of %s", s, strings.Join(statusNames, ", "))
		}
		out.Status = append(out.Status, same...)
	}
	if f.limit < 0 {
		return out, usagef("--limit is %d: give a positive number, or 0 for all", f.limit)
	}
	if _, err := uuid.Parse(f.parent); f.parent != "" && err != nil {
		return out, usagef("--parent is %q: give a run ID, which is a UUID; kagzi runs get shows it", f.parent)
	}
	var err error
	if out.Metadata, err = parsePairs("metadata", f.metadata); err != nil {
		return out, err
	}
	for _, t := range []struct {
		to         *time.Time
		flag, text string
	}{
		{&out.Since, "since", f.since},
		{&out.Until, "until", f.until},
		{&out.EndedSince, "ended-since", f.endedSince},
		{&out.EndedUntil, "ended-until", f.endedUntil},
	} {
		if *t.to, err = parsePast(t.flag, t.text, now); err != nil {
			return out, err
		}
	}
	for _, r := range []struct {
		from, to    string
		since, till time.Time
	}{
		{"since", "until", out.Since, out.Until},
		{"ended-since", "ended-until", out.EndedSince, out.EndedUntil},
	} {
		if !r.since.IsZero() && !r.till.IsZero() && !r.since.Before(r.till) {
			return out, usagef("--%s is not before --%s: no run can match, give an earlier --%[1]s", r.from, r.to)
		}
	}
	return out, nil
}
