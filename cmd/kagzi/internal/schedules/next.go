package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

// A fire is a row of schedules next: one tick, or the ticks of a schedule that has many of them.
type fire struct {
	At       time.Time `json:"at"`
	Schedule string    `json:"schedule"`
	Workflow string    `json:"workflow"`
	Queue    string    `json:"queue"`
	Paused   bool      `json:"paused,omitempty"`  // the tick fires only if the schedule is resumed
	Overdue  bool      `json:"overdue,omitempty"` // its time has passed, and it has not fired
	// why an interceptor refused the schedule's last tick, which is tried again, or why Kagzi paused the schedule
	Error   string    `json:"error,omitempty"`
	Further int       `json:"further,omitempty"` // so many ticks follow
	More    bool      `json:"more,omitempty"`    // and there are more than that
	Last    time.Time `json:"last,omitzero"`     // the last of them
}

const (
	mostTicks  = 10_000 // that are asked for at once, of a schedule
	eachAtMost = 14     // ticks of a schedule have rows of their own: twice a day for a week

	overdueAfter = 10 * time.Second // clocks differ, and a coordinator needs a moment
)

func nextCommand(p *command.Program) *cobra.Command {
	var until, workflow string
	var every bool
	c := &cobra.Command{
		Use:   "next [NAME]",
		Short: "Say what the schedules will start, and when",
		Long: `Next lists the ticks of all schedules, or of one, until a time, in the order in which they come. A
schedule with more than 14 ticks has one row with their number, unless --each is given. Ticks of paused schedules
fire only if the schedule is resumed before. An overdue tick has not fired at its time: no coordinator is up, or an
interceptor of the application refuses it, which is tried again.`,
		Example: `  kagzi schedules next --until 7d
  kagzi schedules next nightly-report --until 2026-12-31 --each`,
		Args:              command.Between(0, "NAME"),
		ValidArgsFunction: completeNames(p),
	}
	c.Flags().StringVar(&until, "until", "7d", "until this `TIME`: 7d from now, or 2026-12-31T00:00:00Z")
	c.Flags().StringVarP(&workflow, "workflow", "w", "", "only schedules of the workflow `NAME`")
	c.Flags().BoolVar(&every, "each", false, "a row for each tick")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		end, err := command.ParseFuture("until", until, p.Screen.Now())
		if err != nil {
			return err
		}
		if !end.After(p.Screen.Now()) {
			return command.Usagef("--until %s is not in the future: give a distance such as 7d, or a later time", until)
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		fires, err := nextFires(cmd.Context(), client, args, workflow, end, p.Screen.Now(), every)
		if err != nil {
			return err
		}
		n, err := fireListing(p.Screen, end).Print(p, command.Each(fires))
		if err == nil && n == 0 && len(args) == 0 {
			selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Workflow: workflow})
		}
		return err
	}
	return c
}

func fireListing(on *screen.Screen, end time.Time) command.Listing[fire] {
	return command.Listing[fire]{
		Columns: []screen.Column{
			{Title: "TIME"},
			{Title: "SCHEDULE"},
			{Title: "WORKFLOW", Min: 12, Drop: 1},
			{Title: "QUEUE", Min: 8, Drop: 2},
			{Title: "NOTE", Min: 20},
		},
		Row: func(f fire) []any {
			return []any{day(on, f.At), f.Schedule, f.Workflow, f.Queue, fireNote(on, f)}
		},
		None: "No schedule has a tick until " + end.Format(time.RFC3339) + ".",
	}
}

// fireNote says what is the matter with a tick, and how many follow.
func fireNote(on *screen.Screen, f fire) screen.Cell {
	var parts []string
	note := screen.Cell{}
	switch {
	case f.Paused && f.Error != "":
		parts, note.Tone = []string{"paused: " + words.OneLine(f.Error)}, screen.Bad
	case f.Paused:
		parts, note.Tone = []string{"paused"}, screen.Warning
	case f.Error != "":
		parts, note.Tone = []string{"refused: " + words.OneLine(f.Error) + ", tried again"}, screen.Bad
	case f.Overdue:
		parts, note.Tone = []string{"overdue"}, screen.Warning
	}
	if f.Further > 0 {
		more := ""
		if f.More {
			more = "more than "
		}
		parts = append(parts, fmt.Sprintf("and %s%d more times, the last %s", more, f.Further, on.Time(f.Last)))
	}
	note.Text = strings.Join(parts, "; ")
	return note
}

// day returns a time with its day of the week, at a terminal.
func day(on *screen.Screen, t time.Time) string {
	if on.Width == 0 {
		return on.Time(t)
	}
	return t.Local().Format("Mon 2006-01-02 15:04 MST") + " (" + on.Time(t) + ")"
}

// nextFires returns the ticks until end of the schedule that args name, else of all.
func nextFires(ctx context.Context, c *kagzi.Client, args []string, workflow string, end, now time.Time,
	each bool,
) ([]fire, error) {
	var schedules []admin.ScheduleInfo
	if len(args) > 0 {
		s, err := admin.New(c).Schedules.Get(ctx, args[0])
		if err != nil {
			return nil, err
		}
		schedules = append(schedules, s)
	} else {
		for s, err := range allSchedules(ctx, c, admin.ScheduleFilter{Workflow: workflow}) {
			if err != nil {
				return nil, err
			}
			schedules = append(schedules, s)
		}
	}
	fires := []fire{}
	for _, s := range schedules {
		of, err := firesOf(ctx, c, s, end, now, each)
		switch {
		case errors.Is(err, kagzi.ErrNotFound) && len(args) == 0: // deleted meanwhile
		case err != nil && s.Error != "" && len(args) == 0: // its timetable cannot be read: schedules list says so
		case err != nil:
			return nil, err
		}
		fires = append(fires, of...)
	}
	slices.SortStableFunc(fires, func(a, b fire) int { return a.At.Compare(b.At) })
	return fires, nil
}

// firesOf returns the ticks of a schedule until end.
func firesOf(ctx context.Context, c *kagzi.Client, s admin.ScheduleInfo, end, now time.Time,
	each bool,
) (fires []fire, err error) {
	ticks, err := admin.New(c).Schedules.NextFires(ctx, s.Name, mostTicks)
	if err != nil {
		return nil, err
	}
	all := len(ticks)
	ticks = slices.DeleteFunc(ticks, func(t time.Time) bool { return t.After(end) })
	more := all == mostTicks && len(ticks) == all
	f := fire{Schedule: s.Name, Workflow: s.Workflow, Queue: s.Queue, Paused: s.Paused}
	if len(ticks) > eachAtMost && !each {
		f.Further, f.Last, f.More = len(ticks)-1, ticks[len(ticks)-1], more
		ticks = ticks[:1]
	}
	// by its Jitter, a tick may fire after its time
	late := !s.Paused && !s.Next.IsZero() && now.Sub(s.Next) > overdueAfter
	for i, t := range ticks {
		f.At = t
		f.Overdue = late && t.Before(now)
		if f.Error = ""; i == 0 || f.Overdue {
			f.Error = s.Error
		}
		f.More = f.More || more && i == len(ticks)-1 && each
		fires = append(fires, f)
	}
	return fires, nil
}
