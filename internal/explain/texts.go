package explain

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/waits"
)

// Detail says in a few words what the status of a run does not: what it waits for, or how it failed.
func Detail(run kagzi.RunInfo) string {
	switch {
	case run.Status == kagzi.StatusFailed || run.Status == kagzi.StatusCancelled:
		return Failure(run.Kind, run.Error)
	case run.Status.Ended():
		return ""
	case !run.SilentSince.IsZero():
		return "its worker is silent"
	case !run.PausedAt.IsZero() && run.WaitingOn != nil && !run.WaitingOn.Has(waits.Pause):
		return "paused; " + run.WaitingOn.String()
	case !run.PausedAt.IsZero():
		return "paused"
	case run.WaitingOn != nil:
		return run.WaitingOn.String()
	case run.Progress != nil:
		return run.Progress.Text
	}
	return ""
}

// Silent says, for a list, since when the worker of a run is silent, and when another one takes the run over. It is
// empty if the worker is live.
func Silent(run kagzi.RunInfo, words Words) string {
	w := words.complete()
	switch {
	case run.SilentSince.IsZero():
		return ""
	case run.AvailableAt.After(w.Now()):
		return fmt.Sprintf("its worker last reported %s; another one takes it over %s at the latest",
			w.Ago(run.SilentSince), w.Ago(run.AvailableAt))
	}
	return fmt.Sprintf("its worker last reported %s; the next one with a free slot takes it over",
		w.Ago(run.SilentSince))
}

// Failure returns on one line how something failed.
func Failure(k kind.Kind, message string) string {
	return string(k) + after(": ", OneLine(message))
}

// OneLine returns the text of an error on one line, without the name of the library.
func OneLine(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "kagzi: "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// By ends a clause with who made a change, and why, as far as that is known: ` by ada ("the provider is down")`.
func By(actor, reason string) string {
	text := after(" by ", actor)
	if reason != "" {
		text += fmt.Sprintf(" (%q)", reason)
	}
	return text
}

// Target names what a pause stops.
func Target(t admin.Target) string {
	switch {
	case t.All:
		return "all runs"
	case t.Group != "":
		return "group " + t.Group
	case t.Key != "":
		return fmt.Sprintf("key %s of queue %s", t.Key, t.Queue)
	case t.Queue != "" && t.Workflow != "":
		return fmt.Sprintf("workflow %s in queue %s", t.Workflow, t.Queue)
	case t.Queue != "":
		return "queue " + t.Queue
	}
	return "workflow " + t.Workflow
}

// Rate writes a rate: "10/s burst 5". took writes how long the time is if it is not that of one unit.
func Rate(r admin.Rate, took func(time.Duration) string) string {
	per := cmp.Or(r.Per, time.Second)
	text := fmt.Sprintf("%d/%s", r.Starts, took(per))
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Minute, "m"}, {time.Hour, "h"}, {24 * time.Hour, "d"}} {
		// The time between two starts is stored, rounded up to a microsecond.
		n := float64(r.Starts) * float64(u.unit) / float64(per)
		if whole := math.Round(n); whole >= 1 && math.Abs(n-whole) < min(whole/1000, 0.05) {
			text = strconv.FormatFloat(whole, 'f', -1, 64) + "/" + u.name
			break
		}
	}
	if r.Burst > 1 {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}
