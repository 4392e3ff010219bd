package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/explain"
)

func (a *app) queues() *cobra.Command {
	c := &cobra.Command{
		Use:     "queues",
		Aliases: []string{"queue"},
		Short:   "List the queues with limits, and set their limits",
		Long: `The limits of a queue say how many of its runs all workers together execute at once, and how often one
may start. A queue without limits is not listed: kagzi health counts the due runs of all queues.`,
		Example: `  kagzi queues list
  kagzi queues set shop --max-running 50 --rate 10/s`,
	}
	c.AddCommand(a.queuesList(), a.queuesSet())
	return c
}

func (a *app) queuesList() *cobra.Command {
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
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			queues, err := client.Queues(ctx)
			if err != nil {
				return err
			}
			l := command.Listing[kagzi.QueueInfo]{
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
				Row: func(q kagzi.QueueInfo) []any {
					return []any{
						q.Queue, ofMost(q.Running, q.MaxRunning), rateText(q.Rate), keyLimitsText(q.EachKey),
						yesNo(q.Hold), a.Screen.Time(q.WaitingSince),
						a.Screen.Time(q.NextStart), a.Screen.Time(q.ChangedAt),
					}
				},
				None: "No queue has limits: kagzi queues set gives it some.",
			}
			n, err := l.Print(a.Program, command.Each(queues))
			if err == nil && n == 0 {
				selection.WarnOfNamespace(ctx, a.Program, client)
			}
			return err
		}),
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func ofMost(n, most int) string {
	if most == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d/%d", n, most)
}

// rateText writes a rate in the form that parseRate reads.
func rateText(r kagzi.Rate) string {
	if r.Starts == 0 {
		return "-"
	}
	return explain.Rate(r, screen.Short)
}

func keyLimitsText(l kagzi.KeyLimits) string {
	var parts []string
	if l.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("at most %d running", l.MaxRunning))
	}
	if l.Rate.Starts > 0 {
		parts = append(parts, rateText(l.Rate))
	}
	if l.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %d", l.Weight))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// setHelp is how the commands that set limits treat those that exist.
const setHelp = `Limits that no flag names stay as they are; 0 removes one, and --clear removes all first. Runs under way go on.`

// rateFlags are a rate and its burst.
type rateFlags struct {
	rate  string
	burst int
}

func (r *rateFlags) flags(fs *pflag.FlagSet, prefix, what string) {
	fs.StringVar(&r.rate, prefix+"rate", "", "how often "+what+" may start, as `RATE`: 10/s, 600/m, 5/10s; 0 means "+
		"any number")
	fs.IntVar(&r.burst, prefix+"burst", 0, "how many may start at once after a time with fewer, as `N`")
}

// over returns the rate that the flags make of one.
func (r *rateFlags) over(fs *pflag.FlagSet, prefix string, old kagzi.Rate) (kagzi.Rate, error) {
	if fs.Changed(prefix + "rate") {
		rate, err := parseRate(prefix+"rate", r.rate)
		if err != nil {
			return old, err
		}
		rate.Burst = old.Burst
		if rate.Starts == 0 {
			rate = kagzi.Rate{}
		}
		old = rate
	}
	if fs.Changed(prefix + "burst") {
		if old.Starts == 0 {
			return old, command.Usagef("--%sburst needs a rate: give --%[1]srate, too", prefix)
		}
		old.Burst = r.burst
	}
	return old, nil
}

func (a *app) queuesSet() *cobra.Command {
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
		if _, err := rate.over(fs, "", kagzi.Rate{Starts: 1}); err != nil { // before a connection is made
			return err
		}
		if _, err := keyRate.over(fs, "key-", kagzi.Rate{Starts: 1}); err != nil {
			return err
		}
		client, err := a.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := kagzi.QueueLimits{}
		if !clear {
			all, err := client.Queues(cmd.Context())
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(all, func(q kagzi.QueueInfo) bool { return q.Queue == args[0] }); i >= 0 {
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
		if err := client.SetQueue(cmd.Context(), l, by.Options()...); err != nil {
			return err
		}
		selection.WarnOfNames(cmd.Context(), a.Program, client, kagzi.RunFilter{Queue: args[0]})
		return a.Done(l, "queue %s: %s running, rate %s, each key %s, hold %s", l.Queue, anyNumber(l.MaxRunning),
			rateText(l.Rate), keyLimitsText(l.EachKey), yesNo(l.Hold))
	}
	return c
}

func anyNumber(n int) string {
	if n == 0 {
		return "any number"
	}
	return "at most " + strconv.Itoa(n)
}

// needsChange refuses a command that sets nothing.
func needsChange(fs *pflag.FlagSet) error {
	n := 0
	fs.Visit(func(f *pflag.Flag) {
		if fs.Lookup(f.Name) != nil && !slices.Contains([]string{
			"json", "no-color", "namespace", "database-url",
			"timeout", "queue", "reason", "actor",
		}, f.Name) {
			n++
		}
	})
	if n == 0 {
		return command.Usagef("there is nothing to set: give a limit such as --max-running 10, or --clear")
	}
	return nil
}

// parseRate reads a rate: "10/s", "600/m", "5/10s". "0" is no rate.
func parseRate(flag, s string) (kagzi.Rate, error) {
	bad := command.Usagef("--%s is %q: write it as 10/s, 600/m or 5/10s; 0 means no rate", flag, s)
	if s == "0" {
		return kagzi.Rate{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 {
		return kagzi.Rate{}, bad
	}
	if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, err := duration.Parse(per)
	if err != nil || d <= 0 {
		return kagzi.Rate{}, bad
	}
	return kagzi.Rate{Starts: n, Per: d}, nil
}
