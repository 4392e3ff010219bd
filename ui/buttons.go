package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/ui/internal/web"
	"github.com/kagzi/kagzi/waits"
)

// An actions is the buttons of something that can be changed. A page shows them with the partial "actions":
//
//	{{template "actions" (.RunActions .V.Run)}}
//
// Changes that Authorize refuses, and those that do not apply, are not among them.
type actions struct {
	First []action // the likely ones
	More  []action // behind a fold
}

// One reports whether there is one button.
func (a actions) One() bool { return len(a.First) == 1 && len(a.More) == 0 }

// An action is a link to a form.
type action struct {
	Title  string
	To     string // path behind Config.Path
	Likely bool
	Danger bool
	For    string // of a change of many runs: the statuses that it applies to
}

// Any reports whether there is a button.
func (a actions) Any() bool { return len(a.First)+len(a.More) > 0 }

// RunActions returns the buttons of a run, as Client.Get or Client.List returned it.
func (s *screen) RunActions(r kagzi.RunInfo) (a actions) {
	o := offers{s, OnRun, string(r.ID), "/runs/" + string(r.ID) + "/"}
	paused := !r.PausedAt.IsZero()
	switch {
	case r.WaitingOn.Has(waits.Deletion):
	case r.Compensated:
		o.add(&a.First, Restart)
	case r.Status == kagzi.StatusCompleted:
		o.add(&a.First, Restart)
		o.add(&a.First, Fork, "Fork from a step")
	case r.Kind == kind.Compensation:
		o.add(&a.First, Resume)
		o.add(&a.First, Restart)
	case r.Status.Ended():
		o.add(&a.First, Resume)
		o.add(&a.First, Restart)
		o.add(&a.More, Fork, "Fork from a step")
	default:
		if paused {
			o.add(&a.First, Unpause)
		}
		if r.WaitingOn.Has(waits.Signal) {
			o.add(&a.First, Signal)
		}
		if r.CancelRequestedAt.IsZero() {
			o.add(&a.First, Cancel)
		}
		if r.PausedAt.IsZero() {
			o.add(&a.More, Pause)
		}
		if !r.WaitingOn.Has(waits.Signal) {
			o.add(&a.More, Signal)
		}
		if r.Status != kagzi.StatusRunning {
			o.add(&a.More, Update)
		}
		o.add(&a.More, Terminate)
	}
	if r.Status.Ended() {
		o.add(&a.More, Delete)
	}
	return a.likely(r.Status != kagzi.StatusCompleted)
}

// ForkOf returns the button that forks a run from a step; nil if that is not possible.
func (s *screen) ForkOf(r kagzi.RunInfo, step kagzi.StepAttempt) *action {
	compensated := r.Compensated || r.Kind == kind.Compensation
	if !r.Status.Ended() || compensated || !deeds.Forkable(step) || !s.May(Fork, OnRun, string(r.ID)) {
		return nil
	}
	return &action{Title: "Fork from here…", To: "/runs/" + string(r.ID) + "/fork?" +
		url.Values{"step": {step.Step}}.Encode()}
}

// ResolveOf returns the button that says what a step in doubt has done; nil if it is in none.
func (s *screen) ResolveOf(r kagzi.RunInfo, step kagzi.StepAttempt) *action {
	if step.Status != kagzi.StatusInDoubt || !s.May(Resolve, OnRun, string(r.ID)) {
		return nil
	}
	return &action{Title: "Resolve…", To: "/runs/" + string(r.ID) + "/resolve?" +
		url.Values{"step": {step.Step}}.Encode()}
}

// MessageActions returns the buttons of a message that was set aside.
func (s *screen) MessageActions(r kagzi.RunInfo, m admin.MessageInfo) (buttons []action) {
	if m.SetAside == "" {
		return nil
	}
	to := func(verb Verb) string {
		return "/runs/" + string(r.ID) + "/" + string(verb) + "?" + url.Values{"message": {string(m.ID)}}.Encode()
	}
	if !r.Status.Ended() && s.May(RedeliverMessage, OnRun, string(r.ID)) {
		buttons = append(buttons, action{Title: "Redeliver…", To: to(RedeliverMessage)})
	}
	if s.May(DropMessage, OnRun, string(r.ID)) {
		buttons = append(buttons, action{Title: "Drop…", To: to(DropMessage), Danger: true})
	}
	return buttons
}

// likely marks the first button, if it is the one that most people come for.
func (a actions) likely(is bool) actions {
	if len(a.First) > 0 && is && !strings.HasPrefix(a.First[0].Title, "Cancel") {
		a.First[0].Likely = true
	}
	return a
}

// An offers adds the buttons of one thing.
type offers struct {
	s      *screen
	object Object
	id     string
	base   string
}

// add adds the button of a deed; text is its title, unless that is the verb.
func (o offers) add(to *[]action, verb Verb, text ...string) {
	if o.s.May(verb, o.object, o.id) {
		*to = append(*to, action{
			Title: cmp.Or(strings.Join(text, ""), title(verb)) + "…", To: o.base + string(verb),
			Danger: deeds.Find(string(verb) + " " + string(o.object)).Danger,
		})
	}
}

// ScheduleActions returns the buttons of a schedule.
func (s *screen) ScheduleActions(i admin.ScheduleInfo) (a actions) {
	o := offers{s, OnSchedule, i.Name, at("/schedules/", i.Name) + "/"}
	if i.Paused {
		o.add(&a.First, Resume)
	}
	o.add(&a.First, Trigger)
	if !i.Paused {
		o.add(&a.First, Pause)
	}
	o.add(&a.More, Backfill)
	o.add(&a.More, Delete)
	return a.likely(i.Paused)
}

