package sight

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/health"
)

// A stuckReport is what stuck prints as JSON.
type stuckReport struct {
	Checks   []health.Check       `json:"checks"`   // those that are not healthy
	Stranded []admin.StrandedRuns `json:"stranded"` // runs whose version no live worker has
}

// Stuck returns kagzi stuck.
func Stuck(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "stuck",
		Short: "Say whether anything is stuck, and what to do about it",
		Long: `Stuck shows what does not go on: the checks of kagzi health that found something, and the runs for whose
version no live worker has code. The checks also find failures of the last hour, and runs that were quarantined in
the last day.

It exits with 0 if nothing is found, and with 4 otherwise.`,
		Example: `  kagzi stuck`,
		Args:    command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			r, err := admin.New(client).Health(ctx)
			if err != nil {
				return err
			}
			stranded, err := admin.New(client).Stranded(ctx)
			if err != nil {
				return err
			}
			out := stuckReport{
				Checks:   slices.DeleteFunc(r.Checks, func(c health.Check) bool { return c.Status == health.Healthy }),
				Stranded: append([]admin.StrandedRuns{}, stranded...),
			}
			if len(out.Checks)+len(out.Stranded) == 0 && r.Workers.Live == 0 {
				selection.WarnOfNamespace(ctx, p, client)
			}
			if p.JSON {
				err = p.PrintJSON(out)
			} else {
				err = printStuck(p, out)
			}
			if err == nil && len(out.Checks)+len(out.Stranded) > 0 {
				err = command.ExitUnwell
			}
			return err
		}),
	}
}

func printStuck(p *command.Program, r stuckReport) error {
	if len(r.Checks)+len(r.Stranded) == 0 {
		return p.Screen.Printf("Nothing is stuck.")
	}
	for _, c := range r.Checks {
		if err := printCheck(p, c); err != nil {
			return err
		}
	}
	if len(r.Stranded) == 0 {
		return nil
	}
	t := p.Screen.Table(screen.Column{Title: "NO LIVE WORKER HAS"}, screen.Column{Title: "VERSION", Right: true},
		screen.Column{Title: "QUEUE"}, screen.Column{Title: "RUNS", Right: true},
		screen.Column{Title: "OLDEST"}, screen.Column{Title: "DUE"})
	for _, s := range r.Stranded {
		version := "any"
		if s.Version > 0 {
			version = fmt.Sprint(s.Version)
		}
		t.Row(s.Workflow, version, s.Queue, words.OrMore(s.Count, s.More), p.Screen.Time(s.Oldest),
			p.Screen.Time(s.DueAt))
	}
	if len(r.Checks) > 0 {
		if err := p.Screen.Printf(""); err != nil {
			return err
		}
	}
	return t.Print()
}
