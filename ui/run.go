package ui

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// runPages is the page of one run.
func (d *dashboard) runPages() []page {
	return []page{{
		path: "/runs/{id}", action: Action{Verb: View, Object: OnRun}, template: "run",
		live: []string{"head", "why", "timeline", "steps", "data", "messages", "family", "log", "facts"}, look: d.run,
	}}
}

// A runView is the view model of that page.
type runView struct {
	Run       kagzi.RunInfo // without its payloads
	Why       []template.HTML
	Timeline  timeline
	Steps     stepTable
	Input     payload
	Output    payload
	Messages  []message
	More      bool // messages than these
	Log       []kagzi.LogEntry
	Earlier   int // changes that Log lacks
	Family    family
	workers   *workersLane
	unsettled bool // a step, such as a child, can still end
}

// settled reports whether the run has ended and nothing of it is under way, not even code that hangs. Somebody may
// resume it: then the page is loaded again.
func (v *runView) settled() bool {
	return v.Run.Status.Ended() && !v.unsettled && len(v.Run.Hung) == 0
}

// WholeError reports whether the error is shown below the run's output, too: the sentence at the top has only one that
// is short and on one line.
func (v *runView) WholeError() bool {
	text := strings.TrimSpace(v.Run.Error)
	return text != "" && (!v.Run.Status.Ended() || strings.Contains(text, "\n") || len([]rune(text)) > 300)
}

// Path returns the run's path, with what follows.
func (v *runView) Path() string { return "/runs/" + string(v.Run.ID) }

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

// refOf returns the run that a path names: by its run ID, or by its own.
func refOf(text string) kagzi.Ref {
	if isRunID(text) {
		return kagzi.RunID(text)
	}
	return kagzi.ID(text)
}

func (d *dashboard) run(ctx context.Context, q query) (any, error) {
	ref := refOf(q.path("id"))
	run, err := d.client.Get(ctx, ref)
	if errors.Is(err, kagzi.ErrNotFound) {
		return nil, d.gone(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	v := &runView{Run: run}
	v.Run.Input, v.Run.Output = nil, nil
	v.Input, v.Output = d.payload(run.Input, v.Path()+"/raw?of=input"), d.payload(run.Output, v.Path()+"/raw?of=output")
	h, err := d.history(ctx, v.Run)
	if err != nil {
		return nil, err
	}
	if v.Log, err = d.client.RunLog(ctx, run.ID); err != nil {
		return nil, err
	}
	if err := d.messages(ctx, v); err != nil {
		return nil, err
	}
	text, err := explain.Run(ctx, d.client, v.Run, h.attempts, v.Log, d.words())
	if err != nil {
		return nil, err
	}
	for _, s := range text {
		v.Why = append(v.Why, template.HTML(s)) // words has escaped what others have written
	}
	v.Earlier = max(len(v.Log)-mostDrawn, 0)
	v.Log = v.Log[v.Earlier:]
	v.unsettled = h.unsettled
	chosen, err := choose(q, h.steps)
	if err != nil {
		return nil, err
	}
	now := roughly(v.Run, time.Now())
	if v.workers, err = d.workersLane(ctx, v.Run, h, now); err != nil {
		return nil, err
	}
	v.Timeline = chosen.timeline(v, now)
	if v.Steps, err = chosen.table(ctx, d, v, h); err != nil {
		return nil, err
	}
	v.Family, err = d.family(ctx, v, h)
	return v, err
}

// gone returns the error for a run that is not there: who deleted it, if somebody did.
func (d *dashboard) gone(ctx context.Context, ref kagzi.Ref) error {
	said, err := explain.Deleted(ctx, d.client, ref,
		explain.Words{Moment: func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }})
	switch {
	case err != nil:
		return err
	case said != "":
		return status(404, fmt.Sprintf("The run %v is not there: %s.", ref, said))
	}
	return status(404, fmt.Sprintf("No run of this namespace is called %v. Retention deletes runs some time after "+
		"their end.", ref))
}

// roughly returns now for the timeline of a run, rounded up to about a hundredth of its age: so the timeline of an old
// run is not new each second.
func roughly(run kagzi.RunInfo, now time.Time) time.Time {
	if !run.EndedAt.IsZero() {
		return run.EndedAt
	}
	step := time.Second
	for step < now.Sub(run.CreatedAt)/128 {
		step *= 2
	}
	return now.Add(step - 1).Truncate(step)
}

// A history is the steps of a run without payloads, as the cache keeps it.
type history struct {
	mark      string // of the RunInfo when it was read
	attempts  []kagzi.StepAttempt
	steps     []*gantt.Step
	payloads  *stepPayloads
	unsettled bool
}

const (
	// waitEvery is how often the steps of a run that waits are read: only its children can change.
	waitEvery = 10 * time.Second
	// perStep is how much less often the steps of a running run are read for each step that it has.
	perStep = 2 * time.Millisecond
)

// history returns the steps of a run. Reading thousands of them is dear, so they are read again only if the run can
// have made some.
func (d *dashboard) history(ctx context.Context, run kagzi.RunInfo) (*history, error) {
	key := "history " + string(run.ID)
	mark := fmt.Sprint(run.Status, run.WaitingOn, run.AvailableAt, run.Attempts, run.StartedAt, run.EndedAt, run.Worker,
		run.Recoveries, run.PausedAt)
	last, _ := d.cache.peek(key).view.(*history)
	f := d.cache.get(ctx, key, last.keeps(run, mark, d.every), func(ctx context.Context) (any, error) {
		attempts, err := d.client.Steps(ctx, run.ID, kagzi.StepFilter{NoPayloads: true})
		if err != nil {
			return nil, err
		}
		return newHistory(mark, attempts, last), nil
	})
	h, _ := f.view.(*history)
	if h == nil || f.err != nil {
		return nil, f.err
	}
	return h, nil
}

// keeps returns for how long the steps that were read last are good enough for the run as it is now. h is nil if none
// were read.
func (h *history) keeps(run kagzi.RunInfo, mark string, every time.Duration) time.Duration {
	switch {
	case h == nil:
		return every
	case run.Status == kagzi.StatusRunning:
		return max(every, time.Duration(len(h.attempts))*perStep)
	case h.mark == mark:
		return max(every, waitEvery)
	}
	return every
}

// newHistory returns the history of the attempts. It goes on with the payloads that the last one knew.
func newHistory(mark string, attempts []kagzi.StepAttempt, last *history) *history {
	h := &history{
		mark: mark, attempts: attempts, steps: gantt.Steps(attempts),
		payloads: &stepPayloads{known: map[attemptKey]attemptPayloads{}},
	}
	if last != nil {
		h.payloads = last.payloads
	}
	for _, a := range attempts {
		h.unsettled = h.unsettled || a.Status == kagzi.StatusRunning
	}
	return h
}
