package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
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
	var run runArg
	c := &cobra.Command{
		Use:     "get RUN",
		Aliases: []string{"show", "describe"},
		Short:   "Explain one run: why it waits, its steps, who changed it",
		Long: `Get shows a run, and says in words why it waits: for which message and until when, for which limit or
pause and who set that, or that no worker has its code. Then it lists its steps and the changes that people made.

With --json it prints {"run": …, "why": [sentences], "steps": […], "log": […]}.`,
		Example: `  kagzi runs get order-42
  kagzi runs get order-42 --json | jq .run.status`,
		Args: run.args(0),
	}
	run.flags(c)
	c.RunE = a.withClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.take(args)
		r, err := a.report(ctx, client, ref)
		if isNotFound(err) {
			return a.deletedOr(ctx, client, ref, err)
		}
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(r)
		}
		return a.printReport(r)
	})
	return c
}

// deletedOr returns err, the error of a run that was not found, with who deleted the run if somebody has.
func (a *app) deletedOr(ctx context.Context, c *kagzi.Client, ref kagzi.Ref, err error) error {
	if text, look := explain.Deleted(ctx, c, ref, a.words()); look == nil && text != "" {
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
		r.Why, err = explain.Run(ctx, c, r.Run, r.Steps, r.Log, a.words())
	}
	return r, err
}

func (a *app) printReport(r runReport) error {
	if err := a.printFields(a.fields(r.Run)); err != nil {
		return err
	}
	err := a.screen.Printf("")
	for _, s := range r.Why {
		if err == nil {
			err = a.screen.Printf("%s", a.screen.Fill(screen.Line(s), 0))
		}
	}
	if err == nil && len(r.Steps) > 0 {
		err = a.screen.Printf("")
	}
	if err == nil && len(r.Steps) > 0 {
		_, err = a.stepListing(r.Run.Status).print(a, each(r.Steps))
	}
	if err == nil && len(r.Log) > 0 {
		err = a.screen.Printf("")
	}
	if err == nil && len(r.Log) > 0 {
		_, err = a.logListing("").print(a, each(r.Log))
	}
	return err
}

// fields returns names and values of a run for people. Empty values are left out.
func (a *app) fields(r kagzi.RunInfo) [][2]string {
	tone := runStatusCell(r)
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
		progress += ", " + a.screen.Time(p.At)
	}
	failed := ""
	if r.Error != "" {
		failed = screen.Line(explain.Failure(r.Kind, r.Error))
	}
	origin := string(r.Origin)
	schedule := r.Schedule
	if !r.FireTime.IsZero() {
		schedule += ", tick " + a.screen.Moment(r.FireTime)
	}
	parent := string(r.Parent)
	if r.ParentStep != "" {
		parent += ", which calls it " + r.ParentStep
	}
	return [][2]string{
		{"Run", string(r.ID)},
		{"ID", string(r.ExternalID)},
		{"Workflow", r.Workflow + version},
		{"Status", a.screen.Paint(tone.Tone, tone.Text)},
		{"Progress", progress},
		{"Queue", fmt.Sprintf("%s, priority %d", r.Queue, r.Priority)},
		{"Key", string(r.Key)},
		{"Group", string(r.Group)},
		{"Metadata", pairsText(r.Metadata)},
		{"Headers", pairsText(r.Headers)},
		{"Parent", parent},
		{"Made from", origin},
		{"Schedule", schedule},
		{"Started", a.screen.Moment(r.CreatedAt)},
		{"First executed", at(r.StartedAt, a.screen.Moment(r.StartedAt))},
		{"Deadline", at(r.DeadlineAt, a.screen.Moment(r.DeadlineAt))},
		{"Ended", at(r.EndedAt, a.screen.Moment(r.EndedAt))},
		{"Worker", r.Worker},
		{"Attempts", failedAttempts(r.Attempts)},
		{"Recoveries", recoveries(r.Recoveries)},
		{"Input", a.payloadText(r.Input)},
		{"Output", a.payloadText(r.Output)},
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

func (a *app) payloadText(data json.RawMessage) string {
	if len(data) == 0 {
		return ""
	}
	return a.brief(data)
}

func pairsText[M ~map[string]string](m M) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, screen.Line(k+"="+m[k]))
	}
	return strings.Join(pairs, " ")
}
