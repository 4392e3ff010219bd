package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

func (a *app) topics() *cobra.Command {
	return lists(&cobra.Command{
		Use:     "topics",
		Aliases: []string{"topic"},
		Short:   "List the topics, with their events and subscribers",
		Long: `Topics lists the first thousand topics that have events, or consumers that subscribe to them, by name.
EVENTS counts the events that are kept.`,
		Example: `  kagzi topics
  kagzi topics --json | jq '.[] | select(.subscribers == null)'`,
		Args: exactly(),
		RunE: a.withClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			all, err := client.Topics(ctx)
			if err != nil {
				return err
			}
			l := listing[kagzi.TopicInfo]{
				columns: []screen.Column{
					{Title: "TOPIC"},
					{Title: "EVENTS", Right: true},
					{Title: "NEWEST"},
					{Title: "SUBSCRIBERS", Min: 16},
				},
				row: func(t kagzi.TopicInfo) []any {
					return []any{
						t.Name, orMore(t.Events, t.More), a.screen.Time(t.Newest),
						strings.Join(t.Subscribers, ", "),
					}
				},
				none: "There are no topics.",
			}
			_, err = l.print(a, each(all))
			return err
		}),
	})
}

// orMore writes a number that may be a part of what there is.
func orMore(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}
