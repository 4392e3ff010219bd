package changes

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

func unpauseVerb() *verb {
	var by command.Cause
	return &verb{
		name: "unpause", past: "unpaused", now: "unpausing", to: []string{"active"}, flags: by.Flags,
		short: "Let paused runs go on",
		long: `Unpause ends the pause of single runs, and exempts them from the pauses of their queue, of their
workflow and of all runs. kagzi unpause ends those pauses for all of their runs.`,
		example: `  kagzi runs unpause order-42
  kagzi runs unpause --metadata tenant=acme --dry-run`,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(admin.New(c).UnpauseRun(ctx, ref, by.Options()...))
		},
		already: func(ctx context.Context, c *kagzi.Client, before was) (string, error) {
			if !before.run.PausedAt.IsZero() {
				return "", nil
			}
			pauses, err := admin.New(c).Pauses(ctx)
			if len(pauses) == 0 {
				return "was not paused", err
			}
			return "was not paused itself; the present pauses of its queue, of its workflow and of all runs do not " +
				"stop it any more", err
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
			return admin.New(c).UnpauseRuns(ctx, f, append(by.Options(), admin.DryRun())...)
		},
	}
}

func pauseCommand(p *command.Program) *cobra.Command {
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
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		before, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		if err := admin.New(client).PauseRun(ctx, ref, by.Options()...); err != nil {
			return err
		}
		if since := before.PausedAt; !since.IsZero() {
			return p.Done(oneChange{Verb: "pause", Run: ref, Already: true}, "%s was paused already, since %s", ref,
				p.Screen.Moment(since))
		}
		return p.Done(oneChange{Verb: "pause", Run: ref}, "paused %s", ref)
	})
	return c
}
