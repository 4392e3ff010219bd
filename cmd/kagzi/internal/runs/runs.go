// Package runs has the commands that show, start and signal runs.
package runs

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
)

// Command returns kagzi runs, with all commands below it.
func Command(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:     "runs",
		Aliases: []string{"run"},
		Short:   "List, explain, start and change runs",
		Long: `A run is one execution of a workflow.

The commands that change runs take one run, or flags that select several. They then show these runs, and ask before
they change them; --yes answers, and --dry-run only shows.`,
		Example: `  kagzi runs list --status failed --since 1h
  kagzi runs get order-42
  kagzi runs cancel order-42 --reason "the customer called"`,
	}
	c.AddCommand(listCommand(p), countCommand(p), getCommand(p), stepsCommand(p), messagesCommand(p), logCommand(p),
		doubtsCommand(p))
	c.AddCommand(waitCommand(p), changes.Start(p, waitAndPrint))
	c.AddCommand(changes.Runs(p)...)
	return c
}

func listCommand(p *command.Program) *cobra.Command {
	var f selection.Filter
	var all, payloads bool
	var after string
	c := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List runs, newest first",
		Long: `List shows the runs that all of the flags select, those started last first. DETAIL is what a run waits
for, or how it failed. kagzi runs get says more about one of them.`,
		Example: `  kagzi runs list
  kagzi runs list --status failed --since 1h
  kagzi runs list --kind unavailable --ended-since 1h
  kagzi runs list --waiting-on "signal approved"
  kagzi runs list --min-recoveries 3
  kagzi runs list --status active --workflow checkout --metadata tenant=acme
  kagzi runs list --all --json | jq -r '.[].id'`,
		Args: command.Exactly(),
	}
	f.Flags(c, 100, "at most `N` runs")
	f.IDFlag(c)
	c.Flags().BoolVar(&all, "all", false, "all runs, without the --limit")
	c.Flags().BoolVar(&payloads, "payloads", false, "with --json, the inputs and results, too")
	c.Flags().StringVar(&after, "after", "", "continue behind the run with this `RUN-ID`: the last one of the "+
		"page before")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		rf, err := f.Runs(p.Screen.Now())
		if err != nil {
			return err
		}
		if all {
			rf.Limit = 0
		}
		if payloads && !p.JSON {
			return command.Usagef("--payloads needs --json: the table has no room for inputs and results; kagzi runs " +
				"get shows those of one run")
		}
		if _, err := uuid.Parse(after); after != "" && err != nil {
			return command.Usagef("--after is %q: give the run ID of the last run of the page before", after)
		}
		rf.After, rf.Payloads = kagzi.RunID(after), payloads
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := tables.Runs(p.Screen, "No run matches.")
		var last kagzi.RunID
		n, err := l.Print(p, func(yield func(kagzi.RunInfo, error) bool) {
			for r, err := range tables.ListRuns(cmd.Context(), client, rf) {
				if last = r.ID; !yield(r, err) {
					return
				}
			}
		})
		if err == nil && n == 0 && after == "" {
			selection.WarnOfNames(cmd.Context(), p, client, rf)
		}
		if err == nil && rf.Limit > 0 && n == rf.Limit && !p.JSON {
			p.Say("There may be more: --all lists all of them, --after %s the next ones.", last)
		}
		return err
	}
	return c
}

func stepsCommand(p *command.Program) *cobra.Command {
	var run selection.RunArg
	c := &cobra.Command{
		Use:   "steps RUN",
		Short: "List the steps of a run, with their attempts",
		Long: `Steps shows the attempts of a run's steps, in the order in which they began. --json prints their inputs
and results, too. A step under way appears once it has run for a second.`,
		Example: `  kagzi runs steps order-42
  kagzi runs steps order-42 --json | jq '.[] | select(.status == "FAILED")'`,
		Args: run.Args(0),
	}
	run.Flags(c)
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		of, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		steps, err := client.Steps(ctx, of.ID)
		if err != nil {
			return err
		}
		_, err = tables.Steps(p.Screen, of.Status).Print(p, command.Each(steps))
		return err
	})
	return c
}

func logCommand(p *command.Program) *cobra.Command {
	var run selection.RunArg
	c := &cobra.Command{
		Use:   "log RUN",
		Short: "List who changed a run, when and why, and its failed attempts",
		Long: `Log shows the changes that people and programs made to a run from outside of its code: who cancelled,
resumed or restarted it, and why.`,
		Example: `  kagzi runs log order-42
  kagzi runs log order-42 --json`,
		Args: run.Args(0),
	}
	run.Flags(c)
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		entries, err := admin.New(client).Runs.Log(ctx, ref)
		if err != nil {
			return err
		}
		none := "The run was not changed, and no attempt of it has failed."
		_, err = tables.Log(p.Screen, none).Print(p, command.Each(entries))
		return err
	})
	return c
}
