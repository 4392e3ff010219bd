package ui

import (
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
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
	id := string(r.ID)
	add := func(to *[]action, verb Verb, text string) {
		if s.May(verb, OnRun, id) {
			*to = append(*to, action{
				Title: text + "…", To: "/runs/" + id + "/" + string(verb),
				Danger: verb == Terminate || verb == Delete,
			})
		}
	}
	paused := !r.PausedAt.IsZero() || strings.Contains(r.WaitingOn, "pause")
	switch {
	case r.WaitingOn == "deletion":
	case r.Status == kagzi.StatusCompleted:
		add(&a.First, Restart, "Restart")
		add(&a.First, Fork, "Fork from a step")
	case r.Status.Ended():
		add(&a.First, Resume, "Resume")
		add(&a.First, Restart, "Restart")
		add(&a.More, Fork, "Fork from a step")
	default:
		if paused {
			add(&a.First, Unpause, "Unpause")
		}
		if len(waitsFor(r)) > 0 {
			add(&a.First, Signal, "Signal")
		}
		if r.CancelRequestedAt.IsZero() {
			add(&a.First, Cancel, "Cancel")
		}
		if r.PausedAt.IsZero() {
			add(&a.More, Pause, "Pause")
		}
		if len(waitsFor(r)) == 0 {
			add(&a.More, Signal, "Signal")
		}
		if r.Status != kagzi.StatusRunning {
			add(&a.More, Update, "Update")
		}
		add(&a.More, Terminate, "Terminate")
	}
	if r.Status.Ended() {
		add(&a.More, Delete, "Delete")
	}
	return a.likely(r.Status != kagzi.StatusCompleted)
}

// ForkOf returns the button that forks a run from a step; nil if that is not possible.
func (s *screen) ForkOf(r kagzi.RunInfo, step kagzi.StepAttempt) *action {
	if !r.Status.Ended() || !forkable(step) || !s.May(Fork, OnRun, string(r.ID)) {
		return nil
	}
	return &action{Title: "Fork from here…", To: "/runs/" + string(r.ID) + "/fork?" +
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

// forkable reports whether a run can be forked from the step: Kagzi's own records cannot be named.
func forkable(s kagzi.StepAttempt) bool {
	own := strings.HasPrefix(s.Step, "#") || strings.Contains(s.Step, "/#")
	return !own && s.Type != "COMPENSATION" && s.Type != "MARKER" && s.Type != "BRANCH"
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

func (o offers) add(to *[]action, verb Verb, text string) {
	if o.s.May(verb, o.object, o.id) {
		*to = append(*to, action{Title: text, To: o.base + string(verb), Danger: verb == Delete ||
			verb == ForceOffline})
	}
}

// ScheduleActions returns the buttons of a schedule.
func (s *screen) ScheduleActions(i admin.ScheduleInfo) (a actions) {
	o := offers{s, OnSchedule, i.Name, at("/schedules/", i.Name) + "/"}
	if i.Paused {
		o.add(&a.First, Resume, "Resume…")
	}
	o.add(&a.First, Trigger, "Trigger…")
	if !i.Paused {
		o.add(&a.First, Pause, "Pause…")
	}
	o.add(&a.More, Backfill, "Backfill…")
	o.add(&a.More, Delete, "Delete…")
	return a.likely(i.Paused)
}

// WorkerActions returns the buttons of a worker.
func (s *screen) WorkerActions(w admin.WorkerInfo) (a actions) {
	o := offers{s, OnWorker, w.ID, "/workers/" + w.ID + "/"}
	if w.Status == "ONLINE" {
		o.add(&a.First, Drain, "Drain…")
	}
	if w.Status != "OFFLINE" {
		o.add(&a.More, ForceOffline, "Force offline…")
	}
	return a.likely(false)
}

// ConsumerActions returns the buttons of a consumer.
func (s *screen) ConsumerActions(c admin.ConsumerInfo) (a actions) {
	o := offers{s, OnConsumer, c.Name, at("/consumers/", c.Name) + "/"}
	o.add(&a.First, Trigger, "Trigger…")
	o.add(&a.More, Skip, "Skip an event…")
	if c.Group != "" && c.Pause == (admin.Pause{}) {
		s.pause(&a.More, Pause, admin.Target{Group: string(c.Group)})
	}
	o.add(&a.More, Delete, "Delete…")
	return a.likely(false)
}

// QueueActions returns the buttons of a queue, which may have limits or not.
func (s *screen) QueueActions(queue string) (a actions) {
	name := url.Values{"queue": {queue}}.Encode()
	if s.May(Set, OnQueue, queue) {
		a.First = append(a.First, action{Title: "Set limits…", To: "/limits/queue?" + name})
		a.More = append(a.More, action{Title: "Set limits of a key…", To: "/limits/key?" + name})
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
func (s *screen) LimitActions(name string) (a actions) {
	query := "?" + url.Values{"limit": {name}}.Encode()
	if s.May(Set, OnLimit, name) {
		a.First = append(a.First, action{Title: "Set…", To: "/limits/step" + query})
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
