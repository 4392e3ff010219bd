package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// A runReport is what runs get prints as JSON.
type runReport struct {
	Run   kagzi.RunInfo       `json:"run"`
	Why   []string            `json:"why"` // sentences
	Steps []kagzi.StepAttempt `json:"steps"`
	Log   []kagzi.LogEntry    `json:"log"`
}

func (a *app) runsGet() *cobra.Command {
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
	c.RunE = a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		r, err := a.report(ctx, client, ref)
		if errors.Is(err, kagzi.ErrNotFound) {
			return a.deletedOr(ctx, client, ref, err)
		}
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(r)
		}
		return a.printReport(r)
	})
	return c
}

// deletedOr returns err, the error of a run that was not found, with who deleted the run if somebody has.
func (a *app) deletedOr(ctx context.Context, c *kagzi.Client, ref kagzi.Ref, err error) error {
	if text, look := explain.Deleted(ctx, c, ref, words.Of(a.Screen)); look == nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// report reads all that runs get shows.
func (a *app) report(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (r runReport, err error) {
	if r.Run, err = c.Get(ctx, ref); err == nil {
		r.Steps, err = c.Steps(ctx, r.Run.ID)
	}
	if err == nil {
		r.Log, err = c.RunLog(ctx, r.Run.ID)
	}
	if err == nil {
		r.Why, err = explain.Run(ctx, c, r.Run, r.Steps, r.Log, words.Of(a.Screen))
	}
	return r, err
}

func (a *app) printReport(r runReport) error {
	if err := a.PrintFields(a.fields(r.Run)); err != nil {
		return err
	}
	err := a.Screen.Printf("")
	for _, s := range r.Why {
		if err == nil {
			err = a.Screen.Printf("%s", a.Screen.Fill(screen.Line(s), 0))
		}
	}
	if err == nil && len(r.Steps) > 0 {
		err = a.Screen.Printf("")
	}
	if err == nil && len(r.Steps) > 0 {
		_, err = tables.Steps(a.Screen, r.Run.Status).Print(a.Program, command.Each(r.Steps))
	}
	if err == nil && len(r.Log) > 0 {
		err = a.Screen.Printf("")
	}
	if err == nil && len(r.Log) > 0 {
		_, err = tables.Log(a.Screen, "").Print(a.Program, command.Each(r.Log))
	}
	return err
}

// fields returns names and values of a run for people. Empty values are left out.
func (a *app) fields(r kagzi.RunInfo) [][2]string {
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
	progress := ""
	if p := r.Progress; p != nil {
		progress = screen.Line(p.Text)
		if p.Fraction != nil {
			progress = fmt.Sprintf("%.0f %% %s", 100**p.Fraction, progress)
		}
		progress += ", " + a.Screen.Time(p.At)
	}
	failed := ""
	if r.Error != "" {
		failed = screen.Line(explain.Failure(r.Kind, r.Error))
	}
	origin := string(r.Origin)
	schedule := r.Schedule
	if !r.FireTime.IsZero() {
		schedule += ", tick " + a.Screen.Moment(r.FireTime)
	}
	parent := string(r.Parent)
	if r.ParentStep != "" {
		parent += ", which calls it " + r.ParentStep
	}
	return [][2]string{
		{"Run", string(r.ID)},
		{"ID", string(r.ExternalID)},
		{"Workflow", r.Workflow + version},
		{"Status", a.Screen.Paint(tone.Tone, tone.Text)},
		{"Progress", progress},
		{"Queue", fmt.Sprintf("%s, priority %d", r.Queue, r.Priority)},
		{"Key", string(r.Key)},
		{"Group", string(r.Group)},
		{"Metadata", tables.Pairs(r.Metadata)},
		{"Headers", tables.Pairs(r.Headers)},
		{"Parent", parent},
		{"Made from", origin},
		{"Schedule", schedule},
		{"Started", a.Screen.Moment(r.CreatedAt)},
		{"First executed", at(r.StartedAt, a.Screen.Moment(r.StartedAt))},
		{"Deadline", at(r.DeadlineAt, a.Screen.Moment(r.DeadlineAt))},
		{"Ended", at(r.EndedAt, a.Screen.Moment(r.EndedAt))},
		{"Worker", r.Worker},
		{"Attempts", failedAttempts(r.Attempts)},
		{"Recoveries", recoveries(r.Recoveries)},
		{"Input", tables.Payload(a.Screen, r.Input)},
		{"Output", tables.Payload(a.Screen, r.Output)},
		{"Error", failed},
	}
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
