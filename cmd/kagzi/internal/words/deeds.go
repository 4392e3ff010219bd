// Package words has how kagzi says things: errors and advice of the library become sentences about commands.
package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
)

// Of returns how the command line names things in the sentences of package explain.
func Of(s *screen.Screen) explain.Words {
	return explain.Words{
		Now:    s.Now,
		Text:   screen.Line,
		Moment: s.Moment,
		Ago:    s.Time,
		Elapsed: func(since time.Time) string {
			return Took(s, kagzi.StepAttempt{StartedAt: since})
		},
		Took: screen.Short,
		Deed: deed,
	}
}

// deed returns the command that does something.
func deed(d explain.Deed) string {
	switch d.Verb {
	case explain.Resume:
		return "kagzi runs resume " + NameOf(d.Run)
	case explain.Restart:
		return "kagzi runs restart " + NameOf(d.Run)
	case explain.Signal:
		return fmt.Sprintf("kagzi runs signal %s %s --payload JSON", NameOf(d.Run), signalArgs(d.Name))
	case explain.RedeliverMessage:
		return fmt.Sprintf("kagzi runs redeliver-message %s %s", NameOf(d.Run), Shell(d.Name))
	case explain.DropMessage:
		return fmt.Sprintf("kagzi runs drop-message %s %s", NameOf(d.Run), Shell(cmp.Or(d.Name, "MESSAGE-ID")))
	case explain.Resolve:
		return fmt.Sprintf("kagzi runs resolve %s %s --outcome happened|did-not-happen|give-up", NameOf(d.Run),
			Shell(d.Name))
	case explain.Unread:
		return fmt.Sprintf("kagzi runs messages %s --unread", NameOf(d.Run))
	case explain.UnpauseRun:
		return "kagzi runs unpause " + NameOf(d.Run)
	case explain.Unpause:
		return "kagzi unpause " + targetFlags(d.Target)
	case explain.Drain:
		return "kagzi workers drain " + d.Name
	case explain.Limits:
		return "kagzi queues list and kagzi keys list"
	case explain.Workers:
		return "kagzi workers list --queue " + Shell(d.Name)
	case explain.Previous:
		return fmt.Sprintf("kagzi runs list --schedule %s --status active", Shell(d.Name))
	case explain.Children:
		return "kagzi runs list --parent " + NameOf(d.Run)
	case explain.Child:
		return "kagzi runs get " + string(d.Other)
	case explain.Log:
		return "kagzi runs log " + Shell(fmt.Sprint(d.Ref))
	}
	return ""
}

// NameOf returns how commands call the run: by the ID that people know while that means this run, else by the run ID.
func NameOf(run kagzi.RunInfo) string {
	if id := string(run.ExternalID); id != "" && !run.Status.Ended() && deeds.RefOf(id) == kagzi.ID(id) {
		return Shell(id)
	}
	return string(run.ID)
}

// signalArgs returns the arguments that name a signal for kagzi runs signal.
func signalArgs(name string) string {
	name, key, keyed := strings.Cut(name, "/")
	if !keyed {
		return Shell(name)
	}
	return Shell(name) + " --for " + Shell(key)
}

// targetFlags returns the flags of a command that name a target.
func targetFlags(t admin.Target) string {
	if t.All {
		return "--all"
	}
	var parts []string
	for _, f := range [][2]string{{"queue", t.Queue}, {"workflow", t.Workflow}, {"key", t.Key}, {"group", t.Group}} {
		if f[1] != "" {
			parts = append(parts, "--"+f[0]+" "+Shell(f[1]))
		}
	}
	return strings.Join(parts, " ")
}

// Shell quotes s for a shell if it has to be.
func Shell(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
