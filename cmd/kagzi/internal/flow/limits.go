package flow

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/deeds"
)

// Limits returns kagzi limits.
func Limits(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:     "limits",
		Aliases: []string{"limit"},
		Short:   "List the limits on steps, set and delete them",
		Long: `A limit says how often the steps that name it may begin, and how many of them may be under way, in all
workers together: at most ten calls a second to an API, for example.`,
		Example: `  kagzi limits list
  kagzi limits set openai --rate 10/s --max-running 4`,
	}
	c.AddCommand(limitsList(p), limitsSet(p), limitsReset(p), limitsDelete(p))
	return c
}

// allLimits returns the limits by name.
func allLimits(ctx context.Context, c *kagzi.Client) iter.Seq2[admin.LimitInfo, error] {
	return command.Pages(0, func(n int, last *admin.LimitInfo) ([]admin.LimitInfo, error) {
		after := ""
		if last != nil {
			after = last.Name
		}
		return admin.New(c).Limits.List(ctx, after, n)
	})
}

func limitsList(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the limits on steps, and how far they are used",
		Long: `List shows the limits by name. RUNNING is how many steps are under way, of how many that may. LINE UNTIL
is when a step that comes now may begin. ORIGIN says which limits the code declares, and who has set others since.`,
		Example: `  kagzi limits list`,
		Args:    command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			l := command.Listing[admin.LimitInfo]{
				Columns: []screen.Column{
					{Title: "LIMIT"},
					{Title: "RATE"},
					{Title: "SLOTS HELD", Right: true},
					{Title: "WAITING", Right: true},
					{Title: "NEXT", Drop: 2},
					{Title: "LINE UNTIL", Drop: 1},
					{Title: "RETRY-AFTER", Drop: 3},
					{Title: "ORIGIN", Drop: 4},
				},
				Row: func(l admin.LimitInfo) []any {
					honored := "ignored"
					if l.HonorRetryAfter {
						honored = "honored"
					}
					return []any{
						l.Name, deeds.RateText(deeds.RateOf(l), screen.Short),
						ofMost(l.Running, l.MaxRunning), l.Waiting,
						p.Screen.Time(l.NextAt), p.Screen.Time(l.LineUntil), honored,
						deeds.LimitOrigin(l, screen.Short),
					}
				},
				None: "There are no limits on steps: kagzi limits set makes one.",
			}
			_, err := l.Print(p, allLimits(ctx, client))
			return err
		}),
	}
}

func limitsSet(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "set limit", Args: []string{"NAME"}, Fills: "limit",
		Example: `  kagzi limits set openai --rate 10/s --max-running 4
  kagzi limits set openai --clear`,
	})
}

func limitsReset(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "reset limit", Args: []string{"NAME"}, Fills: "limit",
		Example: `  kagzi limits reset openai --reason "the incident is over"`,
	})
}

func limitsDelete(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "delete limit", Args: []string{"NAME"}, Fills: "limit",
		More:    "kagzi limits set NAME --clear lifts a limit.",
		Example: `  kagzi limits delete openai`,
	})
}
