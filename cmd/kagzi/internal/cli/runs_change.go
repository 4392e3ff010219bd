package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

// A verb is a change of one run, or of those that a filter selects.
type verb struct {
	name, past, now string // "cancel", "cancelled", "cancelling"
	short, long     string
	example         string
	to              []string // names in statuses: the runs that the verb applies to
	flags           func(*pflag.FlagSet)

	// check reads the verb's flags. one and all are called after it.
	check func(*pflag.FlagSet) error
	// returns the new run, if it makes one
	one   func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error)
	all   func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error)
	ends  bool // it deletes runs, and their children with them
	stops bool // it succeeds for a run that is cancelled already

	// already says that the verb had nothing to change in a run which was as before, as in "was not paused"; empty: it
	// had. nil: it always has.
	already func(ctx context.Context, c *kagzi.Client, before runReport) (string, error)
}

// changed has no new run.
func changed(err error) (kagzi.RunID, error) { return "", err }

// verbs are the changes that take a run or a filter.
func (a *app) verbs() []*verb {
	return []*verb{
		a.cancelVerb(), a.terminateVerb(), a.resumeVerb(), a.restartVerb(), a.forkVerb(), a.unpauseVerb(),
		a.updateVerb(), a.deleteVerb(),
	}
}

func (a *app) cancelVerb() *verb {
	var by command.Cause
	var grace string
	v := &verb{
		name: "cancel", past: "cancelled", now: "cancelling", to: []string{"active"}, stops: true,
		short: "Cancel runs, and compensate what they did",
		long: `Cancel ends active runs and their children. Steps under way are told to stop, and compensations that a
run has registered are executed; the run stays active until then. A repeated cancel changes nothing, and says since
when the run is cancelled. kagzi runs resume continues a cancelled run that has no compensations.`,
		example: `  kagzi runs cancel order-42 --reason "the customer called"
  kagzi runs cancel --workflow checkout --status pending --dry-run`,
	}
	var opts []kagzi.ChangeOption
	v.flags = func(fs *pflag.FlagSet) {
		by.Flags(fs)
		fs.StringVar(&grace, "grace", "", "how long steps under way may go on, as `DURATION`: 30s")
	}
	v.check = func(*pflag.FlagSet) error {
		opts = by.Options()
		if grace == "" {
			return nil
		}
		d, err := command.ParseDuration("grace", grace)
		opts = append(opts, kagzi.Grace(d))
		return err
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		return changed(c.Cancel(ctx, ref, opts...))
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
		return c.CancelAll(ctx, f, append(opts, kagzi.DryRun())...)
	}
	return v
}

func (a *app) terminateVerb() *verb {
	var by command.Cause
	return &verb{
		name: "terminate", past: "terminated", now: "terminating", to: []string{"active"}, flags: by.Flags, stops: true,
		short: "End runs at once, without compensations",
		long: `Terminate ends active runs and their children at once, as cancelled. It executes no compensations, and
stops those under way.`,
		example: `  kagzi runs terminate order-42 --reason "a test order"
  kagzi runs terminate --queue load-test --yes`,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(c.Terminate(ctx, ref, by.Options()...))
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
			return c.TerminateAll(ctx, f, append(by.Options(), kagzi.DryRun())...)
		},
	}
}

func (a *app) resumeVerb() *verb {
	var by command.Cause
	var forget []string
	v := &verb{
		name: "resume", past: "resumed", now: "resuming", to: []string{"failed", "cancelled"},
		short: "Continue runs that failed or were cancelled",
		long: `Resume continues failed and cancelled runs: what made them fail is tried again, and the results of all
other steps stay. It removes the run's timeout. If the code continued after a failure, that failure stays recorded,
unless --forget names its step.`,
		example: `  kagzi runs resume order-42
  kagzi runs resume --kind unavailable --ended-since 1h --dry-run`,
	}
	v.flags = func(fs *pflag.FlagSet) {
		by.Flags(fs)
		fs.StringArrayVar(&forget, "forget", nil, "try this failed `STEP` again, too; may be repeated")
	}
	options := func(more ...kagzi.ChangeOption) []kagzi.ChangeOption {
		if len(forget) > 0 {
			more = append(more, kagzi.Forget(forget...))
		}
		return append(by.Options(), more...)
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		return changed(c.Resume(ctx, ref, options()...))
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
		return c.ResumeAll(ctx, f, options(kagzi.DryRun())...)
	}
	return v
}

// A restart is the flags of restart and fork.
type restart struct {
	command.Cause
	input, id string
	version   int
	opts      []kagzi.RestartOption
	own       []kagzi.RestartOption // those for one run only
}

func (r *restart) flags(fs *pflag.FlagSet) {
	r.Cause.Flags(fs)
	fs.StringVarP(&r.input, "input", "i", "", "another input, as `JSON`; @FILE reads a file, - standard input; one "+
		"run only")
	fs.StringVar(&r.id, "new-id", "", "the `ID` of the new run; default: that of the old one; one run only")
	fs.IntVar(&r.version, "version", 0, "the `VERSION` of the workflow; default: that of the old run")
}

