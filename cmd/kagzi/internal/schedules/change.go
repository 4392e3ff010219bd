package schedules

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

func pauseCommand(p *command.Program) *cobra.Command {
	var by command.Cause
	var explained func() bool
	c := changeCommand(p, "pause", "paused", "Keep a schedule from firing",
		`Pause keeps a schedule from firing until kagzi schedules resume. Runs that it has started go on. What is
paused already keeps its reason and actor unless --reason or --actor is given.`,
		func(ctx context.Context, c *kagzi.Client, name string) error {
			if s, err := admin.New(c).GetSchedule(ctx, name); err == nil && s.Paused && s.Error == "" && !explained() {
				return nil
			}
			return admin.New(c).PauseSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	explained = func() bool { return c.Flags().Changed("reason") || c.Flags().Changed("actor") }
	return c
}

func resumeCommand(p *command.Program) *cobra.Command {
	var by command.Cause
	c := changeCommand(p, "resume", "resumed", "Let a paused schedule fire again",
		`Resume lets a paused schedule fire again. The ticks that came meanwhile fire now, as far as its CatchUp
and Overlap allow.`,
		func(ctx context.Context, c *kagzi.Client, name string) error {
			return admin.New(c).ResumeSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	return c
}

func changeCommand(p *command.Program, verb, past, short, long string,
	do func(context.Context, *kagzi.Client, string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long,
		Example:           "  kagzi schedules " + verb + " nightly-report",
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: completeNames(p),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			before, look := admin.New(client).GetSchedule(ctx, args[0])
			if err := do(ctx, client, args[0]); err != nil {
				return err
			}
			change := command.NamedChange{Verb: verb, Name: args[0]}
			switch {
			case look == nil && verb == "pause" && before.Paused:
				change.Already = true
				return p.Done(change, "%s was paused already", args[0])
			case look == nil && verb == "resume" && !before.Paused:
				change.Already = true
				return p.Done(change, "%s was not paused", args[0])
			}
			return p.Done(change, "%s %s", past, args[0])
		}),
	}
}

func deleteCommand(p *command.Program) *cobra.Command {
	var by command.Cause
	var yes bool
	c := changeCommand(p, "delete", "deleted", "Delete a schedule",
		`Delete deletes a schedule. It asks before, unless --yes is given. The runs that it has started stay. An
application that creates the schedule at its start creates it again.`,
		func(ctx context.Context, c *kagzi.Client, name string) error {
			return c.DeleteSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes && p.Interactive() {
			client, err := p.Client(cmd.Context())
			if err == nil {
				_, err = admin.New(client).GetSchedule(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
		}
		if sure, err := p.Sure(cmd.Context(), yes, fmt.Sprintf("Delete the schedule %s?", args[0])); !sure {
			return err
		}
		return run(cmd, args)
	}
	return c
}

func triggerCommand(p *command.Program) *cobra.Command {
	var unlessActive bool
	var by command.Cause
	c := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Start a run of a schedule now",
		Long: `Trigger starts a run of a schedule now, besides those of its timetable and even if it is paused, and
prints the run's ID.`,
		Example:           `  kagzi runs wait $(kagzi schedules trigger nightly-report)`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: completeNames(p),
	}
	by.Flags(c.Flags())
	c.Flags().BoolVar(&unlessActive, "unless-active", false, "start nothing if a run of the schedule is active")
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		opts := by.Options()
		if unlessActive {
			opts = append(opts, kagzi.RejectActive)
		}
		id, err := admin.New(client).TriggerSchedule(ctx, args[0], opts...)
		if err != nil {
			return err
		}
		return p.Done(kagzi.Started{ID: id}, "%s", id)
	})
	return c
}

func backfillCommand(p *command.Program) *cobra.Command {
	var from, until string
	var by command.Cause
	c := &cobra.Command{
		Use:   "backfill NAME --from TIME",
		Short: "Start the runs of past ticks that have none",
		Long: `Backfill starts a run for each tick between --from and --until that has no run. It starts them all at
once, at most 10,000, and prints their number.`,
		Example:           `  kagzi schedules backfill nightly-report --from 2026-09-01 --until 2026-10-01`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: completeNames(p),
	}
	by.Flags(c.Flags())
	c.Flags().StringVar(&from, "from", "", "from this `TIME` on: 7d ago, or 2026-09-01T00:00:00Z")
	c.Flags().StringVar(&until, "until", "", "until this `TIME`; default: now")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if from == "" {
			return command.Usagef("--from is missing: write %s, such as --from 7d", cmd.UseLine())
		}
		start, err := command.ParsePast("from", from, p.Screen.Now())
		if err != nil {
			return err
		}
		end, err := command.ParsePast("until", until, p.Screen.Now())
		if err != nil {
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		if end.IsZero() {
			if end, err = databaseTime(cmd.Context(), client); err != nil {
				return err
			}
		}
		n, err := admin.New(client).BackfillSchedule(cmd.Context(), args[0], start, end, by.Options()...)
		if err != nil {
			return err
		}
		return p.Done(map[string]any{"name": args[0], "started": n}, "started %s of %s",
			words.Plural(n, "run"), args[0])
	}
	return c
}

// databaseTime returns the time by the database's clock: this computer's may be ahead, and a tick in the future is
// refused.
func databaseTime(ctx context.Context, c *kagzi.Client) (t time.Time, err error) {
	report, err := admin.New(c).Health(ctx)
	if err == nil && report.At.IsZero() {
		err = fmt.Errorf("the database does not answer: %s", report.Check("database").Detail)
	}
	return report.At, err
}
