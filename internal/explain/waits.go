package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// waiting says what a pending or sleeping run waits for. If several branches wait, RunInfo.WaitingOn names several
// things, and the first one has the run's time.
func (r *reasons) waiting(ctx context.Context) error {
	for i, on := range strings.Split(r.run.WaitingOn, "; ") {
		if err := r.waitingFor(ctx, on, i == 0); err != nil {
			return err
		}
	}
	if err := r.stranded(ctx); err != nil {
		return err
	}
	if run := r.run; !run.PausedAt.IsZero() && !strings.HasPrefix(run.WaitingOn, "pause") {
		r.say("It is also paused since %s%s%s.", r.Moment(run.PausedAt), r.by("PAUSED"),
			after(": it does not go on before ", r.deed(Deed{Verb: UnpauseRun})))
	}
	return nil
}

func (r *reasons) waitingFor(ctx context.Context, on string, first bool) error {
	run := r.run
	what, name, _ := strings.Cut(on, " ")
	if strings.HasPrefix(name, "message") && strings.HasSuffix(name, " not decode") &&
		strings.Trim(what, "0123456789") == "" {
		return nil // "1 message that does not decode": told with the signal that it waits for
	}
	switch what {
	case "timer":
		r.say("It sleeps in %s%s.", r.quote(name), r.until(name, first))
	case "timeout":
		r.say("The timeout of its branches %s comes%s, unless they end before.", r.quote(name),
			strings.Replace(r.until(name, first), " until", "", 1))
	case "signal":
		return r.signal(ctx, name, r.until(name, first))
	case "child":
		return r.child(ctx, name)
	case "compensation":
		state := "is under way"
		if strings.HasSuffix(run.WaitingOn, "is refused") {
			state = "does not go on"
		}
		r.say("It has failed or was cancelled, and its compensation %s %s.", r.Text(name), state)
	case "its": // "its start is refused": of the compensation that comes before it, or "its end is refused"
		r.refused(on)
	case "children":
		r.say("It has failed or was cancelled, and waits for its children to end before its compensations run.")
	case "retry":
		r.retry(name)
	case "previous":
		r.say("It waits until the previous run of its schedule %s has ended%s.", r.Text(run.Schedule),
			after(": ", r.deed(Deed{Verb: Previous, Name: run.Schedule})))
	case "limit":
		return r.limit(ctx, name)
	case "pause":
		return r.paused(ctx)
	case "key", "group", "queue":
		r.say("It is due, and waits for a slot: %s.%s", r.Text(on), r.limitsShow())
	case "rate":
		r.say("It is due, and the %s lets no further run start now.%s", r.Text(on), r.limitsShow())
	case "worker":
		r.say("Its worker drained or lost the database, and gave it back.")
		return r.unclaimed(ctx)
	case "recovery":
		r.say("It was under way when %s, so it may be what kills them: it is tried after growing pauses, beside few "+
			"others like it, and quarantined in the end.", workersDied(run.Recoveries))
		return r.unclaimed(ctx)
	case "history":
		r.say("Its history could not be read. A worker tries again %s.", r.Moment(run.AvailableAt))
	case "":
		return r.unclaimed(ctx)
	default: // "2 more", or what a newer library says
		r.say("It waits for %s.", r.Text(on))
	}
	return nil
}

// refused says that the database refuses the next step of the run's compensations.
func (r *reasons) refused(on string) {
	why := ""
	for _, s := range r.steps {
		if s.Type == "COMPENSATION" && s.Child == "" {
			why = cmp.Or(why, s.Error)
		}
	}
	r.say("The database refuses %s%s. It is tried again %s: remove the cause.",
		r.Text(strings.TrimSuffix(on, " is refused")), after(": ", r.Text(OneLine(why))), r.Moment(r.run.AvailableAt))
}

// after returns text with what comes before it, and nothing if there is no text.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// limitsShow says where the limits of queues and keys are.
func (r *reasons) limitsShow() string {
	if limits := r.deed(Deed{Verb: Limits}); limits != "" {
		return " " + limits + " show the limits."
	}
	return ""
}