// WorkerActions returns the buttons of a worker.
func (s *screen) WorkerActions(w admin.WorkerInfo) (a actions) {
	o := offers{s, OnWorker, w.ID, "/workers/" + w.ID + "/"}
	if w.Status == "ONLINE" {
		o.add(&a.First, Drain)
	}
	if w.Status != "OFFLINE" {
		o.add(&a.More, ForceOffline, "Force offline")
	}
	return a.likely(false)
}

// ConsumerActions returns the buttons of a consumer.
func (s *screen) ConsumerActions(c admin.ConsumerInfo) (a actions) {
	o := offers{s, OnConsumer, c.Name, at("/consumers/", c.Name) + "/"}
	o.add(&a.First, Trigger)
	o.add(&a.More, Skip, "Skip an event")
	if c.Group != "" && c.Pause == (admin.Pause{}) {
		s.pause(&a.More, Pause, admin.Target{Group: string(c.Group)})
	}
	o.add(&a.More, Delete)
	return a.likely(false)
}

// QueueActions returns the buttons of a queue, which may have limits or not.
func (s *screen) QueueActions(q admin.QueueInfo) (a actions) {
	queue := q.Queue
	name := url.Values{"queue": {queue}}.Encode()
	if s.May(Set, OnQueue, queue) {
		a.First = append(a.First, action{Title: "Set limits…", To: "/limits/queue?" + name})
		a.More = append(a.More, action{Title: "Set limits of a key…", To: "/limits/key?" + name})
	}
	if q.Override != nil && s.May(Reset, OnQueue, queue) {
		a.More = append(a.More, action{Title: "Reset…", To: "/limits/queue/reset?" + name})
	}
	s.pause(&a.More, Pause, admin.Target{Queue: queue})
	if s.May(Drain, OnQueue, queue) {
		a.More = append(a.More, action{Title: "Drain its workers…", To: "/workers/drain?" + name})
	}
	return a.likely(false)
}

// KeyActions returns the buttons of a key of a queue, or of a group if queue is empty.
func (s *screen) KeyActions(queue, key string) (a actions) {
	if queue == "" {
		s.pause(&a.More, Pause, admin.Target{Group: key})
		return a.likely(false)
	}
	if s.May(Set, OnQueue, queue) {
		a.First = append(a.First, action{Title: "Set limits…", To: "/limits/key?" +
			url.Values{"queue": {queue}, "key": {key}}.Encode()})
	}
	s.pause(&a.More, Pause, admin.Target{Queue: queue, Key: key})
	return a.likely(false)
}

// LimitActions returns the buttons of a limit on steps.
func (s *screen) LimitActions(l admin.LimitInfo) (a actions) {
	name := l.Name
	query := "?" + url.Values{"limit": {name}}.Encode()
	if s.May(Set, OnLimit, name) {
		a.First = append(a.First, action{Title: "Set…", To: "/limits/step" + query})
	}
	if l.Override != nil && s.May(Reset, OnLimit, name) {
		a.More = append(a.More, action{Title: "Reset…", To: "/limits/step/reset" + query})
	}
	if s.May(Delete, OnLimit, name) {
		a.More = append(a.More, action{Title: "Delete…", To: "/limits/step/delete" + query, Danger: true})
	}
	return a.likely(false)
}

// pause adds the button that begins or ends a pause.
func (s *screen) pause(to *[]action, verb Verb, t admin.Target) {
	asked := onTarget(verb, t)
	if len(asked) == 0 {
		asked = []web.Action{asks(verb, OnLimit)}
	}
	for _, a := range asked {
		if !s.allows(a) {
			return
		}
	}
	*to = append(*to, action{Title: title(verb) + "…", To: pausePath(verb, t)})
}

// PauseActions returns the buttons of a pause.
func (s *screen) PauseActions(p admin.Pause) (a actions) {
	s.pause(&a.First, Unpause, p.Target)
	return a
}

// NewRunActions returns the buttons of the page Runs that are about no run yet. workflow may be empty.
func (s *screen) NewRunActions(workflow string) (a actions) {
	if s.May(Start, OnWorkflow, workflow) {
		to := web.Query{URL: "/start"}.With("workflow", workflow)
		a.First = append(a.First, action{Title: "Start a run…", To: to})
	}
	return a
}

// NewLimitActions returns the buttons of the page Limits: those that are about nothing that is there yet.
func (s *screen) NewLimitActions() (a actions) {
	if s.May(Pause, OnLimit) {
		a.First = append(a.First, action{Title: "Pause…", To: "/limits/pause"})
	}
	if s.May(Set, OnQueue) {
		a.First = append(a.First, action{Title: "Limit a queue…", To: "/limits/queue"})
		a.More = append(a.More, action{Title: "Limit a key…", To: "/limits/key"})
	}
	if s.May(Set, OnLimit) {
		a.More = append(a.More, action{Title: "Limit steps…", To: "/limits/step"})
	}
	return a
}

func title(v Verb) string { return strings.ToUpper(string(v[:1])) + string(v[1:]) }

// add adds a button, which is a likely one or not.
func (a *actions) add(likely bool, button action) {
	to := &a.More
	if likely {
		to = &a.First
	}
	*to = append(*to, button)
}

// safeFirst puts the buttons that cannot be undone last.
func (a actions) safeFirst() actions {
	slices.SortStableFunc(a.More, func(a, b action) int { return compareBool(a.Danger, b.Danger) })
	return a
}
