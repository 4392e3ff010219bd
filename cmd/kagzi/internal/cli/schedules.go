package cli

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/internal/explain"
)

func (a *app) schedules() *cobra.Command {
	c := &cobra.Command{
		Use:     "schedules",
		Aliases: []string{"schedule"},
		Short:   "List schedules, say what they start when, pause and trigger them",
		Long: `A schedule starts runs by the clock. Applications create schedules; this program lists and controls
them.`,
		Example: `  kagzi schedules list
  kagzi schedules next --until 7d
  kagzi schedules trigger nightly-report`,
	}
	c.AddCommand(a.schedulesList(), a.schedulesGet(), a.schedulesNext(), a.schedulesBackfill(), a.schedulesTrigger())
	c.AddCommand(a.schedulesPause())
	c.AddCommand(a.schedulesResume(), a.schedulesDelete())
	return c
}

func (a *app) schedulesPause() *cobra.Command {
	var by command.Cause
	var explained func() bool
	c := a.scheduleChange("pause", "paused", "Keep a schedule from firing",
		`Pause keeps a schedule from firing until kagzi schedules resume. Runs that it has started go on. What is
paused already keeps its reason and actor unless --reason or --actor is given.`,
		func(ctx context.Context, c *kagzi.Client, name string) error {
			if s, err := c.GetSchedule(ctx, name); err == nil && s.Paused && s.Error == "" && !explained() {
				return nil
			}
			return c.PauseSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	explained = func() bool { return c.Flags().Changed("reason") || c.Flags().Changed("actor") }
	return c
}

func (a *app) schedulesResume() *cobra.Command {
	var by command.Cause
	c := a.scheduleChange("resume", "resumed", "Let a paused schedule fire again",
		`Resume lets a paused schedule fire again. The ticks that came meanwhile fire now, as far as its CatchUp
and Overlap allow.`,
		func(ctx context.Context, c *kagzi.Client, name string) error {
			return c.ResumeSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	return c
}

func (a *app) scheduleChange(verb, past, short, long string,
	do func(context.Context, *kagzi.Client, string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long,
		Example:           "  kagzi schedules " + verb + " nightly-report",
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: a.completeSchedules,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			before, look := client.GetSchedule(ctx, args[0])
			if err := do(ctx, client, args[0]); err != nil {
				return err
			}
			change := command.NamedChange{Verb: verb, Name: args[0]}
			switch {
			case look == nil && verb == "pause" && before.Paused:
				change.Already = true
				return a.Done(change, "%s was paused already", args[0])
			case look == nil && verb == "resume" && !before.Paused:
				change.Already = true
				return a.Done(change, "%s was not paused", args[0])
			}
			return a.Done(change, "%s %s", past, args[0])
		}),
	}
}

func (a *app) schedulesDelete() *cobra.Command {
	var by command.Cause
	var yes bool
	c := a.scheduleChange("delete", "deleted", "Delete a schedule",
		`Delete deletes a schedule. It asks before, unless --yes is given. The runs that it has started stay. An
application that creates the schedule at its start creates it again.`, func(ctx context.Context, c *kagzi.Client, name string) error {
			return c.DeleteSchedule(ctx, name, by.Options()...)
		})
	by.Flags(c.Flags())
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes && a.Interactive() {
			client, err := a.Client(cmd.Context())
			if err == nil {
				_, err = client.GetSchedule(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
		}
		if sure, err := a.Sure(cmd.Context(), yes, fmt.Sprintf("Delete the schedule %s?", args[0])); !sure {
			return err
		}
		return run(cmd, args)
	}
	return c
}

// allSchedules returns the schedules in the order of their names.
func allSchedules(ctx context.Context, c *kagzi.Client, f kagzi.ScheduleFilter) iter.Seq2[kagzi.ScheduleInfo, error] {
	return command.Pages(0, func(n int, last *kagzi.ScheduleInfo) ([]kagzi.ScheduleInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.Name
		}
		return c.ListSchedules(ctx, f)
	})
}

func (a *app) schedulesList() *cobra.Command {
	var f kagzi.ScheduleFilter
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List schedules",
		Long:    `List shows the schedules by name: their timetables, when they last fired and when they will.`,
		Example: `  kagzi schedules list
  kagzi schedules list --workflow report`,
		Args: command.Exactly(),
	}
	c.Flags().StringVarP(&f.Workflow, "workflow", "w", "", "only schedules of the workflow `NAME`")
	c.RunE = a.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
		l := command.Listing[kagzi.ScheduleInfo]{
			Columns: []screen.Column{
				{Title: "NAME"},
				{Title: "WORKFLOW", Min: 12, Drop: 3},
				{Title: "TIMETABLE", Min: 12},
				{Title: "LAST", Drop: 2},
				{Title: "NEXT"},
				{Title: "OVERLAP", Drop: 4},
				{Title: "QUEUE", Drop: 5},
				{Title: "STATE", Min: 10}, // the last, as it may have an error
			},
			Row: func(s kagzi.ScheduleInfo) []any {
				return []any{
					s.Name, s.Workflow, timetable(s), a.Screen.Time(lastTick(s)), a.Screen.Time(s.Next),
					s.Overlap, s.Queue, scheduleState(s),
				}
			},
			None: "There are no schedules.",
		}
		if f.Workflow != "" {
			l.None = "No schedule matches."
		}
		n, err := l.Print(a.Program, allSchedules(ctx, client, f))
		if err == nil && n == 0 {
			selection.WarnOfNames(ctx, a.Program, client, kagzi.RunFilter{Workflow: f.Workflow})
		}
		return err
	})
	return c
}