func (r *restart) check(a *app, fs *pflag.FlagSet) error {
	if err := command.FromOne(fs, "version"); err != nil {
		return err
	}
	r.opts = []kagzi.RestartOption{kagzi.Reason(r.Reason), kagzi.Actor(r.Actor)}
	if r.version != 0 {
		r.opts = append(r.opts, kagzi.Version(r.version))
	}
	if r.id != "" {
		r.own = append(r.own, kagzi.ID(r.id))
	}
	if fs.Changed("input") {
		input, err := a.ReadJSON("input", r.input)
		if err != nil {
			return err
		}
		r.own = append(r.own, kagzi.NewInput(input))
	}
	return nil
}

// mayStart refuses another input that the namespace's programs could not read.
func (r *restart) mayStart(ctx context.Context, c *kagzi.Client) error {
	if r.input == "" {
		return nil
	}
	return c.CheckSealer(ctx)
}

func (a *app) restartVerb() *verb {
	var r restart
	return &verb{
		name: "restart", past: "restarted", now: "restarting", to: []string{"ended"}, flags: r.flags,
		short: "Start new runs like ones that are over",
		long: `Restart starts a new run with the workflow, input, ID and options of one that is over, and prints the ID
of the new run. The old run stays as it is. To keep the results of a run, use kagzi runs resume or kagzi runs fork.`,
		example: `  kagzi runs restart order-42
  kagzi runs restart order-42 --input '{"order": 42, "retry": true}'
  kagzi runs restart --workflow report --status failed --since 1d --dry-run`,
		check: func(fs *pflag.FlagSet) error { return r.check(a, fs) },
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			if err := r.mayStart(ctx, c); err != nil {
				return "", err
			}
			return c.Restart(ctx, ref, slices.Concat(r.opts, r.own)...)
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
			return c.RestartAll(ctx, f, append(r.opts, kagzi.DryRun())...)
		},
	}
}

func (a *app) forkVerb() *verb {
	var r restart
	var step string
	var inherit bool
	v := &verb{
		name: "fork", past: "forked", now: "forking", to: []string{"ended"},
		short: "Start new runs from a step of ones that are over",
		long: `Fork starts a new run that has the results of an old one up to a step, and executes that step and all
that came after it. It prints the ID of the new run. kagzi runs steps lists the steps of a run.`,
		example: `  kagzi runs fork order-42 --step charge
  kagzi runs fork --workflow checkout --status failed --since 1h --step charge --dry-run`,
	}
	v.flags = func(fs *pflag.FlagSet) {
		r.flags(fs)
		fs.StringVar(&step, "step", "", "the `STEP` from which the new run executes, as kagzi runs steps shows it")
		fs.BoolVar(&inherit, "inherit-compensations", false, "copy the compensations that the old run registered "+
			"before the step")
	}
	v.check = func(fs *pflag.FlagSet) error {
		if step == "" {
			return command.Usagef("--step is missing: kagzi runs steps RUN lists the steps of a run")
		}
		err := r.check(a, fs)
		if inherit {
			r.opts = append(r.opts, kagzi.InheritCompensations())
		}
		return err
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		if err := r.mayStart(ctx, c); err != nil {
			return "", err
		}
		return c.Fork(ctx, ref, step, slices.Concat(r.opts, r.own)...)
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
		return c.ForkAll(ctx, f, step, append(r.opts, kagzi.DryRun())...)
	}
	return v
}

func (a *app) unpauseVerb() *verb {
	var by command.Cause
	return &verb{
		name: "unpause", past: "unpaused", now: "unpausing", to: []string{"active"}, flags: by.Flags,
		short: "Let paused runs go on",
		long: `Unpause ends the pause of single runs, and exempts them from the pauses of their queue, of their
workflow and of all runs. kagzi unpause ends those pauses for all of their runs.`,
		example: `  kagzi runs unpause order-42
  kagzi runs unpause --metadata tenant=acme --dry-run`,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(c.UnpauseRun(ctx, ref, by.Options()...))
		},
		already: func(ctx context.Context, c *kagzi.Client, before runReport) (string, error) {
			if !before.Run.PausedAt.IsZero() {
				return "", nil
			}
			pauses, err := c.Pauses(ctx)
			if len(pauses) == 0 {
				return "was not paused", err
			}
			return "was not paused itself; the present pauses of its queue, of its workflow and of all runs do not " +
				"stop it any more", err
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (kagzi.BulkResult, error) {
			return c.UnpauseRuns(ctx, f, append(by.Options(), kagzi.DryRun())...)
		},
	}
}

func (a *app) runsPause() *cobra.Command {
	var run selection.RunArg
	var by command.Cause
	c := &cobra.Command{
		Use:   "pause RUN",
		Short: "Pause one run",
		Long: `Pause keeps workers from executing an active run. One that executes it stops at the next step, sleep,
wait or child. The run's timeout goes on. To pause many runs, use kagzi pause, which takes a queue, a workflow, a
key or a group.`,
		Example: `  kagzi runs pause order-42 --reason "the address is wrong"`,
		Args:    run.Args(0),
	}
	run.Flags(c)
	by.Flags(c.Flags())
	c.RunE = a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		before, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		if err := client.PauseRun(ctx, ref, by.Options()...); err != nil {
			return err
		}
		if since := before.PausedAt; !since.IsZero() {
			return a.Done(oneChange{Verb: "pause", Run: ref, Already: true}, "%s was paused already, since %s", ref,
				a.Screen.Moment(since))
		}
		return a.Done(oneChange{Verb: "pause", Run: ref}, "paused %s", ref)
	})
	return c
}
