package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/health"
)

func (a *app) health() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Say whether the database answers, and whether the work goes on",
		Long: `Health checks the database and the work of the namespace, and says what to do about what it finds. It
also counts the due runs of each queue, and the runs that failed within the last hour by workflow and kind.

It exits with 0 if all is healthy, and with 4 if something is degraded or unhealthy.`,
		Example: `  kagzi health
  kagzi health --json | jq '.checks[] | select(.status != "healthy")'`,
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := a.DB.Dial(cmd.Context()) // it says itself that the database is away
			if err != nil {
				return a.DB.ConnectionError(err)
			}
			client, err := a.ClientOf(pool)
			if err != nil {
				return err
			}
			r, err := client.Health(cmd.Context())
			if err != nil {
				return err
			}
			if r.Status == health.Healthy && r.Workers.Live == 0 {
				selection.WarnOfNamespace(cmd.Context(), a.Program, client)
			}
			if a.JSON {
				err = a.PrintJSON(r)
			} else {
				err = a.printHealth(r)
			}
			if err == nil && r.Status != health.Healthy {
				err = command.ExitUnwell
			}
			return err
		},
	}
}

func healthCell(s health.Status) screen.Cell {
	tone := map[health.Status]screen.Tone{
		health.Healthy: screen.Good, health.Degraded: screen.Warning,
		health.Unhealthy: screen.Bad,
	}
	return screen.Cell{Text: string(s), Tone: tone[s]}
}

func (a *app) printHealth(r health.Report) error {
	status := healthCell(r.Status)
	if err := a.Screen.Printf("%s: %s\n", r.Namespace, a.Screen.Paint(status.Tone, status.Text)); err != nil {
		return err
	}
	for _, c := range r.Checks {
		if err := a.printCheck(c); err != nil {
			return err
		}
	}
	var tables []*screen.Table
	if len(r.Queues) > 0 {
		t := a.Screen.Table(screen.Column{Title: "DUE IN QUEUE"}, screen.Column{Title: "WORKFLOW", Min: 12},
			screen.Column{Title: "DUE", Right: true}, screen.Column{Title: "SINCE"},
			screen.Column{Title: "WORKERS", Right: true}, screen.Column{Title: "VERSIONS WITHOUT WORKER"})
		for _, q := range r.Queues {
			t.Row(q.Queue, q.Workflow, words.OrMore(q.Due, q.More), a.Screen.Time(q.Since), q.Workers,
				screen.Cell{Text: strings.Trim(fmt.Sprint(q.Stranded), "[]"), Tone: screen.Bad})
		}
		tables = append(tables, t)
	}
	if len(r.Failed) > 0 {
		t := a.Screen.Table(screen.Column{Title: "FAILED IN THE LAST HOUR"}, screen.Column{Title: "KIND", Min: 12},
			screen.Column{Title: "RUNS", Right: true}, screen.Column{Title: "LAST"})
		for _, f := range r.Failed {
			t.Row(f.Workflow, f.Kind, words.OrMore(f.Runs, f.More), a.Screen.Time(f.Last))
		}
		tables = append(tables, t)
	}
	for _, t := range tables {
		if err := a.Screen.Printf("\n%s", strings.TrimSuffix(t.String(), "\n")); err != nil {
			return err
		}
	}
	return nil
}

// next are the commands that help with what a check has found, behind its detail.
var next = map[string]string{
	"compensations": "kagzi runs steps RUN shows the errors, kagzi runs resume RUN resumes the run.",
	"consumers":     "kagzi consumers lists them.",
	"events":        "kagzi consumers lists the consumers.",
	"failures": "kagzi runs list --status failed --ended-since 1h lists them, kagzi runs resume --status failed " +
		"--ended-since 1h --dry-run says which would be resumed.",
	"histories": "kagzi runs get RUN says more.",
	"keys":      "kagzi runs get RUN says more.",
	"messages":  "kagzi runs get RUN names each message, and both commands.",
	"strays":    "kagzi workers log WORKER-ID shows what befell the worker.",
	"suspects":  "kagzi runs list --waiting-on recovery lists them, and kagzi runs get RUN says more.",
	"hung":      "kagzi runs get RUN says more.",
	"nested":    "kagzi runs get RUN says more.",
	"limits": "kagzi queues list and kagzi limits list show the limits, kagzi queues set and kagzi limits set " +
		"change them.",
	"pauses":      "kagzi pauses lists the pauses, kagzi unpause ends one.",
	"quarantined": "kagzi runs get RUN shows the error, kagzi runs resume RUN resumes the run.",
	"queues":      "kagzi workers list shows who takes what.",
	"schedules":   "kagzi schedules list shows them.",
	"workers":     "kagzi workers list --all shows them.",
}

