package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// why returns sentences that say why the run is where it is, and what to do about it.
func (a *app) why(ctx context.Context, c *kagzi.Client, r runReport) ([]string, error) {
	w := reasons{a: a, c: c, r: r}
	var err error
	switch run := r.Run; {
	case run.Status.Ended():
		w.ended()
		for _, h := range run.Hung {
			w.stillExecutes(h)
		}
	case run.Status == kagzi.StatusRunning:
		err = w.running(ctx)
	default:
		err = w.waiting(ctx)
	}
	if run := r.Run; !run.DeadlineAt.IsZero() && !run.Status.Ended() {
		w.say("Its timeout ends it %s.", a.screen.Moment(run.DeadlineAt))
	}
	return w.text, err
}

// reasons collects the sentences about one run.
type reasons struct {
	a    *app
	c    *kagzi.Client
	r    runReport
	text []string
}

func (w *reasons) say(format string, args ...any) {
	w.text = append(w.text, fmt.Sprintf(format, args...))
}

// name returns how commands call the run: by the ID that people know while that means this run, else by the run ID.
func (w *reasons) name() string {
	if id := string(w.r.Run.ExternalID); id != "" && !w.r.Run.Status.Ended() && refOf(id) == kagzi.ID(id) {
		return shellWord(id)
	}
	return string(w.r.Run.ID)
}

// ended says how the run ended, and what makes it go on.
func (w *reasons) ended() {
	switch run := w.r.Run; run.Status {
	case kagzi.StatusCompleted:
		w.say("It completed %s after it was started.", screen.Short(run.EndedAt.Sub(run.CreatedAt)))
	case kagzi.StatusFailed:
		w.say("It failed with kind %s.", run.Kind)
		if run.Quarantined {
			w.say("It is quarantined: mend the cause first, then kagzi runs resume %s.", w.name())
		} else {
			w.say("kagzi runs resume %s tries what failed again, and keeps the results of the other steps.", w.name())
		}
	case kagzi.StatusCancelled:
		by, why := "somebody", ""
		for _, e := range w.r.Log {
			if e.Event != "CANCELLED" && e.Event != "TERMINATED" {
				continue
			}
			if e.Actor != "" {
				by = e.Actor
			}
			if e.Reason != "" {
				why = fmt.Sprintf(": %q", e.Reason)
			}
		}
		if w.r.Run.Parent != "" && by == "somebody" && why == "" {
			w.say("It was cancelled, perhaps with its parent %s.", w.r.Run.Parent)
			return
		}
		w.say("It was cancelled by %s%s.", by, why)
	}
}

// running says who executes the run, and what is under way.
func (w *reasons) running(ctx context.Context) error {
	run := w.r.Run
	if run.Worker == "" {
		w.say("It is being executed.")
		return nil
	}
	worker, err := w.c.Worker(ctx, run.Worker)
	switch {
	case isNotFound(err):
		w.say("It was executed by worker %s, which is gone. Another one takes over at the latest %s.", run.Worker, w.a.screen.Moment(run.AvailableAt))
		return nil
	case err != nil:
		return err
	}
	w.say("It is executed by worker %s (process %d on %s), which last reported %s.", run.Worker, worker.PID, worker.Hostname, w.a.screen.Time(worker.HeartbeatAt))
	switch {
	case worker.Status == "OFFLINE":
		w.say("That worker is offline. Another one takes over at the latest %s.", w.a.screen.Moment(run.AvailableAt))
	case worker.Silent:
		w.say("That is long ago: the worker is probably dead, and no coordinator has noticed. Start a worker: it takes the run over, at the latest %s.", w.a.screen.Moment(run.AvailableAt))
	}
	if !run.CancelRequestedAt.IsZero() {
		w.say("It was cancelled %s%s, and ends once its code has returned: it waits on %s.", w.a.screen.Moment(run.CancelRequestedAt), w.by("CANCELLED"), run.WaitingOn)
	}
	if !run.PausedAt.IsZero() {
		w.say("It was paused %s%s, and stops at its next step, sleep, wait or child: kagzi runs unpause %s lets it go on.", w.a.screen.Moment(run.PausedAt), w.by("PAUSED"), w.name())
	}
	for _, h := range run.Hung {
		w.hung(h)
	}
	for _, s := range w.r.Steps {
		if s.Status == kagzi.StatusRunning && s.Type == "FUNCTION" && s.HungSince.IsZero() {
			w.say("Step %s, attempt %d, has run for %s.", s.Step, s.Attempt, w.a.took(s))
		}
	}
	return nil
}

