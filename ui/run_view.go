package ui

import (
	"html/template"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A runView is the view model of that page.
type runView struct {
	Run       kagzi.RunInfo // without its payloads
	Why       []template.HTML
	Whole     wholeError // of a run that has failed
	Timeline  timeline
	Steps     stepTable
	Input     payload
	Output    payload
	Messages  []message
	More      bool             // messages than these
	Log       []admin.LogEntry // changes by people
	Failed    []admin.LogEntry // failed attempts
	Earlier   int              // changes that Log lacks
	Family    family
	workers   *workersLane
	unsettled bool // a step, such as a child, can still end
}

// others returns the runs that the page of the run refers to, but for its family. Of those that its steps started the
// last come first.
func (v *runView) others(attempts []kagzi.StepAttempt) []kagzi.RunID {
	ids := append([]kagzi.RunID{v.Run.Parent, v.Run.Origin}, runsIn(v.Run.Error)...)
	for _, h := range v.Run.Hung {
		ids = append(ids, h.Awaits)
	}
	for _, e := range slices.Concat(v.Log, v.Failed) {
		ids = append(append(ids, e.Other), runsIn(e.Reason)...)
	}
	for _, m := range v.Messages {
		ids = append(ids, m.From)
	}
	for _, a := range slices.Backward(attempts) {
		ids = append(ids, a.Child)
	}
	return ids
}

// Settled reports whether the run has ended and nothing of it is under way, not even code that hangs. An operator may
// resume it: then the page is loaded again.
func (v *runView) Settled() bool {
	return v.Run.Status.Ended() && !v.unsettled && len(v.Run.Hung) == 0
}

// LastError reports whether the last failure of a run that is active is shown beside its output. That of one that has
// ended stands at the top.
func (v *runView) LastError() bool {
	return strings.TrimSpace(v.Run.Error) != "" && !v.Run.Status.Ended()
}

// Path returns the run's path, with what follows.
func (v *runView) Path() string { return pathOf(v.Run) }

// Took returns how long the run took, or nothing while it is active.
func (v *runView) Took() string {
	if v.Run.EndedAt.IsZero() {
		return ""
	}
	return duration(v.Run.EndedAt.Sub(v.Run.CreatedAt))
}

// Name returns what people call the run.
func (v *runView) Name() string {
	if v.Run.ExternalID != "" {
		return string(v.Run.ExternalID)
	}
	return short(v.Run.ID)
}
