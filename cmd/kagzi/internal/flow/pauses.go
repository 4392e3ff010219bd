package flow

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
)

// Pauses returns kagzi pauses.
func Pauses(p *command.Program) *cobra.Command {
	return command.Lists(&cobra.Command{
		Use:   "pauses",
		Short: "List what is paused, by whom and why",
		Long: `Pauses lists the queues, workflows, keys and groups that are paused. Single runs that are paused are not
among them: it counts these, and kagzi runs list --paused lists them. kagzi pause pauses something, kagzi unpause
ends that.`,
		Example: `  kagzi pauses
  kagzi runs list --paused`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			all, err := admin.New(client).Pauses.List(ctx)
			if err != nil {
				return err
			}
			l := command.Listing[admin.Pause]{
				Columns: []screen.Column{
					{Title: "PAUSED"},
					{Title: "SINCE"},
					{Title: "ACTOR", Min: 8},
					{Title: "STOPS STEPS", Drop: 1},
					{Title: "REASON", Min: 16},
				},
				Row: func(of admin.Pause) []any {
					return []any{
						explain.Target(of.Target), p.Screen.Time(of.Since), of.Actor, deeds.YesNo(of.Parks), of.Reason,
					}
				},
				None: "Nothing is paused.",
			}
			single, err := admin.New(client).Runs.Count(ctx, kagzi.RunFilter{Paused: true})
			if err != nil {
				return err
			}
			if single[0].Runs > 0 {
				l.None = "No queue, workflow, key or group is paused."
			}
			if _, err = l.Print(p, command.Each(all)); err == nil && single[0].Runs > 0 {
				p.Say("%s paused: kagzi runs list --paused", singleRuns(single[0].Runs))
			}
			return err
		}),
	})
}

func singleRuns(n int) string {
	if n == 1 {
		return "1 single run is"
	}
	return fmt.Sprintf("%d single runs are", n)
}

// Pause returns kagzi pause.
func Pause(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "pause runs", Warns: true, // it pauses those to come, too
		More: "kagzi runs pause pauses one run.",
		Example: `  kagzi pause --queue shop --reason "the payment provider is down"
  kagzi pause --workflow checkout --park
  kagzi pause --queue shop --key tenant-7`,
	})
}

// Unpause returns kagzi unpause.
func Unpause(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "unpause runs", More: "kagzi pauses lists the pauses.",
		Example: `  kagzi unpause --queue shop`,
	})
}