// stillExecutes says which code of a run that is over hangs.
func (w *reasons) stillExecutes(h kagzi.HungCode) {
	what := "workflow function"
	switch {
	case h.Step != "":
		what = fmt.Sprintf("step %q", h.Step)
	case h.Branch != "":
		what = fmt.Sprintf("branch %q", h.Branch)
	}
	w.say("Its %s still executes in worker %s although the run is over: it has hung since %s, and can still have effects. The worker's log has its stack. If it does not return, restart the worker: kagzi workers drain %s", what, h.Worker, w.a.screen.Moment(h.Since), h.Worker)
}

// hung says which code of the run hangs.
func (w *reasons) hung(h kagzi.HungCode) {
	what := "The workflow function"
	switch {
	case h.Step != "":
		what = fmt.Sprintf("The function of step %q", h.Step)
	case h.Branch != "":
		what = fmt.Sprintf("The function of branch %q", h.Branch)
	}
	why := ", and waits for something outside of steps"
	if h.Cause != "" {
		why = ", although its context has ended: " + oneLine(h.Cause)
	}
	w.say("%s has hung since %s%s. The worker's log has its stack. If it does not return, restart the worker: kagzi workers drain %s", what, w.a.screen.Moment(h.Since), why, w.r.Run.Worker)
}

// by says who has made the newest change of that sort, and why, as far as that is known.
func (w *reasons) by(event string) string {
	for _, e := range slices.Backward(w.r.Log) {
		if e.Event == event {
			return byText(e.Actor, e.Reason)
		}
	}
	return ""
}

// waiting says what a pending or sleeping run waits for. If several branches wait, RunInfo.WaitingOn names several things, and the first
// one has the run's time.
func (w *reasons) waiting(ctx context.Context) error {
	for i, on := range strings.Split(w.r.Run.WaitingOn, "; ") {
		if err := w.waitingFor(ctx, on, i == 0); err != nil {
			return err
		}
	}
	if run := w.r.Run; !run.PausedAt.IsZero() && !strings.HasPrefix(run.WaitingOn, "pause") {
		w.say("It is also paused since %s%s: it does not go on before kagzi runs unpause %s.", w.a.screen.Moment(run.PausedAt), w.by("PAUSED"), w.name())
	}
	return nil
}

func (w *reasons) waitingFor(ctx context.Context, on string, first bool) error {
	run := w.r.Run
	what, name, _ := strings.Cut(on, " ")
	switch what {
	case "timer":
		w.say("It sleeps in %q%s.", name, w.until(name, first))
	case "timeout":
		w.say("The timeout of its branches %q comes%s, unless they end before.", name, strings.Replace(w.until(name, first), " until", "", 1))
	case "signal":
		return w.signal(ctx, name, w.until(name, first))
	case "child":
		return w.child(ctx, name)
	case "compensation":
		w.say("It has failed or was cancelled, and its compensation %s is under way.", name)
	case "children":
		w.say("It has failed or was cancelled, and waits for its children to end before its compensations run.")
	case "retry":
		w.retry(name)
	case "previous":
		w.say("It waits until the previous run of its schedule %s has ended: kagzi runs list --schedule %s --status active.", run.Schedule, shellWord(run.Schedule))
	case "limit":
		return w.limit(ctx, name)
	case "pause":
		return w.paused(ctx)
	case "key", "group", "queue":
		w.say("It is due, and waits for a slot: %s. kagzi queues list and kagzi keys list show the limits.", on)
	case "rate":
		w.say("It is due, and the %s lets no further run start now. kagzi queues list and kagzi keys list show the limits.", on)
	case "worker":
		w.say("Its worker drained or lost the database, and gave it back.")
		return w.unclaimed(ctx)
	case "recovery":
		w.say("Its workers died %d times in a row while they executed it.", run.Recoveries)
		return w.unclaimed(ctx)
	case "history":
		w.say("Its history could not be read. A worker tries again %s.", w.a.screen.Moment(run.AvailableAt))
	case "":
		return w.unclaimed(ctx)
	default: // "2 more", or what a newer library says
		w.say("It waits for %s.", on)
	}
	return nil
}