// until returns until when the run waits for the sleep or signal of that name. first says whether the run's time is
// that of this wait.
func (r *reasons) until(name string, first bool) string {
	at := r.run.AvailableAt
	if !first {
		at = time.Time{}
		for _, s := range r.steps {
			if s.Status == kagzi.StatusRunning && named(s, name) {
				at = s.WakeAt
			}
		}
	}
	if at.IsZero() {
		return ""
	}
	return " until " + r.Moment(at)
}

// mostWorkers is how many workers of a queue are looked at.
const mostWorkers = 500

// unclaimed says why no worker executes a run that waits for nothing but a time or a worker.
func (r *reasons) unclaimed(ctx context.Context) error {
	run := r.run
	if r.past(run.AvailableAt) {
		r.say("It has been due since %s, and no worker has taken it.", r.Moment(run.AvailableAt))
		if err := r.pauses(ctx); err != nil {
			return err
		}
	} else if run.WaitingOn == "recovery" {
		r.say("Its next try comes %s.", r.Moment(run.AvailableAt))
	} else {
		r.say("It is due %s.", r.Moment(run.AvailableAt))
	}
	live, able, err := r.workers(ctx)
	if err != nil {
		return err
	}
	if len(live) == 0 {
		r.say("No worker of queue %s is live: start one.", r.Text(run.Queue))
		return nil
	}
	active, most := 0, 0
	for _, w := range able {
		active, most = active+w.Active, most+w.MaxConcurrent
	}
	switch {
	case len(able) == 0:
		r.say("%s", r.noHandler())
	case active >= most:
		r.say("All workers that have its code are busy: %d of %d slots are in use.", active, most)
	}
	return nil
}

// stranded says that no live worker has the code of a run which waits for something else, so that no worker executes it
// when that comes.
func (r *reasons) stranded(ctx context.Context) error {
	if r.lookedForWorkers {
		return nil
	}
	live, able, err := r.workers(ctx)
	if err == nil && len(able) == 0 {
		what := "No worker of queue " + r.Text(r.run.Queue) + " is live: start one."
		if len(live) > 0 {
			what = r.noHandler()
		}
		r.say("%s It does not go on without.", what)
	}
	return err
}

// workers returns the live workers of the run's queue, and those of them that have its code.
func (r *reasons) workers(ctx context.Context) (live, able []admin.WorkerInfo, err error) {
	r.lookedForWorkers = true
	run := r.run
	live, _, err = admin.New(r.c).Workers(ctx, admin.WorkerFilter{
		Status: []string{"ONLINE"}, Queue: run.Queue,
		Limit: mostWorkers,
	})
	live = slices.DeleteFunc(live, func(w admin.WorkerInfo) bool { return w.Silent })
	handler := fmt.Sprintf("%s/%d", run.Workflow, run.Version)
	able = slices.DeleteFunc(slices.Clone(live), func(w admin.WorkerInfo) bool {
		return !slices.Contains(w.Workflows, run.Workflow) || run.Version > 0 && !slices.Contains(w.Handlers, handler)
	})
	return live, able, err
}

// noHandler says that no live worker of the run's queue has its code.
func (r *reasons) noHandler() string {
	run, shows := r.run, r.deed(Deed{Verb: Workers, Name: r.run.Queue})
	if run.Version > 0 {
		return fmt.Sprintf("No live worker of queue %s has a handler for version %d of %s: start one with it%s.",
			r.Text(run.Queue), run.Version, r.Text(run.Workflow), theyHave(", or ", shows))
	}
	return fmt.Sprintf("No live worker of queue %s has a handler for %s%s.", r.Text(run.Queue), r.Text(run.Workflow),
		theyHave(": ", shows))
}

// theyHave says what shows the handlers of workers.
func theyHave(before, shows string) string {
	if shows == "" {
		return ""
	}
	return before + shows + " shows what they have"
}

// signal says which message the run waits for, and which ones it has and does not read.
func (r *reasons) signal(ctx context.Context, name, until string) error {
	sends, err := r.sends(ctx, name)
	if err != nil {
		return err
	}
	r.say("It waits for a message of the signal %s%s%s.", r.quote(name), until, sends)
	own, err := admin.New(r.c).Messages(ctx, r.run.ID, admin.MessageFilter{
		Signal: name, Unread: true,
		Limit: shownMessages,
	})
	if err != nil {
		return err
	}
	for _, m := range own {
		if m.SetAside != "" {
			r.say("It has set aside message %s, which came %s: %s.%s", r.quote(string(m.ID)), r.Moment(m.ReceivedAt),
				r.Text(OneLine(m.SetAside)), r.wayOut(m))
		}
	}
	return r.otherSignals(ctx, name)
}

