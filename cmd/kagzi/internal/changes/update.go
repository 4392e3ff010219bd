package changes

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// An update is the flags of runs update that say what changes.
type update struct {
	command.Cause
	queue, at, delay string
	priority         int
	version          string
	tags             []string
	opts             []admin.UpdateOption
}

func updateVerb() *verb {
	var u update
	v := &verb{
		name: "update", past: "updated", now: "updating", to: []string{"pending", "sleeping"}, flags: u.flags,
		short: "Move waiting runs to another queue, priority, time or version",
		long: `Update changes runs that no worker executes: pending and sleeping ones. --set-at and --set-delay are for
pending ones, as a run that sleeps is woken by what it waits for. kagzi runs pause stops a run that is being
executed, so that it can be updated.`,
		example: `  kagzi runs update order-42 --set-queue slow --reason "too large"
  kagzi runs update --workflow import --status pending --set-delay 2h --dry-run
  kagzi runs update order-42 --set-version 3`,
		check: u.check,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(admin.New(c).Update(ctx, ref, u.opts...))
		},
		already: func(ctx context.Context, c *kagzi.Client, before was) (string, error) {
			after, err := admin.New(c).RunLog(ctx, before.run.ID)
			if err != nil || updates(after) > updates(before.log) {
				return "", err
			}
			return "was so already: nothing was changed", nil
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
			return admin.New(c).UpdateAll(ctx, f, append(u.opts, admin.DryRun())...)
		},
	}
	return v
}

// updates counts the updates in a run's log. One that changes nothing is not recorded.
func updates(log []admin.LogEntry) (n int) {
	for _, e := range log {
		if e.Event == "UPDATED" {
			n++
		}
	}
	return n
}

func (u *update) flags(fs *pflag.FlagSet) {
	u.Cause.Flags(fs)
	fs.StringVar(&u.queue, "set-queue", "", "move the run to the queue `NAME`")
	fs.IntVar(&u.priority, "set-priority", 0, "its new priority, `N` from 1, which goes first, to 4")
	fs.StringVar(&u.at, "set-at", "", "make it due at this `TIME`: 2026-10-01T08:00:00Z, or 2h from now")
	fs.StringVar(&u.delay, "set-delay", "", "make it due after this `DURATION`; 0 is now")
	fs.StringVar(&u.version, "set-version", "", "send it to handlers of the `VERSION`, or \"default\" for that of "+
		"its next worker")
	fs.StringArrayVar(&u.tags, "set-metadata", nil, "replace all of its tags, by `NAME=VALUE`; may be repeated")
}

func (u *update) check(fs *pflag.FlagSet) error {
	u.opts = []admin.UpdateOption{kagzi.Reason(u.Reason), kagzi.Actor(u.Actor)}
	given := len(u.opts)
	if fs.Changed("set-queue") {
		u.opts = append(u.opts, kagzi.Queue(u.queue))
	}
	if fs.Changed("set-priority") {
		u.opts = append(u.opts, kagzi.Priority(u.priority))
	}
	at, err := command.ParseFuture("set-at", u.at, time.Now())
	if err != nil {
		return err
	}
	if !at.IsZero() {
		u.opts = append(u.opts, kagzi.At(at))
	}
	if u.delay != "" {
		if !at.IsZero() {
			return command.Usagef("--set-at and --set-delay exclude each other: give one of them")
		}
		d, err := command.ParseDuration("set-delay", u.delay)
		if err != nil {
			return err
		}
		u.opts = append(u.opts, kagzi.Delay(d))
	}
	if fs.Changed("set-version") {
		option, err := versionOption(u.version)
		if err != nil {
			return err
		}
		u.opts = append(u.opts, option)
	}
	tags, err := command.ParsePairs("set-metadata", u.tags)
	if err != nil {
		return err
	}
	if tags != nil {
		u.opts = append(u.opts, kagzi.Metadata(tags))
	}
	if len(u.opts) == given {
		return command.Usagef("there is nothing to change: give --set-queue, --set-priority, --set-at, --set-delay, " +
			"--set-version or --set-metadata")
	}
	return nil
}

func versionOption(s string) (admin.UpdateOption, error) {
	if s == "default" {
		return kagzi.DefaultVersion(), nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return nil, command.Usagef("--set-version is %q: give a number from 1, or default", s)
	}
	return kagzi.Version(n), nil
}

func deleteVerb() *verb {
	var by command.Cause
	return &verb{
		name: "delete", past: "deleted", now: "deleting", to: []string{"ended"}, ends: true, flags: by.Flags,
		short: "Delete runs that are over, with their steps and results",
		long: `Delete deletes runs that are over with all that is their own: input, result, steps, messages, children.
It is for good; kagzi runs log still says who deleted a run, and why. Retention deletes old runs by itself.`,
		example: `  kagzi runs delete order-42 --reason "the customer asked for it"
  kagzi runs delete --workflow load-test --status ended --dry-run`,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(admin.New(c).Delete(ctx, ref, by.Options()...))
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
			return admin.New(c).DeleteAll(ctx, f, append(by.Options(), admin.DryRun())...)
		},
	}
}