func timetable(s kagzi.ScheduleInfo) string {
	if s.Cron == "" {
		return "every " + screen.Short(s.Every)
	}
	if s.TimeZone != "" && s.TimeZone != "UTC" {
		return s.Cron + " " + s.TimeZone
	}
	return s.Cron
}

func scheduleState(s kagzi.ScheduleInfo) screen.Cell {
	switch {
	case s.Error != "" && !s.Paused:
		return screen.Cell{Text: "refused: " + s.Error, Tone: screen.Bad}
	case s.Error != "":
		return screen.Cell{Text: "paused: " + s.Error, Tone: screen.Bad}
	case s.Paused:
		return screen.Cell{Text: "paused" + explain.By(s.PauseActor, s.PauseReason), Tone: screen.Warning}
	case s.Queued:
		return screen.Cell{Text: "run waits"}
	case s.Active:
		return screen.Cell{Text: "run active", Tone: screen.Strong}
	}
	return screen.Cell{Text: "ok", Tone: screen.Good}
}

func (a *app) schedulesGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get NAME",
		Short:             "Show one schedule, with its last runs",
		Long:              `Get shows a schedule, its next five ticks and its last five runs.`,
		Example:           `  kagzi schedules get nightly-report`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: a.completeSchedules,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			s, err := client.GetSchedule(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(s)
			}
			fires, err := client.NextFires(ctx, s.Name, 5)
			if err != nil {
				return err
			}
			state := scheduleState(s)
			fields := [][2]string{
				{"Schedule", s.Name},
				{"Workflow", s.Workflow},
				{"Queue", s.Queue},
				{"Timetable", timetable(s)},
				{"State", a.Screen.Paint(state.Tone, state.Text)},
				{"Overlap", string(s.Overlap)},
				{"Input", tables.Payload(a.Screen, s.Input)},
				{"Metadata", tables.Pairs(s.Metadata)},
				{"Key", string(s.Key)},
				{"Group", string(s.Group)},
				{"Last tick", a.Screen.Moment(lastTick(s))},
			}
			for i, t := range fires {
				name := ""
				if i == 0 {
					name = "Next ticks"
				}
				fields = append(fields, [2]string{name, a.Screen.Moment(t)})
			}
			if err := a.PrintFields(fields); err != nil {
				return err
			}
			if err := a.Screen.Printf(""); err != nil {
				return err
			}
			l := tables.Runs(a.Screen, "It has no runs.")
			_, err = l.Print(a.Program, tables.ListRuns(ctx, client, kagzi.RunFilter{Schedule: s.Name, Limit: 5}))
			return err
		}),
	}
}

