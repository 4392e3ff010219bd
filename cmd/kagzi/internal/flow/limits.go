package flow

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
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
	c.AddCommand(limitsList(p), limitsSet(p), limitsDelete(p))
	return c
}

// allLimits returns the limits by name.
func allLimits(ctx context.Context, c *kagzi.Client) iter.Seq2[admin.LimitInfo, error] {
	return command.Pages(0, func(n int, last *admin.LimitInfo) ([]admin.LimitInfo, error) {
		after := ""
		if last != nil {
			after = last.Name
		}
		return admin.New(c).Limits(ctx, after, n)
	})
}

// findLimit returns the limit of that name, if there is one.
func findLimit(ctx context.Context, c *kagzi.Client, name string) (admin.LimitInfo, bool, error) {
	for l, err := range allLimits(ctx, c) {
		if err != nil || l.Name == name {
			return l, err == nil, err
		}
	}
	return admin.LimitInfo{}, false, nil
}

func limitRate(l admin.LimitInfo) admin.Rate {
	if l.Every == 0 {
		return admin.Rate{}
	}
	return admin.Rate{Starts: 1, Per: l.Every, Burst: l.Burst}
}

func limitsList(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the limits on steps, and how far they are used",
		Long: `List shows the limits by name. RUNNING is how many steps are under way, of how many that may. LINE UNTIL
is when a step that comes now may begin.`,
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
				},
				Row: func(l admin.LimitInfo) []any {
					honored := "ignored"
					if l.HonorRetryAfter {
						honored = "honored"
					}
					return []any{
						l.Name, rateText(limitRate(l)), ofMost(l.Running, l.MaxRunning), l.Waiting,
						p.Screen.Time(l.NextAt), p.Screen.Time(l.LineUntil), honored,
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
	var rate rateFlags
	var by command.Cause
	var most int
	var honor, clear bool
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a limit on steps",
		Long: "Set makes a limit, or changes one.\n\n" + setHelp +
			` A limit with neither lets every step begin: steps that name a limit which nobody
has set fail.`,
		Example: `  kagzi limits set openai --rate 10/s --max-running 4
  kagzi limits set openai --clear`,
		Args: command.Exactly("NAME"),
	}
	fs := c.Flags()
	rate.flags(fs, "", "steps")
	by.Flags(fs)
	fs.IntVar(&most, "max-running", 0, "how many steps may be under way at once, as `N`")
	fs.BoolVar(&honor, "honor-retry-after", false, "a step that fails with RetryAfter stops all others for that time")
	fs.BoolVar(&clear, "clear", false, "remove the rate and the number that the limit has")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := needsChange(fs); err != nil {
			return err
		}
		if err := command.NotNegative(fs, "max-running", "burst"); err != nil {
			return err
		}
		if _, err := rate.over(fs, "", admin.Rate{Starts: 1}); err != nil { // before a connection is made
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := admin.StepLimit{Name: args[0]}
		if !clear {
			old, _, err := findLimit(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			l.Rate, l.MaxRunning, l.HonorRetryAfter = limitRate(old), old.MaxRunning, old.HonorRetryAfter
		}
		if fs.Changed("max-running") {
			l.MaxRunning = most
		}
		if fs.Changed("honor-retry-after") {
			l.HonorRetryAfter = honor
		}
		if l.Rate, err = rate.over(fs, "", l.Rate); err != nil {
			return err
		}
		if err := admin.New(client).SetLimit(cmd.Context(), l, by.Options()...); err != nil {
			return err
		}
		return p.Done(l, "limit %s: rate %s, %s at once", l.Name, rateText(l.Rate), anyNumber(l.MaxRunning))
	}
	return c
}

func limitsDelete(p *command.Program) *cobra.Command {
	var by command.Cause
	c := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a limit that no step uses",
		Long: `Delete deletes a limit. It refuses while steps wait for the limit or are under way: to lift the limit
then, use kagzi limits set NAME --clear. A step that names a deleted limit fails.`,
		Example: `  kagzi limits delete openai`,
		Args:    command.Exactly("NAME"),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			if err := admin.New(client).DeleteLimit(ctx, args[0], by.Options()...); err != nil {
				return err
			}
			return p.Done(command.NamedChange{Verb: "delete", Name: args[0]}, "deleted %s", args[0])
		}),
	}
	by.Flags(c.Flags())
	return c
}
