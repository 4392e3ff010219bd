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
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// Run returns sentences that say why the run is where it is, and what to do about it. steps and log are those of the
// run. What they do not say, such as who paused its queue, it asks the client; its errors are the client's.
func Run(ctx context.Context, c *kagzi.Client, run kagzi.RunInfo, steps []kagzi.StepAttempt, log []admin.LogEntry,
	words Words,
) ([]string, error) {
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
	if !run.InboxFullSince.IsZero() {
		r.inboxFull()
	}
	if !run.StartBy.IsZero() {
		r.say("It ends %s unless a worker has begun it by then.", r.Moment(run.StartBy))
	}
	if !run.DeadlineAt.IsZero() && !run.Status.Ended() {
		r.say("Its timeout ends it %s.", r.Moment(run.DeadlineAt))
	}
	return r.text, err
}

// Deleted says when the run that ref names was deleted, by whom and why: as a clause without a full stop, "it was
// deleted …". It is empty if no such deletion is recorded.
func Deleted(ctx context.Context, c *kagzi.Client, ref kagzi.Ref, words Words) (string, error) {
	log, err := admin.New(c).Runs.Log(ctx, ref)
	if err != nil && !errors.Is(err, kagzi.ErrNotFound) {
		return "", err
	}
	r := reasons{Words: words.complete(), log: log}
	for _, e := range slices.Backward(log) {
		if e.Event == "DELETED" {
			shows := ""
			if deed := r.deed(Deed{Verb: Log, Ref: ref}); deed != "" {
				shows = ": " + deed + " shows what it was"
			}
			return fmt.Sprintf("it was deleted %s%s%s", r.Moment(e.At), r.byText(e.Actor, e.Reason), shows), nil
		}
	}
	return "", nil
}