func (a *app) schedulesTrigger() *cobra.Command {
	var unlessActive bool
	var by command.Cause
	c := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Start a run of a schedule now",
		Long: `Trigger starts a run of a schedule now, besides those of its timetable and even if it is paused, and
prints the run's ID.`,
		Example:           `  kagzi runs wait $(kagzi schedules trigger nightly-report)`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: a.completeSchedules,
	}
	by.Flags(c.Flags())
	c.Flags().BoolVar(&unlessActive, "unless-active", false, "start nothing if a run of the schedule is active")
	c.RunE = a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		opts := by.Options()
		if unlessActive {
			opts = append(opts, kagzi.RejectActive)
		}
		id, err := client.TriggerSchedule(ctx, args[0], opts...)
		if err != nil {
			return err
		}
		return a.Done(kagzi.Started{ID: id}, "%s", id)
	})
	return c
}

func (a *app) schedulesBackfill() *cobra.Command {
	var from, until string
	var by command.Cause
	c := &cobra.Command{
		Use:   "backfill NAME --from TIME",
		Short: "Start the runs of past ticks that have none",
		Long: `Backfill starts a run for each tick between --from and --until that has no run. It starts them all at
once, at most 10,000, and prints their number.`,
		Example:           `  kagzi schedules backfill nightly-report --from 2026-09-01 --until 2026-10-01`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: a.completeSchedules,
	}
	by.Flags(c.Flags())
	c.Flags().StringVar(&from, "from", "", "from this `TIME` on: 7d ago, or 2026-09-01T00:00:00Z")
	c.Flags().StringVar(&until, "until", "", "until this `TIME`; default: now")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if from == "" {
			return command.Usagef("--from is missing: write %s, such as --from 7d", cmd.UseLine())
		}
		start, err := command.ParsePast("from", from, a.Screen.Now())
		if err != nil {
			return err
		}
		end, err := command.ParsePast("until", until, a.Screen.Now())
		if err != nil {
			return err
		}
		client, err := a.Client(cmd.Context())
		if err != nil {
			return err
		}
		if end.IsZero() {
			if end, err = databaseTime(cmd.Context(), client); err != nil {
				return err
			}
		}
		n, err := client.BackfillSchedule(cmd.Context(), args[0], start, end, by.Options()...)
		if err != nil {
			return err
		}
		return a.Done(map[string]any{"name": args[0], "started": n}, "started %s of %s", countRuns(n), args[0])
	}
	return c
}

// databaseTime returns the time by the database's clock: this computer's may be ahead, and a tick in the future is
// refused.
func databaseTime(ctx context.Context, c *kagzi.Client) (t time.Time, err error) {
	report, err := c.Health(ctx)
	if err == nil && report.At.IsZero() {
		err = fmt.Errorf("the database does not answer: %s", report.Check("database").Detail)
	}
	return report.At, err
}

// lastTick returns the last tick, zero if there was none: then Last is about when the schedule was created.
func lastTick(s kagzi.ScheduleInfo) time.Time {
	if s.Last.Before(s.CreatedAt.Add(time.Second)) {
		return time.Time{}
	}
	return s.Last
}

// completeSchedules completes the name of a schedule.
func (a *app) completeSchedules(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, args, func(ctx context.Context, c *kagzi.Client) (names []string, err error) {
		all, err := c.ListSchedules(ctx, kagzi.ScheduleFilter{})
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names, err
	})
}
