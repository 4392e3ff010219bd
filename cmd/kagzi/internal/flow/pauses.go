package flow

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/explain"
)

// targetFlags are flags that say what a pause stops.
func targetFlags(fs *pflag.FlagSet, t *admin.Target) {
	fs.StringVarP(&t.Queue, "queue", "q", "", "the runs of the queue `NAME`")
	fs.StringVarP(&t.Workflow, "workflow", "w", "", "the runs of the workflow `NAME`; with --queue, those in "+
		"that queue")
	fs.StringVar(&t.Key, "key", "", "the runs of the `KEY` of the --queue")
	fs.StringVar(&t.Group, "group", "", "the runs of the `GROUP`")
	fs.BoolVar(&t.All, "all", false, "all runs of the namespace")
}

func checkTarget(t admin.Target) error {
	switch {
	case t == admin.Target{}:
		return command.Usagef("nothing is named: give --queue, --workflow, --key with --queue, --group, or --all")
	case t.All && (t != admin.Target{All: true}):
		return command.Usagef("--all and another flag exclude each other: give one of them")
	case t.Group != "" && (t != admin.Target{Group: t.Group}):
		return command.Usagef("--group stands alone: a group spans queues and workflows")
	case t.Key != "" && t.Queue == "":
		return command.Usagef("--key needs --queue: a key belongs to a queue")
	case t.Key != "" && t.Workflow != "":
		return command.Usagef("--key and --workflow exclude each other: a key is paused with all of its runs")
	}
	return nil
}

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
			all, err := admin.New(client).Pauses(ctx)
			if err != nil {
				return err
			}
			l := command.Listing[admin.Pause]{
				Columns: []screen.Column{
					{Title: "PAUSED"},
					{Title: "SINCE"},
					{Title: "ACTOR", Min: 8},
					{Title: "GO ON", Right: true},
					{Title: "STOPS STEPS", Drop: 1},
					{Title: "REASON", Min: 16},
				},
				Row: func(of admin.Pause) []any {
					return []any{
						explain.Target(of.Target), p.Screen.Time(of.Since), of.Actor,
						fmt.Sprintf("%d %%", of.Percent), yesNo(of.Parks), of.Reason,
					}
				},
				None: "Nothing is paused.",
			}
			single, err := admin.New(client).Counts(ctx, kagzi.RunFilter{Paused: true})
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

// A targetChange is what pause and unpause print as JSON.
type targetChange struct {
	Verb    string       `json:"verb"`
	Target  admin.Target `json:"target"`
	Percent int          `json:"percent,omitempty"`
	Already bool         `json:"already,omitempty"` // it was paused before
}

// Pause returns kagzi pause.
func Pause(p *command.Program) *cobra.Command {
	var t admin.Target
	var by command.Cause
	var park bool
	c := &cobra.Command{
		Use:   "pause",
		Short: "Keep the runs of a queue, workflow, key or group from being executed",
		Long: `Pause keeps workers from claiming runs. Runs that are being executed go on until they end or wait,
unless --park is given. Starts, messages, cancels and timeouts go on. What is paused already stays so, and keeps its
reason and actor unless --reason or --actor is given. kagzi runs pause pauses one run.`,
		Example: `  kagzi pause --queue shop --reason "the payment provider is down"
  kagzi pause --workflow checkout --park
  kagzi pause --queue shop --key tenant-7`,
		Args: command.Exactly(),
	}
	targetFlags(c.Flags(), &t)
	by.Flags(c.Flags())
	c.Flags().BoolVar(&park, "park", false, "stop runs that are being executed, too, at their next step")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkTarget(t); err != nil {
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		before, already, err := pauseOf(cmd.Context(), client, t)
		if err != nil {
			return err
		}
		explained := cmd.Flags().Changed("reason") || cmd.Flags().Changed("actor")
		var opts []kagzi.ChangeOption
		if !already || explained {
			opts = by.Options()
		}
		if park {
			opts = append(opts, admin.Park())
		}
		if err := admin.New(client).Pause(cmd.Context(), t, opts...); err != nil {
			return err
		}
		// it pauses those to come, too
		selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Queue: t.Queue, Workflow: t.Workflow})
		change := targetChange{Verb: "pause", Target: t, Already: already}
		if already {
			return p.Done(change, "%s", pausedAgain(p.Screen, t, before, cmd.Flags()))
		}
		return p.Done(change, "paused %s", explain.Target(t))
	}
	return c
}

// pauseOf returns the pause of exactly t, if there is one.
func pauseOf(ctx context.Context, c *kagzi.Client, t admin.Target) (p admin.Pause, ok bool, err error) {
	all, err := admin.New(c).Pauses(ctx)
	for _, p := range all {
		if p.Target == t {
			return p, true, nil
		}
	}
	return p, false, err
}

// pausedAgain says what a pause of something that was paused has changed.
func pausedAgain(on *screen.Screen, t admin.Target, before admin.Pause, fs *pflag.FlagSet) string {
	text := fmt.Sprintf("%s was paused already, since %s%s", explain.Target(t), on.Moment(before.Since),
		explain.By(before.Actor, before.Reason))
	switch {
	case fs.Changed("reason"):
		text += ": reason and actor were replaced"
	case fs.Changed("actor"):
		text += ": the actor was replaced"
	}
	if before.Percent > 0 {
		text += fmt.Sprintf("; the %d %% of its runs that went on are paused again", before.Percent)
	}
	return text
}

// Unpause returns kagzi unpause.
func Unpause(p *command.Program) *cobra.Command {
	var t admin.Target
	var by command.Cause
	var percent int
	c := &cobra.Command{
		Use:   "unpause",
		Short: "End a pause, or let some of the runs go on",
		Long: `Unpause ends the pause of exactly what the flags name; other pauses stay. With --percent it keeps the
pause, and lets that part of the runs go on. kagzi pauses lists the pauses.`,
		Example: `  kagzi unpause --queue shop --percent 10
  kagzi unpause --queue shop`,
		Args: command.Exactly(),
	}
	targetFlags(c.Flags(), &t)
	by.Flags(c.Flags())
	c.Flags().IntVar(&percent, "percent", 0, "let `N` percent of the runs go on, 1 to 99, and keep the pause for "+
		"the others")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkTarget(t); err != nil {
			return err
		}
		opts := by.Options()
		if cmd.Flags().Changed("percent") {
			if percent < 1 || percent > 99 {
				return command.Usagef("--percent is %d: give 1 to 99, or leave it out to end the pause", percent)
			}
			opts = append(opts, admin.Percent(percent))
		}
		client, err := p.Client(cmd.Context())
		if err == nil {
			err = admin.New(client).Unpause(cmd.Context(), t, opts...)
		}
		if err != nil {
			return err
		}
		if percent > 0 {
			return p.Done(targetChange{Verb: "unpause", Target: t, Percent: percent}, "%d %% of the runs of %s go on",
				percent, explain.Target(t))
		}
		return p.Done(targetChange{Verb: "unpause", Target: t}, "unpaused %s", explain.Target(t))
	}
	return c
}
