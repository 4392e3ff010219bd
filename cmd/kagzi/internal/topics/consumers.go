package topics

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// Consumers returns kagzi consumers.
func Consumers(p *command.Program) *cobra.Command {
	return command.Lists(&cobra.Command{
		Use:     "consumers",
		Aliases: []string{"consumer"},
		Short:   "List the consumers, and which events are pending for them",
		Long: `Consumers lists the first thousand consumers by name, with a row for each of their topics. PENDING
counts the events that a consumer has not consumed, OLDEST is when the first of them was published.`,
		Example: `  kagzi consumers
  kagzi consumers --json | jq '.[] | {name, topics}'`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			all, err := admin.New(client).Consumers.List(ctx)
			if err != nil {
				return err
			}
			if p.JSON {
				_, err := command.PrintArray(p.Screen.Out, command.Each(all))
				return err
			}
			t := p.Screen.Table(screen.Column{Title: "CONSUMER"}, screen.Column{Title: "TOPIC", Min: 12},
				screen.Column{Title: "PENDING", Right: true}, screen.Column{Title: "OLDEST"},
				screen.Column{Title: "LAST RUN"}, screen.Column{Title: "STATUS"},
				screen.Column{Title: "NEXT WAKE", Drop: 1}, screen.Column{Title: "PAUSED", Min: 12, Drop: 2})
			for _, c := range all {
				paused := ""
				if c.Pause != (admin.Pause{}) {
					paused = explain.Target(c.Pause.Target)
					if c.Pause.Reason != "" {
						paused += fmt.Sprintf(" (%q)", c.Pause.Reason)
					}
				}
				topics := c.Topics
				if len(topics) == 0 {
					topics = []admin.ConsumerTopic{{}}
				}
				for _, of := range topics {
					t.Row(c.Name, of.Topic, words.OrMore(of.Pending, of.More), p.Screen.Time(of.Oldest), c.Run,
						tables.StatusCell(c.RunStatus), p.Screen.Time(c.NextWake),
						screen.Cell{Text: paused, Tone: screen.Warning})
				}
			}
			if t.Len() == 0 {
				p.Say("There are no consumers.")
				return nil
			}
			return t.Print()
		}),
	})
}
