package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// waiting says what a pending or sleeping run waits for.
func (r *reasons) waiting(ctx context.Context) error {
	on := r.run.WaitingOn
	if on == nil {
		on = waits.List{{}}
	}
	for _, w := range on {
		if err := r.waitingFor(ctx, w); err != nil {
			return err
		}
	}
	if err := r.stranded(ctx); err != nil {
		return err
	}
	if run := r.run; !run.PausedAt.IsZero() && !slices.ContainsFunc(on, waits.Wait.IsPause) {
		r.say("It is also paused since %s%s%s.", r.Moment(run.PausedAt), r.by("PAUSED"),
			after(": it does not go on before ", r.deed(Deed{Verb: UnpauseRun})))
	}
	return nil
}

// waitingFor says one thing that the run waits for.
func (r *reasons) waitingFor(ctx context.Context, w waits.Wait) error {
	switch w.Kind {
	case waits.Signal:
		return r.signal(ctx, w.Name, r.until(w))
	case waits.Child:
		return r.child(ctx, w.Name)
	case waits.Limit:
		return r.limit(ctx, w.Name)
	case waits.Worker:
		r.say("Its worker drained or lost the database, and gave it back.")
		return r.unclaimed(ctx)
	case waits.Recovery:
		r.say("It was under way when %s, so it may be what kills them: it is tried after growing pauses, beside few "+
			"others like it, and quarantined in the end.", workersDied(r.run.Recoveries))
		return r.unclaimed(ctx)
	case "":
		return r.unclaimed(ctx)
	}
	if w.IsPause() {
		return r.paused(ctx)
	}
	r.waitsFor(w)
	return nil
}

// waitsFor is waitingFor without a look-up.
func (r *reasons) waitsFor(w waits.Wait) {
	switch w.Kind {
	case waits.Undecoded: // told with the signal that it waits for
	case waits.Timer:
		r.say("It sleeps in %s%s.", r.quote(w.Name), r.until(w))
	case waits.Timeout:
		r.say("The timeout of its branches %s comes%s, unless they end before.", r.quote(w.Name),
			strings.Replace(r.until(w), " until", "", 1))
	case waits.Compensation:
		r.compensation(w)
	case waits.Children:
		r.say("It has failed, was cancelled or rolls back, and waits for its children to end before its " +
			"compensations run.")
	case waits.Retry:
		r.retry(w.Name)
	case waits.Doubt:
		r.doubt(w.Name)
	case waits.PreviousRun:
		r.say("It waits until the previous run of its schedule %s has ended%s.", r.Text(r.run.Schedule),
			after(": ", r.deed(Deed{Verb: Previous, Name: r.run.Schedule})))
	case waits.Key, waits.Group, waits.Queue:
		r.say("It is due, and waits for a slot: %s.%s", slotOf(w, r.Words), r.limitsShow())
	case waits.KeyRate, waits.GroupRate, waits.QueueRate:
		r.say("It is due, and the %s lets no further run start now.%s", r.Text(w.String()), r.limitsShow())
	case waits.History:
		r.say("Its history could not be read. A worker tries again %s.", r.Moment(r.run.AvailableAt))
	default: // "2 more", or what a newer library says
		r.say("It waits for %s.", r.Text(w.String()))
	}
}

// doubt says why the step is in doubt that the run waits for.
func (r *reasons) doubt(step string) {
	why := ""
	for _, s := range r.steps {
		if s.Step == step && s.Status == kagzi.StatusInDoubt {
			why = s.Error
		}
	}
	r.say("Its step %s was called, and what the call has done is not known%s. The step is called at most once, so ask "+
		"the service that it called, and say what has happened%s.", r.quote(step), after(": ", r.Text(OneLine(why))),
		after(": ", r.deed(Deed{Verb: Resolve, Name: step})))
}

// compensation says how it is with the compensation that the run waits for.
func (r *reasons) compensation(w waits.Wait) {
	if w.Name != "" {
		state := "is under way"
		if w.Refused != "" {
			state = "does not go on"
		}
		r.say("It has failed, was cancelled or rolls back, and its compensation %s %s.", r.Text(w.Name), state)
	}
	if w.Refused == "" {
		return
	}
	why := ""
	for _, s := range r.steps {
		if s.Type == "COMPENSATION" && s.Child == "" {
			why = cmp.Or(why, s.Error)
		}
	}
	r.say("The database refuses its %s%s. It is tried again %s: remove the cause.", r.Text(w.Refused),
		after(": ", r.Text(OneLine(why))), r.Moment(r.run.AvailableAt))
}

// slotOf says whose slot a run waits for, and which run has it.
func slotOf(w waits.Wait, words Words) string {
	behind := w.Behind
	if w.Behind = ""; behind == "" {
		return words.Text(w.String())
	}
	return words.Text(w.String()) + ", behind " + words.Named(behind)
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

// until returns until when the run waits.
func (r *reasons) until(w waits.Wait) string {
	if w.Until.IsZero() {
		return ""
	}
	return " until " + r.Moment(w.Until)
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
	} else if run.WaitingOn.Has(waits.Recovery) {
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
	live, _, err = admin.New(r.c).Workers.List(ctx, admin.WorkerFilter{
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
	own, err := admin.New(r.c).Messages.List(ctx, r.run.ID, admin.MessageFilter{
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
	unread, err := admin.New(r.c).Messages.List(ctx, r.run.ID, admin.MessageFilter{Unread: true, Limit: 100})
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
	case ok && !l.Unset:
		r.say("Waiting for it: %s. Slots in use: %d. It allows %s.", plural(l.Waiting, "step"), l.Running,
			r.limitText(l))
	default:
		r.say("That limit was neither declared nor set, so no step of it begins: declare it in the code " +
			"(admin.Limits.Declare), or correct the name there.")
	}
	return nil
}

// limitsPage is how many limits are read at once.
const limitsPage = 500

// findLimit returns the limit of that name, if there is one.
func (r *reasons) findLimit(ctx context.Context, name string) (admin.LimitInfo, bool, error) {
	after := ""
	for {
		page, err := admin.New(r.c).Limits.List(ctx, after, limitsPage)
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
	r.say("It is held up by the %s.", r.Text(run.WaitingOn.String()))
	return r.pauses(ctx)
}

// pauses names the pauses that the run is subject to.
func (r *reasons) pauses(ctx context.Context) error {
	pauses, err := admin.New(r.c).Pauses.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range pauses {
		if !Holds(p, r.run) {
			continue
		}
		ends := ""
		if deed := r.deed(Deed{Verb: Unpause, Target: p.Target}); deed != "" {
			ends = ": " + deed + " ends that"
		}
		r.say("Paused: %s, %s%s%s.", r.Text(Target(p.Target)), r.Moment(p.Since),
			r.byText(p.Actor, p.Reason), ends)
	}
	return nil
}