// checkText returns the detail of a check, in terms of this program.
func checkText(c health.Check) string {
	text := words.InTerms(c.Detail)
	text, single := strings.CutSuffix(strings.TrimSuffix(text, " An unpause ends it."),
		" Each goes on once it is unpaused.")
	if single {
		return text + " kagzi runs list --paused lists them, kagzi runs unpause --paused lets them go on."
	}
	if advice, ok := next[c.Name]; ok && c.Status != health.Healthy {
		text += " " + advice
	}
	return text
}

func (a *app) printCheck(c health.Check) error {
	cell, text := healthCell(c.Status), checkText(c)
	if _, from := a.DB.Source(); c.Name == "database" && c.Status == health.Unhealthy {
		text += fmt.Sprintf(" It was looked for at %s, by %s.", a.DB.Server(), from)
	}
	return a.printFinding(cell.Tone, fmt.Sprintf("%-9s", cell.Text), fmt.Sprintf("%-13s", c.Name), text)
}

// A stuckReport is what stuck prints as JSON.
type stuckReport struct {
	Checks   []health.Check       `json:"checks"`   // those that are not healthy
	Stranded []kagzi.StrandedRuns `json:"stranded"` // runs whose version no live worker has
}

func (a *app) stuck() *cobra.Command {
	return &cobra.Command{
		Use:   "stuck",
		Short: "Say whether anything is stuck, and what to do about it",
		Long: `Stuck shows what does not go on: the checks of kagzi health that found something, and the runs for whose
version no live worker has code. The checks also find failures of the last hour, and runs that were quarantined in
the last day.

It exits with 0 if nothing is found, and with 4 otherwise.`,
		Example: `  kagzi stuck`,
		Args:    command.Exactly(),
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			r, err := client.Health(ctx)
			if err != nil {
				return err
			}
			stranded, err := client.Stranded(ctx)
			if err != nil {
				return err
			}
			out := stuckReport{
				Checks:   slices.DeleteFunc(r.Checks, func(c health.Check) bool { return c.Status == health.Healthy }),
				Stranded: append([]kagzi.StrandedRuns{}, stranded...),
			}
			if len(out.Checks)+len(out.Stranded) == 0 && r.Workers.Live == 0 {
				selection.WarnOfNamespace(ctx, a.Program, client)
			}
			if a.JSON {
				err = a.PrintJSON(out)
			} else {
				err = a.printStuck(out)
			}
			if err == nil && len(out.Checks)+len(out.Stranded) > 0 {
				err = command.ExitUnwell
			}
			return err
		}),
	}
}

func (a *app) printStuck(r stuckReport) error {
	if len(r.Checks)+len(r.Stranded) == 0 {
		return a.Screen.Printf("Nothing is stuck.")
	}
	for _, c := range r.Checks {
		if err := a.printCheck(c); err != nil {
			return err
		}
	}
	if len(r.Stranded) == 0 {
		return nil
	}
	t := a.Screen.Table(screen.Column{Title: "NO LIVE WORKER HAS"}, screen.Column{Title: "VERSION", Right: true},
		screen.Column{Title: "QUEUE"}, screen.Column{Title: "RUNS", Right: true},
		screen.Column{Title: "OLDEST"}, screen.Column{Title: "DUE"})
	for _, s := range r.Stranded {
		version := "any"
		if s.Version > 0 {
			version = fmt.Sprint(s.Version)
		}
		t.Row(s.Workflow, version, s.Queue, words.OrMore(s.Count, s.More), a.Screen.Time(s.Oldest), a.Screen.Time(s.DueAt))
	}
	if len(r.Checks) > 0 {
		if err := a.Screen.Printf(""); err != nil {
			return err
		}
	}
	return t.Print()
}

// printFinding prints a text behind a mark and what it is about.
func (a *app) printFinding(tone screen.Tone, mark, about, text string) error {
	indent := len(mark) + len(about) + 2
	lines := screen.Fill(screen.Line(words.InTerms(text)), max(a.Screen.Width-indent, 0), 0)
	return a.Screen.Printf("%s %s %s", a.Screen.Paint(tone, mark), a.Screen.Paint(screen.Faint, about),
		strings.ReplaceAll(lines, "\n", "\n"+strings.Repeat(" ", indent)))
}
