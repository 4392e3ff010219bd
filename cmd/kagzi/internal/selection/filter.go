package selection

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/internal/deeds"
)

// A Filter is the flags that select runs.
type Filter struct {
	runs             kagzi.RunFilter // as flags give it
	status, metadata []string
	started, ended   span
	set              *pflag.FlagSet // the command's flags
}

// A span is the flags of a time after and a time before.
type span struct{ since, until string }

// statusNames are the keys of deeds.Statuses, in the order of a run's life.
var statusNames = []string{"pending", "running", "sleeping", "completed", "failed", "cancelled", "active", "ended"}

// selecting are the flags that select runs; --limit alone does not.
var selecting = []string{
	"status", "workflow", "queue", "parent", "schedule", "key", "group", "metadata", "kind",
	"waiting-on", "min-recoveries", "paused", "since", "until", "ended-since", "ended-until",
}

// Flags adds the flags to a command that changes or lists runs.
func (f *Filter) Flags(c *cobra.Command, limit int, limitUsage string) {
	f.SelectingFlags(c)
	c.Flags().IntVar(&f.runs.Limit, "limit", limit, limitUsage)
}

// SelectingFlags adds the flags that select runs.
func (f *Filter) SelectingFlags(c *cobra.Command) {
	fs := c.Flags()
	f.set = fs
	fs.StringSliceVarP(&f.status, "status", "s", nil, "only `STATUSES`: "+strings.Join(statusNames, ", ")+
		"; active and ended stand for three each")
	fs.StringVarP(&f.runs.Workflow, "workflow", "w", "", "only runs of the workflow `NAME`")
	fs.StringVarP(&f.runs.Queue, "queue", "q", "", "only runs of the queue `NAME`")
	fs.StringVar((*string)(&f.runs.Parent), "parent", "", "only children of the run with the `RUN-ID`")
	fs.StringVar(&f.runs.Schedule, "schedule", "", "only runs that the schedule `NAME` started")
	fs.StringVar((*string)(&f.runs.Key), "key", "", "only runs with the `KEY`")
	fs.StringVar((*string)(&f.runs.Group), "group", "", "only runs of the `GROUP`")
	fs.StringArrayVarP(&f.metadata, "metadata", "m", nil, "only runs that have the tag, as `NAME=VALUE`; may be "+
		"repeated")
	fs.StringVarP((*string)(&f.runs.Kind), "kind", "k", "", "only runs whose last failure is of the `KIND`: "+
		"unavailable, timeout, or one of the application")
	fs.StringVar(&f.runs.WaitingOn, "waiting-on", "", "only runs that wait for `WHAT`: signal, or all of it, as in "+
		"\"signal approved\"")
	fs.IntVar(&f.runs.MinRecoveries, "min-recoveries", 0, "only runs that were under way when `N` workers or more "+
		"died since their last progress")
	fs.BoolVar(&f.runs.Paused, "paused", false, "only active runs that are paused themselves, by kagzi runs pause")
	fs.StringVar(&f.started.since, "since", "", "only runs started at or after this `TIME`: 1h and 7d ago, "+
		"2026-10-01, \"2026-10-01 08:00\" or 2026-10-01T08:00:00Z")
	fs.StringVar(&f.started.until, "until", "", "only runs started before this `TIME`")
	fs.StringVar(&f.ended.since, "ended-since", "", "only runs that ended at or after this `TIME`")
	fs.StringVar(&f.ended.until, "ended-until", "", "only runs that ended before this `TIME`")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames, cobra.ShellCompDirectiveNoFileComp))
}

// Given reports whether a flag selects runs.
func (f *Filter) Given(fs *pflag.FlagSet) bool {
	for _, name := range selecting {
		if fs.Changed(name) {
			return true
		}
	}
	return false
}

// IDFlag adds the flag that selects runs by their ID to a command that lists runs.
func (f *Filter) IDFlag(c *cobra.Command) {
	c.Flags().StringVar((*string)(&f.runs.ID), "id", "", "only runs with this `ID`")
}

// Runs returns what the flags select.
func (f *Filter) Runs(now time.Time) (kagzi.RunFilter, error) {
	out := f.runs
	for _, name := range selecting { // in a script: --workflow "$NAME" without a NAME would select every run
		if value := f.set.Lookup(name).Value.String(); f.set.Changed(name) && (value == "" || value == "[]") {
			return out, command.Usagef("--%s is empty: give a value, or leave the flag out", name)
		}
	}
	if f.set.Changed("min-recoveries") && out.MinRecoveries < 1 { // zero would select every run
		return out, command.Usagef("--min-recoveries is %d: give a positive number, or leave the flag out",
			out.MinRecoveries)
	}
	for _, s := range f.status {
		same, ok := deeds.Statuses[strings.ToLower(strings.TrimSpace(s))]
		if !ok {
			return out, command.Usagef("--status is %q: give one or more of %s", s, strings.Join(statusNames, ", "))
		}
		out.Status = append(out.Status, same...)
	}
	if out.Limit < 0 {
		return out, command.Usagef("--limit is %d: give a positive number, or 0 for all", out.Limit)
	}
	if _, err := uuid.Parse(string(out.Parent)); out.Parent != "" && err != nil {
		return out, command.Usagef("--parent is %q: give a run ID, which is a UUID; kagzi runs get shows it",
			out.Parent)
	}
	var err error
	if out.Metadata, err = command.ParsePairs("metadata", f.metadata); err != nil {
		return out, err
	}
	// all times are read before two are compared
	if out.Since, out.Until, err = f.started.times("", now); err != nil {
		return out, err
	}
	if out.EndedSince, out.EndedUntil, err = f.ended.times("ended-", now); err != nil {
		return out, err
	}
	if err = inOrder("", out.Since, out.Until); err == nil {
		err = inOrder("ended-", out.EndedSince, out.EndedUntil)
	}
	return out, err
}

// times reads a span, of the flags whose names begin with prefix.
func (s span) times(prefix string, now time.Time) (since, until time.Time, err error) {
	if since, err = command.ParsePast(prefix+"since", s.since, now); err == nil {
		until, err = command.ParsePast(prefix+"until", s.until, now)
	}
	return since, until, err
}

// inOrder refuses a span that no time is in.
func inOrder(prefix string, since, until time.Time) error {
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return command.Usagef("--%[1]ssince is not before --%[1]suntil: no run can match, give an earlier --%[1]ssince",
			prefix)
	}
	return nil
}
