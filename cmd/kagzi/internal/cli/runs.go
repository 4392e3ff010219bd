package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/explain"
)

func (a *app) runs() *cobra.Command {
	c := &cobra.Command{
		Use:     "runs",
		Aliases: []string{"run"},
		Short:   "List, explain, start and change runs",
		Long: `A run is one execution of a workflow.

The commands that change runs take one run, or flags that select several. They then show these runs, and ask before
they change them; --yes answers, and --dry-run only shows.`,
		Example: `  kagzi runs list --status failed --since 1h
  kagzi runs get order-42
  kagzi runs cancel order-42 --reason "the customer called"`,
	}
	c.AddCommand(a.runsList(), a.runsCount(), a.runsGet(), a.runsSteps(), a.runsMessages(), a.runsLog(), a.runsWait(),
		a.runsStart(), a.runsSignal(),
		a.runsRedeliver(), a.runsDropMessage())
	for _, v := range a.verbs() {
		c.AddCommand(a.change(v))
	}
	c.AddCommand(a.runsPause())
	return c
}

var runColumns = []screen.Column{
	{Title: "RUN"},
	{Title: "ID", Min: 12},
	{Title: "WORKFLOW", Min: 12},
	{Title: "STATUS"},
	{Title: "QUEUE", Min: 8, Drop: 4},
	{Title: "STARTED", Drop: 3},
	{Title: "ENDED", Drop: 2},
	{Title: "DETAIL", Min: 24, Drop: 1}, // the last, as it may be long
}

func (a *app) runRow(r kagzi.RunInfo) []any {
	return []any{
		r.ID, r.ExternalID, r.Workflow, runStatusCell(r), r.Queue, a.screen.Time(r.CreatedAt),
		a.screen.Time(r.EndedAt), cmp.Or(explain.Silent(r, a.words()), explain.Detail(r)),
	}
}

// runStatusCell returns the status of a run. One whose worker is dead or silent is RUNNING in the table only.
func runStatusCell(r kagzi.RunInfo) screen.Cell {
	if !r.SilentSince.IsZero() {
		return screen.Cell{Text: "worker silent", Tone: screen.Warning}
	}
	return statusCell(r.Status)
}

// statusCell returns the status of a run or of a step, with the tone that it has.
func statusCell(s kagzi.Status) screen.Cell {
	tone := map[kagzi.Status]screen.Tone{
		kagzi.StatusCompleted: screen.Good, kagzi.StatusFailed: screen.Bad, kagzi.StatusCancelled: screen.Warning,
		kagzi.StatusRunning: screen.Strong,
	}
	return screen.Cell{Text: string(s), Tone: tone[s]}
}

func (a *app) runsList() *cobra.Command {
	var f filter
	var all, payloads bool
	var after string
	c := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List runs, newest first",
		Long: `List shows the runs that all of the flags select, those started last first. DETAIL is what a run waits
for, or how it failed. kagzi runs get says more about one of them.`,
		Example: `  kagzi runs list
  kagzi runs list --status failed --since 1h
  kagzi runs list --kind unavailable --ended-since 1h
  kagzi runs list --waiting-on "signal approved"
  kagzi runs list --min-recoveries 3
  kagzi runs list --status active --workflow checkout --metadata tenant=acme
  kagzi runs list --all --json | jq -r '.[].id'`,
		Args: exactly(),
	}
	f.flags(c, 100, "at most `N` runs")
	c.Flags().StringVar(&f.id, "id", "", "only runs with this `ID`")
	c.Flags().BoolVar(&all, "all", false, "all runs, without the --limit")
	c.Flags().BoolVar(&payloads, "payloads", false, "with --json, the inputs and results, too")
	c.Flags().StringVar(&after, "after", "", "continue behind the run with this `RUN-ID`: the last one of the "+
		"page before")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		rf, err := f.filter(a.screen.Now())
		if err != nil {
			return err
		}
		if all {
			rf.Limit = 0
		}
		if payloads && !a.json {
			return usagef("--payloads needs --json: the table has no room for inputs and results; kagzi runs get " +
				"shows those of one run")
		}
		if _, err := uuid.Parse(after); after != "" && err != nil {
			return usagef("--after is %q: give the run ID of the last run of the page before", after)
		}
		rf.After, rf.Payloads = kagzi.RunID(after), payloads
		client, err := a.client(cmd.Context())
		if err != nil {
			return err
		}
		l := listing[kagzi.RunInfo]{columns: runColumns, row: a.runRow, none: "No run matches."}
		var last kagzi.RunID
		n, err := l.print(a, func(yield func(kagzi.RunInfo, error) bool) {
			for r, err := range listRuns(cmd.Context(), client, rf) {
				if last = r.ID; !yield(r, err) {
					return
				}
			}
		})
		if err == nil && n == 0 && after == "" {
			a.warnOfNames(cmd.Context(), client, rf)
		}
		if err == nil && rf.Limit > 0 && n == rf.Limit && !a.json {
			a.say("There may be more: --all lists all of them, --after %s the next ones.", last)
		}
		return err
	}
	return c
}

// listRuns returns up to f.Limit runs; zero means all.
func listRuns(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) iter.Seq2[kagzi.RunInfo, error] {
	return pages(f.Limit, func(n int, last *kagzi.RunInfo) ([]kagzi.RunInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.ID
		}
		return c.List(ctx, f)
	})
}

