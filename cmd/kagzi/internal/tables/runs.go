// Package tables has the tables of runs, steps and logs, which several commands print.
package tables

import (
	"cmp"
	"context"
	"iter"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// RunColumns are the columns of a table of runs.
var RunColumns = []screen.Column{
	{Title: "RUN"},
	{Title: "ID", Min: 12},
	{Title: "WORKFLOW", Min: 12},
	{Title: "STATUS"},
	{Title: "QUEUE", Min: 8, Drop: 4},
	{Title: "STARTED", Drop: 3},
	{Title: "ENDED", Drop: 2},
	{Title: "DETAIL", Min: 24, Drop: 1}, // the last, as it may be long
}

// RunRow returns a row of a table of runs.
func RunRow(s *screen.Screen, r kagzi.RunInfo) []any {
	return []any{
		r.ID, r.ExternalID, r.Workflow, RunStatus(r), r.Queue, s.Time(r.CreatedAt),
		s.Time(r.EndedAt), cmp.Or(explain.Silent(r, words.Of(s)), explain.Detail(r)),
	}
}

// RunStatus returns the status of a run. One whose worker is dead or silent is RUNNING in the table only.
func RunStatus(r kagzi.RunInfo) screen.Cell {
	if !r.SilentSince.IsZero() {
		return screen.Cell{Text: "worker silent", Tone: screen.Warning}
	}
	return StatusCell(r.Status)
}

// StatusCell returns the status of a run or of a step, with the tone that it has.
func StatusCell(s kagzi.Status) screen.Cell {
	tone := map[kagzi.Status]screen.Tone{
		kagzi.StatusCompleted: screen.Good, kagzi.StatusFailed: screen.Bad, kagzi.StatusCancelled: screen.Warning,
		kagzi.StatusRunning: screen.Strong,
	}
	return screen.Cell{Text: string(s), Tone: tone[s]}
}

// ListRuns returns up to f.Limit runs; zero means all.
func ListRuns(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) iter.Seq2[kagzi.RunInfo, error] {
	return command.Pages(f.Limit, func(n int, last *kagzi.RunInfo) ([]kagzi.RunInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.ID
		}
		return c.List(ctx, f)
	})
}

// Runs lists runs.
func Runs(s *screen.Screen, none string) command.Listing[kagzi.RunInfo] {
	return command.Listing[kagzi.RunInfo]{
		Columns: RunColumns,
		Row:     func(r kagzi.RunInfo) []any { return RunRow(s, r) },
		None:    none,
	}
}
