package runs

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/internal/duration"
)

// countFields are the names that --by takes; started and ended take a length, too.
var countFields = map[string]admin.CountField{
	"status": admin.ByStatus, "workflow": admin.ByWorkflow, "queue": admin.ByQueue, "kind": admin.ByKind,
	"step": admin.ByStep,
}

var countNames = []string{"status", "workflow", "queue", "kind", "step", "started=1h", "ended=1h"}

func countCommand(p *command.Program) *cobra.Command {
	var f selection.Filter
	var by []string
	c := &cobra.Command{
		Use:   "count",
		Short: "Count runs, by status, workflow, kind, step or time",
		Long: `Count counts the runs that all of the flags select, in groups, the largest first. STEP is the step that
a run is at: for a failed run the one whose failure ended it. started=1h and ended=1d group by the time of the start
or end, in intervals of that length, which are in UTC.

It reads every run that the flags select: a million takes about a second.`,
		Example: `  kagzi runs count
  kagzi runs count --status failed --ended-since 1h --by kind,step
  kagzi runs count --workflow checkout --since 7d --by started=1d,status`,
		Args: command.Exactly(),
	}
	f.SelectingFlags(c)
	f.IDFlag(c)
	c.Flags().StringSliceVarP(&by, "by", "b", []string{"workflow", "status"}, "count by `FIELDS`: "+
		strings.Join(countNames, ", "))
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(countNames, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		rf, err := f.Runs(p.Screen.Now())
		if err != nil {
			return err
		}
		fields, err := countsBy(by)
		if err != nil {
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		counts, err := admin.New(client).Runs.Count(cmd.Context(), rf, fields...)
		if err != nil {
			return err
		}
		if _, err = countListing(by).Print(p, command.Each(counts)); err == nil && len(counts) == 0 {
			selection.WarnOfNames(cmd.Context(), p, client, rf)
		}
		return err
	}
	return c
}

// countsBy reads --by.
func countsBy(by []string) (fields []admin.CountBy, err error) {
	for i, given := range by {
		name, length, timed := strings.Cut(strings.TrimSpace(given), "=")
		by[i] = name
		if field, ok := countFields[name]; ok && !timed {
			fields = append(fields, field)
			continue
		}
		d := time.Hour
		if timed {
			if d, err = duration.Parse(length); err != nil || d <= 0 {
				return nil, command.Usagef("--by %s=%s: give a duration, such as %[1]s=1h", name, length)
			}
		}
		switch name {
		case "started":
			fields = append(fields, admin.ByStarted(d))
		case "ended":
			fields = append(fields, admin.ByEnded(d))
		default:
			return nil, command.Usagef("--by is %q: give one or more of %s", given, strings.Join(countNames, ", "))
		}
	}
	return fields, nil
}

func countListing(by []string) command.Listing[admin.RunCount] {
	columns := []screen.Column{{Title: "RUNS", Right: true}}
	for _, name := range by {
		columns = append(columns, screen.Column{Title: strings.ToUpper(name), Min: 12})
	}
	return command.Listing[admin.RunCount]{
		Columns: columns,
		Row: func(n admin.RunCount) []any {
			row := []any{n.Runs}
			for _, name := range by {
				row = append(row, map[string]any{
					"status": tables.StatusCell(n.Status), "workflow": n.Workflow, "queue": n.Queue, "kind": n.Kind,
					"step":    n.Step,
					"started": interval(n.Started), "ended": interval(n.Ended),
				}[name])
			}
			return row
		},
		None: "No run matches.",
	}
}

// interval returns the beginning of an interval, in UTC as the intervals are.
func interval(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