func (a *app) runsSteps() *cobra.Command {
	var run runArg
	c := &cobra.Command{
		Use:   "steps RUN",
		Short: "List the steps of a run, with their attempts",
		Long: `Steps shows the attempts of a run's steps, in the order in which they began. --json prints their inputs
and results, too. A step under way appears once it has run for a second.`,
		Example: `  kagzi runs steps order-42
  kagzi runs steps order-42 --json | jq '.[] | select(.status == "FAILED")'`,
		Args: run.args(0),
	}
	run.flags(c)
	c.RunE = a.withClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.take(args)
		of, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		steps, err := client.Steps(ctx, of.ID)
		if err != nil {
			return err
		}
		_, err = a.stepListing(of.Status).print(a, each(steps))
		return err
	})
	return c
}

// stepListing lists attempts of a run with that status.
func (a *app) stepListing(run kagzi.Status) listing[kagzi.StepAttempt] {
	return listing[kagzi.StepAttempt]{
		columns: []screen.Column{
			{Title: "STEP", Min: 16},
			{Title: "TYPE", Drop: 3},
			{Title: "ATTEMPT", Right: true, Drop: 4},
			{Title: "STATUS"},
			{Title: "TOOK", Right: true, Drop: 1},
			{Title: "BEGAN", Drop: 2},
			{Title: "DETAIL", Min: 16},
		},
		row: func(s kagzi.StepAttempt) []any {
			status, took := statusCell(s.Status), a.took(s)
			if explain.NotNeeded(run, s) {
				status, took = screen.Cell{Text: "not needed", Tone: screen.Faint}, "-"
			}
			return []any{s.Step, s.Type, s.Attempt, status, took, a.screen.Time(s.StartedAt), a.stepDetail(s)}
		},
		none: "The run has no steps yet.",
	}
}

// took returns how long an attempt has taken, or takes by now if it is under way.
func (a *app) took(s kagzi.StepAttempt) string {
	end := s.EndedAt
	if end.IsZero() {
		end = a.screen.Now()
	}
	if s.StartedAt.IsZero() || end.Before(s.StartedAt) || s.Status == kagzi.StatusPending {
		return "-"
	}
	return screen.Short(end.Sub(s.StartedAt))
}

func (a *app) stepDetail(s kagzi.StepAttempt) string {
	switch {
	case s.Error != "" && !s.WakeAt.IsZero() && s.Type != "SLEEP":
		return explain.Failure(s.Kind, s.Error) + "; next attempt " + a.screen.Time(s.WakeAt)
	case s.Error != "":
		return explain.Failure(s.Kind, s.Error)
	case s.Type == "SLEEP" && !s.WakeAt.IsZero():
		return "until " + a.screen.Time(s.WakeAt)
	case !s.HungSince.IsZero():
		return "has hung since " + a.screen.Time(s.HungSince)
	case s.Child != "":
		return "run " + string(s.Child)
	}
	return ""
}

func (a *app) runsLog() *cobra.Command {
	var run runArg
	c := &cobra.Command{
		Use:   "log RUN",
		Short: "List who changed a run, when and why",
		Long: `Log shows the changes that people and programs made to a run from outside of its code: who cancelled,
resumed or restarted it, and why.`,
		Example: `  kagzi runs log order-42
  kagzi runs log order-42 --json`,
		Args: run.args(0),
	}
	run.flags(c)
	c.RunE = a.withClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.take(args)
		entries, err := client.RunLog(ctx, ref)
		if err != nil {
			return err
		}
		_, err = a.logListing("Nobody has changed the run.").print(a, each(entries))
		return err
	})
	return c
}

// logListing is that of the logs of runs and of workers.
func (a *app) logListing(none string) listing[kagzi.LogEntry] {
	return listing[kagzi.LogEntry]{
		columns: []screen.Column{
			{Title: "TIME"},
			{Title: "EVENT"},
			{Title: "ACTOR", Min: 8},
			{Title: "OTHER RUN"},
			{Title: "STEP", Min: 8},
			{Title: "CHANGES", Min: 16},
			{Title: "REASON", Min: 16},
		},
		row: func(e kagzi.LogEntry) []any {
			return []any{a.screen.Time(e.At), e.Event, e.Actor, e.Other, e.Step, changesText(e.Changes), e.Reason}
		},
		none: none,
	}
}

// changesText says what an entry of a log changed, from what to what.
func changesText(changes []kagzi.LogChange) string {
	var parts []string
	for _, c := range changes {
		text := c.Field + " " + cmp.Or(c.From, "none")
		if c.To != "" {
			text += " → " + c.To
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// brief returns a payload for a cell: at a terminal, its beginning. Bytes that are no JSON are not shown.
func (a *app) brief(data []byte) string {
	const most = 200
	if len(data) > 0 && !json.Valid(data) {
		return fmt.Sprintf("sealed or no JSON, %d bytes", len(data))
	}
	if a.screen.Width > 0 && len(data) > most {
		return screen.Line(strings.ToValidUTF8(string(data[:most]), "")) + "…"
	}
	return screen.Line(cmp.Or(strings.ToValidUTF8(string(data), "?"), "-"))
}
