package changes

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/deeds"
)

// An Ender waits for the end of a run, and prints it.
type Ender func(ctx context.Context, p *command.Program, c *kagzi.Client, run kagzi.Ref) error

// Start returns the command that starts a run. With --wait, wait prints how it ends.
func Start(p *command.Program, wait Ender) *cobra.Command {
	d := deeds.Find("start workflow")
	c := base(d, Spec{
		Args: []string{"WORKFLOW"},
		More: `This program does not know the application's code: it warns of a workflow or queue that no run and no
live worker has. If the application encrypts its values or has a Codec of its own, start runs with the application, or
with a command line that it makes with cli.Main: this one refuses if the workers of the namespace have a Sealer.

With --id the start is idempotent while the run is active: starting again returns that run.`,
		Example: `  kagzi runs start sign-up --input '"ada"' --id sign-up-ada
  kagzi runs start checkout --input '{"order": 42}' --queue shop --wait
  jq -n '{order: 42}' | kagzi runs start checkout --input -`,
	})
	in := newInput(d, c.Flags())
	waits := c.Flags().Bool("wait", false, "wait for the end, and print the result like kagzi runs wait")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		in.values["workflow"] = args[:1]
		a, err := in.asked(p)
		if err != nil {
			return err
		}
		if a.Client, err = p.Sender(ctx); err != nil {
			return err
		}
		// before the run has them
		selection.WarnOfNames(ctx, p, a.Client, kagzi.RunFilter{Workflow: args[0], Queue: a.Values.Get("queue")})
		done, err := d.Run(ctx, a)
		switch {
		case err != nil:
			return in.wrong(err)
		case *waits:
			p.Say("Started run %s.", done.New)
			return wait(ctx, p, a.Client, done.New)
		case !done.Already:
			done.Said = string(done.New)
		}
		return p.Done(done.Result, "%s", done.Said)
	}
	return c
}
