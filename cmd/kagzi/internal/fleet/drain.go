package fleet

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

// Drain returns kagzi drain.
func Drain(p *command.Program) *cobra.Command {
	var queue string
	var by command.Cause
	var yes bool
	c := &cobra.Command{
		Use:   "drain --queue NAME",
		Short: "Ask all workers of a queue to finish their runs and stop",
		Long: `Drain asks all workers of a queue to drain, with their other queues: they claim no more runs, finish
those under way, and stop. It asks before, unless --yes is given. Workers that start later are not affected. kagzi
workers drain drains one worker; kagzi pause stops a queue and leaves its workers up.`,
		Example: `  kagzi drain --queue shop
  kagzi drain --queue shop --yes`,
		Args: command.Exactly(),
	}
	c.Flags().StringVarP(&queue, "queue", "q", "", "the queue `NAME`")
	by.Flags(c.Flags())
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if queue == "" {
			return command.Usagef("--queue is missing: give the queue whose workers are to drain; kagzi workers list " +
				"shows the queues")
		}
		if !yes && !p.Interactive() {
			return command.Usagef("nobody can be asked, as this is no terminal: give --yes")
		}
		client, err := p.Client(ctx)
		if err != nil {
			return err
		}
		if !yes {
			_, online, err := admin.New(client).Workers(ctx,
				admin.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}, Limit: 1})
			if err != nil {
				return err
			}
			if online == 0 {
				p.Say("No worker of queue %s is online.", queue)
				selection.WarnOfNames(ctx, p, client, kagzi.RunFilter{Queue: queue})
				return nil
			}
			if sure, err := p.Sure(ctx, yes, fmt.Sprintf("Drain the %s of queue %s?", words.Plural(online, "worker"),
				queue)); !sure {
				return err
			}
		}
		n, err := admin.New(client).DrainQueue(ctx, queue, by.Options()...)
		if err != nil {
			return err
		}
		if n == 0 {
			selection.WarnOfNames(ctx, p, client, kagzi.RunFilter{Queue: queue})
		}
		return p.Done(map[string]any{"queue": queue, "drained": n}, "asked %s of queue %s to drain",
			words.Plural(n, "worker"), queue)
	}
	return c
}
