package tables

import (
	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// Steps lists attempts of a run with that status.
func Steps(on *screen.Screen, run kagzi.Status) command.Listing[kagzi.StepAttempt] {
	return command.Listing[kagzi.StepAttempt]{
		Columns: []screen.Column{
			{Title: "STEP", Min: 16},
			{Title: "TYPE", Drop: 3},
			{Title: "ATTEMPT", Right: true, Drop: 4},
			{Title: "STATUS"},
			{Title: "TOOK", Right: true, Drop: 1},
			{Title: "BEGAN", Drop: 2},
			{Title: "DETAIL", Min: 16},
		},
		Row: func(s kagzi.StepAttempt) []any {
			status, took := StatusCell(s.Status), words.Took(on, s)
			if explain.NotNeeded(run, s) {
				status, took = screen.Cell{Text: "not needed", Tone: screen.Faint}, "-"
			}
			return []any{s.Step, s.Type, s.Attempt, status, took, on.Time(s.StartedAt), stepDetail(on, s)}
		},
		None: "The run has no steps yet.",
	}
}

func stepDetail(on *screen.Screen, s kagzi.StepAttempt) string {
	switch {
	case s.Error != "" && !s.WakeAt.IsZero() && s.Type != "SLEEP":
		return explain.Failure(s.Kind, s.Error) + "; next attempt " + on.Time(s.WakeAt)
	case s.Error != "":
		return explain.Failure(s.Kind, s.Error)
	case s.Type == "SLEEP" && !s.WakeAt.IsZero():
		return "until " + on.Time(s.WakeAt)
	case !s.HungSince.IsZero():
		return "has hung since " + on.Time(s.HungSince)
	case s.Child != "":
		return "run " + string(s.Child)
	}
	return ""
}
