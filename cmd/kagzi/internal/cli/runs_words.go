package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/explain"
)

// words are how the command line names things in the sentences of package explain.
func (a *app) words() explain.Words {
	return explain.Words{
		Now:    a.screen.Now,
		Text:   screen.Line,
		Moment: a.screen.Moment,
		Ago:    a.screen.Time,
		Elapsed: func(since time.Time) string {
			return a.took(kagzi.StepAttempt{StartedAt: since})
		},
		Took: screen.Short,
		Deed: deed,
	}
}

// deed returns the command that does something.
func deed(d explain.Deed) string {
	switch d.Verb {
	case explain.Resume:
		return "kagzi runs resume " + nameOf(d.Run)
	case explain.Signal:
		return fmt.Sprintf("kagzi runs signal %s %s --payload JSON", nameOf(d.Run), signalArgs(d.Name))
	case explain.Redeliver:
		return fmt.Sprintf("kagzi runs redeliver %s %s", nameOf(d.Run), shellWord(d.Name))
	case explain.DropMessage:
		return fmt.Sprintf("kagzi runs drop-message %s %s", nameOf(d.Run), shellWord(d.Name))
	case explain.UnpauseRun:
		return "kagzi runs unpause " + nameOf(d.Run)
	case explain.Unpause:
		return "kagzi unpause " + targetFlags(d.Target)
	case explain.Drain:
		return "kagzi workers drain " + d.Name
	case explain.SetLimit:
		return "kagzi limits set " + shellWord(d.Name)
	case explain.Limits:
		return "kagzi queues list and kagzi keys list"
	case explain.Workers:
		return "kagzi workers list --queue " + shellWord(d.Name)
	case explain.Previous:
		return fmt.Sprintf("kagzi runs list --schedule %s --status active", shellWord(d.Name))
	case explain.Children:
		return "kagzi runs list --parent " + nameOf(d.Run)
	case explain.Child:
		return "kagzi runs get " + string(d.Other)
	case explain.Log:
		return "kagzi runs log " + shellWord(fmt.Sprint(d.Ref))
	}
	return ""
}

// nameOf returns how commands call the run: by the ID that people know while that means this run, else by the run ID.
func nameOf(run kagzi.RunInfo) string {
	if id := string(run.ExternalID); id != "" && !run.Status.Ended() && refOf(id) == kagzi.ID(id) {
		return shellWord(id)
	}
	return string(run.ID)
}

// signalArgs returns the arguments that name a signal for kagzi runs signal.
func signalArgs(name string) string {
	name, key, keyed := strings.Cut(name, "/")
	if !keyed {
		return shellWord(name)
	}
	return shellWord(name) + " --for " + shellWord(key)
}
