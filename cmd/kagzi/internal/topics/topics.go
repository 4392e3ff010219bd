// Package topics has the commands about topics and consumers.
package topics

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

// Topics returns kagzi topics.
func Topics(p *command.Program) *cobra.Command {
	return command.Lists(&cobra.Command{
		Use:     "topics",
		Aliases: []string{"topic"},
		Short:   "List the topics, with their events and subscribers",
		Long: `Topics lists the first thousand topics that have events, or consumers that subscribe to them, by name.
EVENTS counts the events that are kept.`,
		Example: `  kagzi topics
  kagzi topics --json | jq '.[] | select(.subscribers == null)'`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			all, err := admin.New(client).Topics.List(ctx)
			if err != nil {
				return err
			}
			l := command.Listing[admin.TopicInfo]{
				Columns: []screen.Column{
					{Title: "TOPIC"},
					{Title: "EVENTS", Right: true},
					{Title: "NEWEST"},
					{Title: "SUBSCRIBERS", Min: 16},
				},
				Row: func(t admin.TopicInfo) []any {
					return []any{
						t.Name, words.OrMore(t.Events, t.More), p.Screen.Time(t.Newest),
						strings.Join(t.Subscribers, ", "),
					}
				},
				None: "There are no topics.",
			}
			_, err = l.Print(p, command.Each(all))
			return err
		}),
	})
}
