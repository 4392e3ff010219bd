// Package explain says in sentences why a run is where it is, until when, and what to do about it.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// Run returns sentences that say why the run is where it is, and what to do about it. steps and log are those of the run. What they do not
// say, such as who paused its queue, it asks the client; its errors are the client's.
func Run(ctx context.Context, c *kagzi.Client, run kagzi.RunInfo, steps []kagzi.StepAttempt, log []kagzi.LogEntry, words Words) ([]string, error) {
	r := reasons{Words: words.complete(), c: c, run: run, steps: steps, log: log}
	var err error
	switch {
	case run.Status.Ended():
		r.ended()
	case run.Status == kagzi.StatusRunning:
		err = r.running(ctx)
	default:
		err = r.waiting(ctx)
	}
	if !run.DeadlineAt.IsZero() && !run.Status.Ended() {
		r.say("Its timeout ends it %s.", r.Moment(run.DeadlineAt))
	}
	return r.text, err
}

// reasons collects the sentences about one run.
type reasons struct {
	Words
	c     *kagzi.Client
	run   kagzi.RunInfo
	steps []kagzi.StepAttempt
	log   []kagzi.LogEntry
	text  []string
}

// say adds a sentence. Its arguments are numbers, and texts that Words has made.
func (r *reasons) say(format string, args ...any) {
	r.text = append(r.text, fmt.Sprintf(format, args...))
}

// quote returns a name in quotation marks.
func (r *reasons) quote(name string) string { return r.Text(strconv.Quote(name)) }

// deed returns how to do what d says about this run.
func (r *reasons) deed(d Deed) string {
	d.Run = r.run
	return r.Deed(d)
}

// ended says how the run ended, and what makes it go on.
func (r *reasons) ended() {
	switch run := r.run; run.Status {
	case kagzi.StatusCompleted:
		r.say("It completed %s after it was started.", r.Took(run.EndedAt.Sub(run.CreatedAt)))
	case kagzi.StatusFailed:
		r.say("It failed with kind %s.", r.Text(string(run.Kind)))
		resume := r.deed(Deed{Verb: Resume})
		switch {
		case run.Quarantined && resume == "":
			r.say("It is quarantined: somebody has to mend the cause.")
		case run.Quarantined:
			r.say("It is quarantined: mend the cause first, then %s.", resume)
		case resume != "":
			r.say("%s tries what failed again, and keeps the results of the other steps.", resume)
		}
	case kagzi.StatusCancelled:
		r.cancelled()
	}
}

// cancelled says who cancelled the run.
func (r *reasons) cancelled() {
	by, why := "somebody", ""
	for _, e := range r.log {
		if e.Event != "CANCELLED" && e.Event != "TERMINATED" {
			continue
		}
		if e.Actor != "" {
			by = r.Text(e.Actor)
		}
		if e.Reason != "" {
			why = ": " + r.quote(e.Reason)
		}
	}
	if r.run.Parent != "" && by == "somebody" && why == "" {
		r.say("It was cancelled, perhaps with its parent %s.", r.Run(r.run.Parent))
		return
	}
	r.say("It was cancelled by %s%s.", by, why)
}

// running says who executes the run, and what is under way.
func (r *reasons) running(ctx context.Context) error {
	run := r.run
	if run.Worker == "" {
		r.say("It is being executed.")
		return nil
	}
	worker, err := r.c.Worker(ctx, run.Worker)
	switch {
	case errors.Is(err, kagzi.ErrNotFound):
		r.say("It was executed by worker %s, which is gone. Another one takes over at the latest %s.", r.Worker(run.Worker), r.Moment(run.AvailableAt))
		return nil
	case err != nil:
		return err
	}
	r.say("It is executed by worker %s (process %d on %s), which last reported %s.", r.Worker(run.Worker), worker.PID, r.Text(worker.Hostname), r.Ago(worker.HeartbeatAt))
	switch {
	case worker.Status == "OFFLINE":
		r.say("That worker is offline. Another one takes over at the latest %s.", r.Moment(run.AvailableAt))
	case worker.Silent:
		r.say("That is long ago: the worker is probably dead, and no coordinator has noticed. Start a worker: it takes the run over, at the latest %s.", r.Moment(run.AvailableAt))
	}
	if !run.CancelRequestedAt.IsZero() {
		r.say("It was cancelled %s%s, and ends once its code has returned: it waits on %s.", r.Moment(run.CancelRequestedAt), r.by("CANCELLED"), r.Text(run.WaitingOn))
	}
	for _, h := range run.Hung {
		r.hung(h)
	}
	for _, s := range r.steps {
		if s.Status == kagzi.StatusRunning && s.Type == "FUNCTION" && s.HungSince.IsZero() {
			r.say("Step %s, attempt %d, has run for %s.", r.Text(s.Step), s.Attempt, r.Elapsed(s.StartedAt))
		}
	}
	return nil
}

// hung says which code of the run hangs.
func (r *reasons) hung(h kagzi.HungCode) {
	what := "The workflow function"
	switch {
	case h.Step != "":
		what = "The function of step " + r.quote(h.Step)
	case h.Branch != "":
		what = "The function of branch " + r.quote(h.Branch)
	}
	why := " and waits for something outside of steps"
	if h.Cause != "" {
		why = ", although its context has ended: " + r.Text(oneLine(h.Cause))
	}
	advice := "restart the worker"
	if drain := r.deed(Deed{Verb: Drain, Name: r.run.Worker}); drain != "" {
		advice += ": " + drain
	} else {
		advice += "."
	}
	r.say("%s hangs since %s%s. The worker's log has its stack. If it does not return, %s", what, r.Moment(h.Since), why, advice)
}

// by says who has made the newest change of that sort, and why, as far as that is known.
func (r *reasons) by(event string) string {
	for _, e := range slices.Backward(r.log) {
		if e.Event == event {
			return r.byText(e.Actor, e.Reason)
		}
	}
	return ""
}

// byText says who made a change, and why, as far as that is known.
func (r *reasons) byText(actor, reason string) string {
	text := ""
	if actor != "" {
		text = " by " + r.Text(actor)
	}
	if reason != "" {
		text += " (" + r.quote(reason) + ")"
	}
	return text
}

// oneLine returns a text on one line.
func oneLine(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "kagzi: "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// named reports whether a step has the name, perhaps below branches.
func named(s kagzi.StepAttempt, name string) bool {
	return s.Step == name || strings.HasSuffix(s.Step, "/"+name)
}

// past reports whether the moment is over.
func (r *reasons) past(t time.Time) bool { return !t.After(r.Now()) }