// sends says what sends a message of the signal of that name. A client without the Sealer of the workers sends none.
func (r *reasons) sends(ctx context.Context, name string) (string, error) {
	deed := r.deed(Deed{Verb: Signal, Name: name})
	if deed == "" {
		return "", nil
	}
	err := r.c.CheckSealer(ctx)
	if kagzi.KindOf(err) == kind.BadRequest {
		return ". The payloads of the namespace are sealed: send one with a program that has the Sealer of the workers",
			nil
	}
	return ": " + deed + " sends one", err
}

// shownMessages bounds the messages that one look reads.
const shownMessages = 10

// otherSignals says which unread messages the run has of other names than the one that it waits for.
func (r *reasons) otherSignals(ctx context.Context, name string) error {
	unread, err := admin.New(r.c).Messages(ctx, r.run.ID, admin.MessageFilter{Unread: true, Limit: 100})
	if err != nil {
		return err
	}
	for i := 0; i < len(unread); { // they come by name
		first, n := unread[i], 0
		for ; i < len(unread) && unread[i].Signal == first.Signal; i++ {
			n++
		}
		switch {
		case first.Signal == name:
		case n == 1:
			r.say("It has an unread message of another name, %s, from %s: is one of the names misspelt?",
				r.quote(first.Signal), r.Moment(first.ReceivedAt))
		case i == 100:
			r.say("It has %d unread messages or more of another name, %s, the first from %s: is one of the names "+
				"misspelt?", n, r.quote(first.Signal), r.Moment(first.ReceivedAt))
		default:
			r.say("It has %d unread messages of another name, %s, the first from %s: is one of the names misspelt?", n,
				r.quote(first.Signal), r.Moment(first.ReceivedAt))
		}
	}
	return nil
}

// inboxFull says that the run takes no more messages, and what to do.
func (r *reasons) inboxFull() {
	var ways []string
	if lists := r.deed(Deed{Verb: Unread}); lists != "" {
		ways = append(ways, lists+" lists them")
	}
	if drop := r.deed(Deed{Verb: DropMessage}); drop != "" {
		ways = append(ways, drop+" removes one")
	}
	r.say("It takes no more messages since %s, because it has %d that it has not read%s.",
		r.Moment(r.run.InboxFullSince), store.MostUnread, after(": ", strings.Join(ways, ", ")))
}

// wayOut says what to do about a message that was set aside.
func (r *reasons) wayOut(m admin.MessageInfo) string {
	redeliver, drop := r.deed(Deed{Verb: RedeliverMessage, Name: string(m.ID)}),
		r.deed(Deed{Verb: DropMessage, Name: string(m.ID)})
	if redeliver == "" || drop == "" {
		return ""
	}
	return fmt.Sprintf(" If code that decodes it is deployed, %s gives it to the run again; %s removes it.",
		redeliver, drop)
}

