package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// A runReport is the JSON of runs get.
type runReport struct {
	Run   kagzi.RunInfo       `json:"run"`
	Why   []string            `json:"why"` // sentences
	Steps []kagzi.StepAttempt `json:"steps"`
	Log   []admin.LogEntry    `json:"log"`
}

func getCommand(p *command.Program) *cobra.Command {
	var run selection.RunArg
	c := &cobra.Command{
		Use:     "get RUN",
		Aliases: []string{"show", "describe"},
		Short:   "Explain one run: why it waits, its steps, who changed it",
		Long: `Get shows a run, and says in words why it waits: for which message and until when, for which limit or
pause and who set that, or that no worker has its code. Then it lists its steps and the changes that people made.

With --json it prints {"run": …, "why": [sentences], "steps": […], "log": […]}.`,
		Example: `  kagzi runs get order-42
  kagzi runs get order-42 --json | jq .run.status`,
		Args: run.Args(0),
	}
	run.Flags(c)
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		r, err := report(ctx, p.Screen, client, ref)
		if errors.Is(err, kagzi.ErrNotFound) {
			return deletedOr(ctx, p.Screen, client, ref, err)
		}
		if err != nil {
			return err
		}
		if p.JSON {
			return p.PrintJSON(r)
		}
		return printReport(p, r)
	})
	return c
}

// deletedOr returns err, the error of a run that was not found, with who deleted the run if it was deleted.
func deletedOr(ctx context.Context, on *screen.Screen, c *kagzi.Client, ref kagzi.Ref, err error) error {
	if text, look := explain.Deleted(ctx, c, ref, words.Of(on)); look == nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// report reads all that runs get shows.
func report(ctx context.Context, on *screen.Screen, c *kagzi.Client, ref kagzi.Ref) (r runReport, err error) {
	if r.Run, err = c.Get(ctx, ref); err == nil {
		r.Steps, err = c.Steps(ctx, r.Run.ID)
	}
	if err == nil {
		r.Log, err = admin.New(c).Runs.Log(ctx, r.Run.ID)
	}
	if err == nil {
		r.Why, err = explain.Run(ctx, c, r.Run, r.Steps, r.Log, words.Of(on))
	}
	return r, err
}

func printReport(p *command.Program, r runReport) error {
	if err := p.PrintFields(fields(p.Screen, r.Run)); err != nil {
		return err
	}
	err := p.Screen.Printf("")
	for _, s := range r.Why {
		if err == nil {
			err = p.Screen.Printf("%s", p.Screen.Fill(screen.Line(s), 0))
		}
	}
	if err == nil && len(r.Steps) > 0 {
		err = p.Screen.Printf("")
	}
	if err == nil && len(r.Steps) > 0 {
		_, err = tables.Steps(p.Screen, r.Run.Status).Print(p, command.Each(r.Steps))
	}
	if err == nil && len(r.Log) > 0 {
		err = p.Screen.Printf("")
	}
	if err == nil && len(r.Log) > 0 {
		_, err = tables.Log(p.Screen, "").Print(p, command.Each(r.Log))
	}
	return err
}

// fields returns names and values of a run for people. Empty values are left out.
func fields(on *screen.Screen, r kagzi.RunInfo) [][2]string {
	tone := tables.RunStatus(r)
	at := func(t interface{ IsZero() bool }, s string) string {
		if t.IsZero() {
			return ""
		}
		return s
	}
	version := ""
	if r.Version > 0 {
		version = fmt.Sprintf(", version %d", r.Version)
	}
	epoch := ""
	if r.Epoch > 0 {
		epoch = fmt.Sprintf("%d: the run has continued with another input, its steps are those since then", r.Epoch)
	}
	progress := ""
	if got := r.Progress; got != nil {
		progress = screen.Line(got.Text)
		if got.Fraction != nil {
			progress = fmt.Sprintf("%.0f %% %s", 100**got.Fraction, progress)
		}
		progress += ", " + on.Time(got.At)
	}
	failed := ""
	if r.Error != "" {
		failed = screen.Line(explain.Failure(r.Kind, r.Error))
	}
	origin := string(r.Origin)
	schedule := r.Schedule
	if !r.FireTime.IsZero() {
		schedule += ", tick " + on.Moment(r.FireTime)
	}
	parent := string(r.Parent)
	if r.ParentStep != "" {
		parent += ", which calls it " + r.ParentStep
	}
	return [][2]string{
		{"Run", string(r.ID)},
		{"ID", string(r.ExternalID)},
		{"Workflow", r.Workflow + version},
		{"Status", on.Paint(tone.Tone, tone.Text)},
		{"Epoch", epoch},
		{"Progress", progress},
		{"Queue", fmt.Sprintf("%s, priority %d", r.Queue, r.Priority)},
		{"Key", string(r.Key)},
		{"Group", string(r.Group)},
		{"Metadata", tables.Pairs(r.Metadata)},
		{"Headers", tables.Pairs(r.Headers)},
		{"Parent", parent},
		{"Made from", origin},
		{"Schedule", schedule},
		{"Started", on.Moment(r.CreatedAt)},
		{"First executed", at(r.StartedAt, on.Moment(r.StartedAt))},
		{"Deadline", at(r.DeadlineAt, on.Moment(r.DeadlineAt))},
		{"Ended", at(r.EndedAt, on.Moment(r.EndedAt))},
		{"Worker", r.Worker},
		{"Attempts", failedAttempts(r.Attempts)},
		{"Recoveries", recoveries(r.Recoveries)},
		{"Input", tables.Payload(on, r.Input)},
		{returned(r), tables.Payload(on, r.Output)},
		{"Error", failed},
	}
}

// returned is the name of what r.Output has.
func returned(r kagzi.RunInfo) string {
	if r.Status == kagzi.StatusFailed {
		return "Details"
	}
	return "Output"
}

func failedAttempts(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d failed", n)
}

func recoveries(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 worker died since its last progress"
	}
	return fmt.Sprintf("%d workers died since its last progress", n)
}
