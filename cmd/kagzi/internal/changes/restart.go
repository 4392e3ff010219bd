package changes

import (
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// A restart is the flags of restart and fork.
type restart struct {
	command.Cause
	input, id string
	version   int
	opts      []admin.RestartOption
	own       []admin.RestartOption // those for one run only
}

func (r *restart) flags(fs *pflag.FlagSet) {
	r.Cause.Flags(fs)
	fs.StringVarP(&r.input, "input", "i", "", "another input, as `JSON`; @FILE reads a file, - standard input; one "+
		"run only")
	fs.StringVar(&r.id, "new-id", "", "the `ID` of the new run; default: that of the old one; one run only")
	fs.IntVar(&r.version, "version", 0, "the `VERSION` of the workflow; default: that of the old run")
}

func (r *restart) check(p *command.Program, fs *pflag.FlagSet) error {
	if err := command.FromOne(fs, "version"); err != nil {
		return err
	}
	r.opts = []admin.RestartOption{kagzi.Reason(r.Reason), kagzi.Actor(r.Actor)}
	if r.version != 0 {
		r.opts = append(r.opts, kagzi.Version(r.version))
	}
	if r.id != "" {
		r.own = append(r.own, kagzi.ID(r.id))
	}
	if fs.Changed("input") {
		input, err := p.ReadJSON("input", r.input)
		if err != nil {
			return err
		}
		r.own = append(r.own, admin.NewInput(input))
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

func restartVerb(p *command.Program) *verb {
	var r restart
	return &verb{
		name: "restart", past: "restarted", now: "restarting", to: []string{"ended"}, flags: r.flags,
		short: "Start new runs like ones that are over",
		long: `Restart starts a new run with the workflow, input, ID and options of one that is over, and prints the ID
of the new run. The old run stays as it is. To keep the results of a run, use kagzi runs resume or kagzi runs fork.`,
		example: `  kagzi runs restart order-42
  kagzi runs restart order-42 --input '{"order": 42, "retry": true}'
  kagzi runs restart --workflow report --status failed --since 1d --dry-run`,
		check: func(fs *pflag.FlagSet) error { return r.check(p, fs) },
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			if err := r.mayStart(ctx, c); err != nil {
				return "", err
			}
			return admin.New(c).Restart(ctx, ref, slices.Concat(r.opts, r.own)...)
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
			return admin.New(c).RestartAll(ctx, f, append(r.opts, admin.DryRun())...)
		},
	}
}

func forkVerb(p *command.Program) *verb {
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
		err := r.check(p, fs)
		if inherit {
			r.opts = append(r.opts, admin.InheritCompensations())
		}
		return err
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		if err := r.mayStart(ctx, c); err != nil {
			return "", err
		}
		return admin.New(c).Fork(ctx, ref, step, slices.Concat(r.opts, r.own)...)
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
		return admin.New(c).ForkAll(ctx, f, step, append(r.opts, admin.DryRun())...)
	}
	return v
}