// child says how it is with the child that the run waits for.
func (r *reasons) child(ctx context.Context, name string) error {
	name, _, _ = strings.Cut(name, " and ") // "ship and 2 more"
	for _, s := range slices.Backward(r.steps) {
		if s.Child == "" || !named(s, name) {
			continue
		}
		child, err := r.c.Get(ctx, s.Child)
		if errors.Is(err, kagzi.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		more := ""
		if deed := r.deed(Deed{Verb: Child, Other: child.ID}); deed != "" {
			more = ": " + deed + " says more"
		}
		state := string(child.Status) + after(", ", Detail(child))
		r.say("It waits for its child %s, run %s of %s, which is %s%s.", r.quote(name), r.Run(child.ID),
			r.Text(child.Workflow), r.Text(state), more)
		return nil
	}
	lists := ""
	if deed := r.deed(Deed{Verb: Children}); deed != "" {
		lists = ": " + deed + " lists the children"
	}
	r.say("It waits for its child %s%s.", r.quote(name), lists)
	return nil
}

// retry says which attempt comes next, and how the last one failed.
func (r *reasons) retry(step string) {
	next := r.Moment(r.run.AvailableAt)
	if step == "" {
		r.say("Its attempt %d failed with %s: %s. The next one is due %s.", r.run.Attempts, r.Text(string(r.run.Kind)),
			r.Text(OneLine(r.run.Error)), next)
		return
	}
	for _, s := range slices.Backward(r.steps) {
		if s.Error != "" && named(s, step) {
			r.say("Attempt %d of step %s failed with %s: %s. The next one is due %s.", s.Attempt, r.quote(step),
				r.Text(string(s.Kind)), r.Text(OneLine(s.Error)), next)
			return
		}
	}
	r.say("Step %s failed. Its next attempt is due %s.", r.quote(step), next)
}

// limit says what the limit that the run waits for allows.
func (r *reasons) limit(ctx context.Context, name string) error {
	r.say("A step of it waits for the limit %s.", r.quote(name))
	l, ok, err := r.findLimit(ctx, name)
	switch {
	case err != nil:
		return err
	case ok:
		r.say("Waiting for it: %s. Under way: %d. It allows %s.", plural(l.Waiting, "step"), l.Running, r.limitText(l))
	default:
		set := r.deed(Deed{Verb: SetLimit, Name: name})
		if set != "" {
			set = ": " + set + " sets it"
		}
		r.say("Nobody has set that limit%s.", set)
	}
	return nil
}

// limitsPage is how many limits are read at once.
const limitsPage = 500

// findLimit returns the limit of that name, if there is one.
func (r *reasons) findLimit(ctx context.Context, name string) (admin.LimitInfo, bool, error) {
	after := ""
	for {
		page, err := admin.New(r.c).Limits(ctx, after, limitsPage)
		if err != nil {
			return admin.LimitInfo{}, false, err
		}
		for _, l := range page {
			if l.Name == name {
				return l, true, nil
			}
		}
		if len(page) < limitsPage {
			return admin.LimitInfo{}, false, nil
		}
		after = page[len(page)-1].Name
	}
}

// goesOn says what ends the pause of the run itself.
func (r *reasons) goesOn() string {
	if deed := r.deed(Deed{Verb: UnpauseRun}); deed != "" {
		return ": " + deed + " lets it go on"
	}
	return ""
}

// Holds reports whether the run is among those that the pause stops.
func Holds(p admin.Pause, run kagzi.RunInfo) bool {
	switch {
	case p.All:
		return true
	case p.Group != "":
		return p.Group == string(run.Group)
	case p.Key != "":
		return p.Queue == run.Queue && p.Key == string(run.Key)
	}
	return (p.Queue == "" || p.Queue == run.Queue) && (p.Workflow == "" || p.Workflow == run.Workflow)
}

// paused says who paused what, and why.
func (r *reasons) paused(ctx context.Context) error {
	run := r.run
	if !run.PausedAt.IsZero() {
		r.say("It was paused %s%s%s.", r.Moment(run.PausedAt), r.by("PAUSED"), r.goesOn())
		return nil
	}
	r.say("It is held up by the %s.", r.Text(run.WaitingOn))
	return r.pauses(ctx)
}

// pauses names the pauses that the run is subject to.
func (r *reasons) pauses(ctx context.Context) error {
	pauses, err := admin.New(r.c).Pauses(ctx)
	if err != nil {
		return err
	}
	for _, p := range pauses {
		if !Holds(p, r.run) || r.exempt(p) {
			continue
		}
		ends := ""
		if deed := r.deed(Deed{Verb: Unpause, Target: p.Target}); deed != "" {
			ends = ": " + deed + " ends that"
		}
		some := ""
		if p.Percent > 0 {
			some = fmt.Sprintf(", but for %d %% of its runs", p.Percent)
		}
		r.say("Paused: %s%s, %s%s%s.", r.Text(Target(p.Target)), some, r.Moment(p.Since),
			r.byText(p.Actor, p.Reason), ends)
	}
	return nil
}

// exempt reports whether an operator has exempted the run from a pause. That is possible unless the pause is of its key
// or group.
func (r *reasons) exempt(p admin.Pause) bool {
	return p.Key == "" && p.Group == "" &&
		slices.ContainsFunc(r.log, func(e admin.LogEntry) bool { return e.Event == "UNPAUSED" && e.At.After(p.Since) })
}