// until returns until when the run waits for the sleep or signal of that name. first says whether the run's time is that of this wait.
func (w *reasons) until(name string, first bool) string {
	at := w.r.Run.AvailableAt
	if !first {
		at = time.Time{}
		for _, s := range w.r.Steps {
			if s.Status == kagzi.StatusRunning && (s.Step == name || strings.HasSuffix(s.Step, "/"+name)) {
				at = s.WakeAt
			}
		}
	}
	if at.IsZero() {
		return ""
	}
	return " until " + w.a.screen.Moment(at)
}

// unclaimed says why nobody executes a run that waits for nothing but a time or a worker.
func (w *reasons) unclaimed(ctx context.Context) error {
	run := w.r.Run
	if run.AvailableAt.After(w.a.screen.Now()) {
		w.say("It is due %s.", w.a.screen.Moment(run.AvailableAt))
	} else {
		w.say("It has been due since %s, and no worker has taken it.", w.a.screen.Moment(run.AvailableAt))
	}
	workers, _, err := w.c.Workers(ctx, kagzi.WorkerFilter{Status: []string{"ONLINE"}, Queue: run.Queue, Limit: mostPerPage})
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		w.say("No worker of queue %s is online: start one.", run.Queue)
		return nil
	}
	handler := fmt.Sprintf("%s/%d", run.Workflow, run.Version)
	active := 0
	able := slices.DeleteFunc(workers, func(x kagzi.WorkerInfo) bool {
		return !slices.Contains(x.Workflows, run.Workflow) || run.Version > 0 && !slices.Contains(x.Handlers, handler)
	})
	most := 0
	for _, x := range able {
		active, most = active+x.Active, most+x.MaxConcurrent
	}
	switch {
	case len(able) == 0 && run.Version > 0:
		w.say("No online worker of queue %s has a handler for version %d of %s: start one with it, or kagzi workers list --queue %s shows what they have.", run.Queue, run.Version, run.Workflow, run.Queue)
	case len(able) == 0:
		w.say("No online worker of queue %s has a handler for %s: kagzi workers list --queue %s shows what they have.", run.Queue, run.Workflow, run.Queue)
	case active >= most:
		w.say("All workers that have its code are busy: %d of %d slots are in use.", active, most)
	}
	return nil
}

// signal says which message the run waits for, and which ones it has and does not read.
func (w *reasons) signal(ctx context.Context, name, until string) error {
	w.say("It waits for a message of the signal %q%s: kagzi runs signal %s %s --payload JSON sends one.", name, until, w.name(), signalArgs(name))
	unread, err := w.c.Messages(ctx, w.r.Run.ID, kagzi.MessageFilter{Unread: true, Limit: 10})
	if err != nil {
		return err
	}
	for _, m := range unread {
		if m.Signal != name {
			w.say("It has an unread message of another name, %q, from %s: is one of the names misspelt?", m.Signal, w.a.screen.Moment(m.ReceivedAt))
		}
	}
	return nil
}