// reasons collects the sentences about one run.
type reasons struct {
	Words
	c     *kagzi.Client
	run   kagzi.RunInfo
	steps []kagzi.StepAttempt
	log   []admin.LogEntry
	text  []string

	lookedForWorkers bool // what these say about the run is in text
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

// ended says how the run ended, what makes it go on, and which code of it still executes.
func (r *reasons) ended() {
	run := r.run
	deleting := run.WaitingOn.Has(waits.Deletion)
	switch run.Status {
	case kagzi.StatusCompleted:
		r.say("It completed %s after it was started.", r.Took(run.EndedAt.Sub(run.CreatedAt)))
		if run.Compensated && !deleting {
			r.say("It was rolled back.")
			r.compensated()
		}
	case kagzi.StatusFailed: // the callers show its kind and error
		if !deleting {
			r.resume()
		}
	case kagzi.StatusCancelled:
		r.cancelled()
		if run.Compensated && !deleting {
			r.compensated()
		}
	}
	if deleting {
		r.say("It is being deleted: a coordinator does the rest within about a minute.")
	}
	for _, h := range run.Hung {
		r.stillExecutes(h)
	}
}

// resume says what makes a failed run go on.
func (r *reasons) resume() {
	resume := r.deed(Deed{Verb: Resume})
	switch {
	case r.run.Compensated:
		r.compensated()
	case r.run.Quarantined && resume == "":
		r.say("It is quarantined: somebody has to mend the cause.")
	case r.run.Quarantined:
		r.say("It is quarantined: mend the cause first, then %s.", resume)
	case resume != "":
		r.say("%s tries what failed again, and keeps the results of the other steps.", resume)
	}
}

// compensated says what to do about a run whose compensations have run.
func (r *reasons) compensated() {
	r.say("Its compensations have run.")
	if restart := r.deed(Deed{Verb: Restart}); restart != "" {
		r.say("%s starts another run with its input.", restart)
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
	worker, err := admin.New(r.c).Workers.Get(ctx, run.Worker)
	switch {
	case errors.Is(err, kagzi.ErrNotFound):
		r.say("It is not being executed: its worker %s is gone. %s", r.Worker(run.Worker), r.takeover())
		r.suspected()
		return nil
	case err != nil:
		return err
	}
	named := fmt.Sprintf("%s (process %d on %s)", r.Worker(run.Worker), worker.PID, r.Text(worker.Hostname))
	switch {
	case worker.Status == "OFFLINE":
		r.say("It is not being executed: its worker %s died, and last reported %s. %s", named,
			r.Moment(worker.HeartbeatAt), r.takeover())
	case worker.Silent:
		r.say("It is not being executed, as far as is known: its worker %s has been silent since %s, so it is "+
			"probably dead, and no coordinator has noticed. Start a worker. %s", named, r.Moment(worker.HeartbeatAt),
			r.takeover())
	default:
		r.say("It is executed by worker %s, which last reported %s.", named, r.Ago(worker.HeartbeatAt))
	}
	r.suspected()
	if !run.CancelRequestedAt.IsZero() {
		r.say("It was cancelled %s%s, and ends once its code has returned: it waits on %s.",
			r.Moment(run.CancelRequestedAt), r.by("CANCELLED"), r.Text(run.WaitingOn.String()))
	}
	if !run.PausedAt.IsZero() {
		r.say("It was paused %s%s, and stops at its next step, sleep, wait or child%s.", r.Moment(run.PausedAt),
			r.by("PAUSED"), r.goesOn())
	}
	for _, h := range run.Hung {
		r.hung(h)
	}
	for _, s := range r.steps { // those of a worker that is gone are PENDING
		if s.Status == kagzi.StatusRunning && s.Type == "FUNCTION" && s.HungSince.IsZero() {
			r.say("Step %s, attempt %d, has run for %s.", r.Text(s.Step), s.Attempt, r.Elapsed(s.StartedAt))
		}
	}
	return nil
}

// suspected says that the run may be what kills its workers, if it may.
func (r *reasons) suspected() {
	if r.run.Recoveries >= store.SuspectRecoveries {
		r.say("It was under way when %s, so it may be what kills them: it is executed beside few others like it.",
			workersDied(r.run.Recoveries))
	}
}

// takeover says when another worker takes the run over from one that is dead.
func (r *reasons) takeover() string {
	if r.past(r.run.AvailableAt) {
		return fmt.Sprintf("Another one may have it since %s, and takes it over when it has a free slot.",
			r.Moment(r.run.AvailableAt))
	}
	return fmt.Sprintf("Another one takes over at the latest %s.", r.Moment(r.run.AvailableAt))
}

// hung says which code of the run hangs.
func (r *reasons) hung(h kagzi.HungCode) {
	if h.Awaits != "" {
		r.say("The function of step %s has waited since %s for the result of run %s, and such steps hold all slots "+
			"of its worker, so that none is free for that run. Call it as a child, or give the worker more slots.",
			r.quote(h.Step), r.Moment(h.Since), r.Run(h.Awaits))
		return
	}
	what := "The workflow function"
	switch {
	case h.Step != "":
		what = "The function of step " + r.quote(h.Step)
	case h.Branch != "":
		what = "The function of branch " + r.quote(h.Branch)
	}
	why := ", and waits for something outside of steps"
	if h.Cause != "" {
		why = ", although its context has ended: " + r.Text(OneLine(h.Cause))
	}
	r.say("%s has hung since %s%s. %s", what, r.Moment(h.Since), why, r.restart(h))
}

// stillExecutes says which code of a run that is over hangs.
func (r *reasons) stillExecutes(h kagzi.HungCode) {
	what := "workflow function"
	switch {
	case h.Step != "":
		what = "step " + r.quote(h.Step)
	case h.Branch != "":
		what = "branch " + r.quote(h.Branch)
	}
	r.say("Its %s still executes in worker %s although the run is over: it has hung since %s, and can still have "+
		"effects. %s", what, r.Worker(h.Worker), r.Moment(h.Since), r.restart(h))
}

// restart says what to do about code that hangs.
func (r *reasons) restart(h kagzi.HungCode) string {
	drain := "."
	if deed := r.deed(Deed{Verb: Drain, Name: h.Worker}); deed != "" {
		drain = ": " + deed
	}
	return "The worker's log has its stack. If it does not return, restart the worker" + drain
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
	text, said := strings.CutPrefix(By(actor, reason), " ")
	if !said {
		return ""
	}
	return " " + r.Text(text)
}

// named reports whether a step has the name, perhaps below branches.
func named(s kagzi.StepAttempt, name string) bool {
	return s.Step == name || strings.HasSuffix(s.Step, "/"+name)
}

// past reports whether the moment is over.
func (r *reasons) past(t time.Time) bool { return !t.After(r.Now()) }
