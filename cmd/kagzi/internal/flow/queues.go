// Package flow has the commands about limits, of queues, keys and steps, and about pauses.
package flow

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

// Queues returns kagzi queues.
func Queues(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:     "queues",
		Aliases: []string{"queue"},
		Short:   "List the queues with limits, and set their limits",
		Long: `The limits of a queue say how many of its runs all workers together execute at once, and how often one
may start. A queue without limits is not listed: kagzi health counts the due runs of all queues.`,
		Example: `  kagzi queues list
  kagzi queues set shop --max-running 50 --rate 10/s`,
	}
	c.AddCommand(queuesList(p), queuesSet(p))
	return c
}

func queuesList(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the queues that have limits, and how far they are used",
		Long: `List shows the queues that have limits. SLOTS HELD is how many runs have a slot, of how many that may:
also runs that sleep, and those that workers give back. WAITS SINCE is since when a run is due that no limit of its
key holds up.`,
		Example: `  kagzi queues list
  kagzi queues list --json`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			queues, err := admin.New(client).Queues(ctx)
			if err != nil {
				return err
			}
			l := command.Listing[admin.QueueInfo]{
				Columns: []screen.Column{
					{Title: "QUEUE"},
					{Title: "SLOTS HELD", Right: true},
					{Title: "RATE"},
					{Title: "EACH KEY", Min: 12},
					{Title: "HOLD", Drop: 2},
					{Title: "WAITS SINCE"},
					{Title: "NEXT START", Drop: 1},
					{Title: "CHANGED", Drop: 3},
				},
				Row: func(q admin.QueueInfo) []any {
					return []any{
						q.Queue, ofMost(q.Running, q.MaxRunning), rateText(q.Rate), keyLimitsText(q.EachKey),
						yesNo(q.Hold), p.Screen.Time(q.WaitingSince),
						p.Screen.Time(q.NextStart), p.Screen.Time(q.ChangedAt),
					}
				},
				None: "No queue has limits: kagzi queues set gives it some.",
			}
			n, err := l.Print(p, command.Each(queues))
			if err == nil && n == 0 {
				selection.WarnOfNamespace(ctx, p, client)
			}
			return err
		}),
	}
}

func queuesSet(p *command.Program) *cobra.Command {
	var rate, keyRate rateFlags
	var by command.Cause
	var most, keyMost int
	var hold, clear bool
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Set limits of a queue",
		Long:  "Set changes the limits of a queue.\n\n" + setHelp,
		Example: `  kagzi queues set shop --max-running 50 --rate 10/s --burst 20
  kagzi queues set shop --key-max-running 1 --hold
  kagzi queues set shop --clear`,
		Args: command.Exactly("QUEUE"),
	}
	fs := c.Flags()
	fs.IntVar(&most, "max-running", 0, "how many runs may have a slot at once, as `N`")
	rate.flags(fs, "", "runs")
	by.Flags(fs)
	fs.IntVar(&keyMost, "key-max-running", 0, "how many runs of one key may have a slot at once, as `N`")
	keyRate.flags(fs, "key-", "runs of one key")
	fs.BoolVar(&hold, "hold", false, "runs keep their slots while they sleep or wait")
	fs.BoolVar(&clear, "clear", false, "remove the limits that the queue has")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := needsChange(fs); err != nil {
			return err
		}
		if err := command.NotNegative(fs, "max-running", "burst", "key-max-running", "key-burst"); err != nil {
			return err
		}
		if _, err := rate.over(fs, "", admin.Rate{Starts: 1}); err != nil { // before a connection is made
			return err
		}
		if _, err := keyRate.over(fs, "key-", admin.Rate{Starts: 1}); err != nil {
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := admin.QueueLimits{}
		if !clear {
			all, err := admin.New(client).Queues(cmd.Context())
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(all, func(q admin.QueueInfo) bool { return q.Queue == args[0] }); i >= 0 {
				l = all[i].QueueLimits
			}
		}
		l.Queue = args[0]
		if fs.Changed("max-running") {
			l.MaxRunning = most
		}
		if fs.Changed("key-max-running") {
			l.EachKey.MaxRunning = keyMost
		}
		if fs.Changed("hold") {
			l.Hold = hold
		}
		if l.Rate, err = rate.over(fs, "", l.Rate); err != nil {
			return err
		}
		if l.EachKey.Rate, err = keyRate.over(fs, "key-", l.EachKey.Rate); err != nil {
			return err
		}
		if err := admin.New(client).SetQueue(cmd.Context(), l, by.Options()...); err != nil {
			return err
		}
		selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Queue: args[0]})
		return p.Done(l, "queue %s: %s running, rate %s, each key %s, hold %s", l.Queue, anyNumber(l.MaxRunning),
			rateText(l.Rate), keyLimitsText(l.EachKey), yesNo(l.Hold))
	}
	return c
}
