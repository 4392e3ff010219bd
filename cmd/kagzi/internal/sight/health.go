// Package sight has the commands that say whether all is well, and who changed what.
package sight

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/health"
)

// Health returns kagzi health.
func Health(p *command.Program) *cobra.Command {
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
			pool, err := p.DB.Dial(cmd.Context()) // it says itself that the database is away
			if err != nil {
				return p.DB.ConnectionError(err)
			}
			client, err := p.ClientOf(pool)
			if err != nil {
				return err
			}
			r, err := admin.New(client).Health(cmd.Context())
			if err != nil {
				return err
			}
			if r.Status == health.Healthy && r.Workers.Live == 0 {
				selection.WarnOfNamespace(cmd.Context(), p, client)
			}
			if p.JSON {
				err = p.PrintJSON(r)
			} else {
				err = printHealth(p, r)
			}
			if err == nil && r.Status != health.Healthy {
				err = command.ExitUnwell
			}
			return err
		},
	}
}

func printHealth(p *command.Program, r health.Report) error {
	status := healthCell(r.Status)
	if err := p.Screen.Printf("%s: %s\n", r.Namespace, p.Screen.Paint(status.Tone, status.Text)); err != nil {
		return err
	}
	for _, c := range r.Checks {
		if err := printCheck(p, c); err != nil {
			return err
		}
	}
	var tables []*screen.Table
	if len(r.Queues) > 0 {
		t := p.Screen.Table(screen.Column{Title: "DUE IN QUEUE"}, screen.Column{Title: "WORKFLOW", Min: 12},
			screen.Column{Title: "DUE", Right: true}, screen.Column{Title: "SINCE"},
			screen.Column{Title: "WORKERS", Right: true}, screen.Column{Title: "VERSIONS WITHOUT WORKER"})
		for _, q := range r.Queues {
			t.Row(q.Queue, q.Workflow, words.OrMore(q.Due, q.More), p.Screen.Time(q.Since), q.Workers,
				screen.Cell{Text: strings.Trim(fmt.Sprint(q.Stranded), "[]"), Tone: screen.Bad})
		}
		tables = append(tables, t)
	}
	if len(r.Failed) > 0 {
		t := p.Screen.Table(screen.Column{Title: "FAILED IN THE LAST HOUR"}, screen.Column{Title: "KIND", Min: 12},
			screen.Column{Title: "RUNS", Right: true}, screen.Column{Title: "LAST"})
		for _, f := range r.Failed {
			t.Row(f.Workflow, f.Kind, words.OrMore(f.Runs, f.More), p.Screen.Time(f.Last))
		}
		tables = append(tables, t)
	}
	for _, t := range tables {
		if err := p.Screen.Printf("\n%s", strings.TrimSuffix(t.String(), "\n")); err != nil {
			return err
		}
	}
	return nil
}