// signalArgs returns the arguments that name a signal for kagzi runs signal.
func signalArgs(name string) string {
	name, key, keyed := strings.Cut(name, "/")
	if !keyed {
		return shellWord(name)
	}
	return shellWord(name) + " --for " + shellWord(key)
}

// child says how it is with the child that the run waits for.
func (w *reasons) child(ctx context.Context, name string) error {
	name, _, _ = strings.Cut(name, " and ") // "ship and 2 more"
	for _, s := range slices.Backward(w.r.Steps) {
		if s.Child == "" || s.Step != name && !strings.HasSuffix(s.Step, "/"+name) {
			continue
		}
		child, err := w.c.Get(ctx, s.Child)
		if isNotFound(err) {
			break
		}
		if err != nil {
			return err
		}
		state := string(child.Status)
		if d := runDetail(child); d != "" {
			state += ", " + d
		}
		w.say("It waits for its child %q, run %s of %s, which is %s: kagzi runs get %s says more.", name, child.ID, child.Workflow, state, child.ID)
		return nil
	}
	w.say("It waits for its child %q: kagzi runs list --parent %s lists the children.", name, w.name())
	return nil
}

// retry says which attempt comes next, and how the last one failed.
func (w *reasons) retry(step string) {
	next := w.a.screen.Moment(w.r.Run.AvailableAt)
	if step == "" {
		w.say("Its attempt %d failed with %s: %s. The next one is due %s.", w.r.Run.Attempts, w.r.Run.Kind, oneLine(w.r.Run.Error), next)
		return
	}
	for _, s := range slices.Backward(w.r.Steps) {
		if s.Error != "" && (s.Step == step || strings.HasSuffix(s.Step, "/"+step)) {
			w.say("Attempt %d of step %q failed with %s: %s. The next one is due %s.", s.Attempt, step, s.Kind, oneLine(s.Error), next)
			return
		}
	}
	w.say("Step %q failed. Its next attempt is due %s.", step, next)
}

// limit says what the limit that the run waits for allows.
func (w *reasons) limit(ctx context.Context, name string) error {
	w.say("A step of it waits for the limit %q.", name)
	l, ok, err := findLimit(ctx, w.c, name)
	switch {
	case err != nil:
		return err
	case !ok:
		w.say("Nobody has set that limit: kagzi limits set %s sets it.", name)
	default:
		w.say("Waiting for it: %s. Under way: %d. It allows %s.", plural(l.Waiting, "step"), l.Running, limitText(l))
	}
	return nil
}

// paused says who paused what, and why.
func (w *reasons) paused(ctx context.Context) error {
	if !w.r.Run.PausedAt.IsZero() {
		w.say("It was paused %s%s: kagzi runs unpause %s lets it go on.", w.a.screen.Moment(w.r.Run.PausedAt), w.by("PAUSED"), w.name())
		return nil
	}
	pauses, err := w.c.Pauses(ctx)
	if err != nil {
		return err
	}
	run := w.r.Run
	w.say("It is held up by the %s.", w.r.Run.WaitingOn)
	for _, p := range pauses {
		holds := p.All || p.Group != "" && p.Group == string(run.Group) || p.Key != "" && p.Queue == run.Queue && p.Key == string(run.Key) ||
			p.Key == "" && p.Group == "" && (p.Queue == "" || p.Queue == run.Queue) && (p.Workflow == "" || p.Workflow == run.Workflow)
		if holds {
			w.say("Paused: %s, %s%s: kagzi unpause %s ends that.", targetText(p.Target), w.a.screen.Moment(p.Since), byText(p.Actor, p.Reason), targetFlags(p.Target))
		}
	}
	return nil
}

// byText says who made a change, and why, as far as that is known.
func byText(actor, reason string) string {
	text := ""
	if actor != "" {
		text = " by " + actor
	}
	if reason != "" {
		text += fmt.Sprintf(" (%q)", reason)
	}
	return text
}
