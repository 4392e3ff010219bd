// Package schedules has the commands about schedules.
package schedules

import (
	"context"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/internal/explain"
)

// Command returns kagzi schedules.
func Command(p *command.Program) *cobra.Command {
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
	c.AddCommand(listCommand(p), getCommand(p), nextCommand(p))
	c.AddCommand(deedCommands(p)...)
	return c
}

// allSchedules returns the schedules in the order of their names.
func allSchedules(ctx context.Context, c *kagzi.Client, f admin.ScheduleFilter) iter.Seq2[admin.ScheduleInfo, error] {
	return command.Pages(0, func(n int, last *admin.ScheduleInfo) ([]admin.ScheduleInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.Name
		}
		return admin.New(c).Schedules.List(ctx, f)
	})
}

func listCommand(p *command.Program) *cobra.Command {
	var f admin.ScheduleFilter
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
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
		l := command.Listing[admin.ScheduleInfo]{
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
			Row: func(s admin.ScheduleInfo) []any {
				return []any{
					s.Name, s.Workflow, timetable(s), p.Screen.Time(lastTick(s)), p.Screen.Time(s.Next),
					s.Overlap, s.Queue, scheduleState(s),
				}
			},
			None: "There are no schedules.",
		}
		if f.Workflow != "" {
			l.None = "No schedule matches."
		}
		n, err := l.Print(p, allSchedules(ctx, client, f))
		if err == nil && n == 0 {
			selection.WarnOfNames(ctx, p, client, kagzi.RunFilter{Workflow: f.Workflow})
		}
		return err
	})
	return c
}

func timetable(s admin.ScheduleInfo) string {
	if s.Cron == "" {
		return "every " + screen.Short(s.Every)
	}
	if s.TimeZone != "" && s.TimeZone != "UTC" {
		return s.Cron + " " + s.TimeZone
	}
	return s.Cron
}

func scheduleState(s admin.ScheduleInfo) screen.Cell {
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

func getCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:               "get NAME",
		Short:             "Show one schedule, with its last runs",
		Long:              `Get shows a schedule, its next five ticks and its last five runs.`,
		Example:           `  kagzi schedules get nightly-report`,
		Args:              command.Exactly("NAME"),
		ValidArgsFunction: completeNames(p),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			s, err := admin.New(client).Schedules.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if p.JSON {
				return p.PrintJSON(s)
			}
			fires, err := admin.New(client).Schedules.NextFires(ctx, s.Name, 5)
			if err != nil {
				return err
			}
			state := scheduleState(s)
			fields := [][2]string{
				{"Schedule", s.Name},
				{"Workflow", s.Workflow},
				{"Queue", s.Queue},
				{"Timetable", timetable(s)},
				{"State", p.Screen.Paint(state.Tone, state.Text)},
				{"Overlap", string(s.Overlap)},
				{"Input", tables.Payload(p.Screen, s.Input)},
				{"Metadata", tables.Pairs(s.Metadata)},
				{"Key", string(s.Key)},
				{"Group", string(s.Group)},
				{"Last tick", p.Screen.Moment(lastTick(s))},
			}
			for i, t := range fires {
				name := ""
				if i == 0 {
					name = "Next ticks"
				}
				fields = append(fields, [2]string{name, p.Screen.Moment(t)})
			}
			if err := p.PrintFields(fields); err != nil {
				return err
			}
			if err := p.Screen.Printf(""); err != nil {
				return err
			}
			l := tables.Runs(p.Screen, "It has no runs.")
			_, err = l.Print(p, tables.ListRuns(ctx, client, kagzi.RunFilter{Schedule: s.Name, Limit: 5}))
			return err
		}),
	}
}

// lastTick returns the last tick, zero if there was none: then Last is about when the schedule was created.
func lastTick(s admin.ScheduleInfo) time.Time {
	if s.Last.Before(s.CreatedAt.Add(time.Second)) {
		return time.Time{}
	}
	return s.Last
}

// completeNames completes the name of a schedule.
func completeNames(p *command.Program) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, c *kagzi.Client) (names []string, err error) {
		all, err := admin.New(c).Schedules.List(ctx, admin.ScheduleFilter{})
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names, err
	})
}
