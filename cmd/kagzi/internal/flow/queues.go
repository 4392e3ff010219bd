// Package flow has the commands about limits, of queues, keys and steps, and about pauses.
package flow

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/deeds"
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
	c.AddCommand(queuesList(p), queuesSet(p), queuesReset(p))
	return c
}

func queuesList(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the queues that have limits, and how far they are used",
		Long: `List shows the queues that have limits. SLOTS HELD is how many runs have a slot, of how many that may:
also runs that sleep, and those that workers give back. WAITS SINCE is since when a run is due that no limit of its
key holds up. ORIGIN says which limits the code declares, and who has set others since.`,
		Example: `  kagzi queues list
  kagzi queues list --json`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			queues, err := admin.New(client).Queues.List(ctx)
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
					{Title: "ORIGIN", Drop: 4},
				},
				Row: func(q admin.QueueInfo) []any {
					return []any{
						q.Queue, ofMost(q.Running, q.MaxRunning), deeds.RateText(q.Rate, screen.Short),
						deeds.KeyText(q.EachKey, screen.Short),
						deeds.YesNo(q.Hold), p.Screen.Time(q.WaitingSince),
						p.Screen.Time(q.NextStart), p.Screen.Time(q.ChangedAt), deeds.QueueOrigin(q, screen.Short),
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
	return changes.Command(p, changes.Spec{
		Deed: "set queue", Args: []string{"QUEUE"}, Fills: "queue", Warns: true,
		Example: `  kagzi queues set shop --max-running 50 --rate 10/s --burst 20
  kagzi queues set shop --key-max-running 1 --hold
  kagzi queues set shop --clear`,
	})
}

func queuesReset(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "reset queue", Args: []string{"QUEUE"}, Fills: "queue", Warns: true,
		Example: `  kagzi queues reset shop --reason "the incident is over"`,
	})
}

// ofMost writes how many of those that may have a slot have one.
func ofMost(n, most int) string {
	if most == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d/%d", n, most)
}
