package alerts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// A state is what a watch knows after a look: the input of its next epoch.
type state struct {
	Troubles map[string]trouble `json:"troubles,omitempty"` // by the ID of their alerts, without the namespace
	// RunsSince is when the failures of runs were first looked at: those before it do not count.
	RunsSince time.Time `json:"runs_since,omitzero"`
	After     int64     `json:"after,omitempty"` // the position of the last event that was read
}

// A trouble is something that is bad, or was and is not closed yet.
type trouble struct {
	Check  string        `json:"check"`
	Status health.Status `json:"status"`
	Of     string        `json:"of,omitempty"` // the workflow and kind whose runs fail
	Detail string        `json:"detail,omitempty"`
	Since  time.Time     `json:"since"`            // when it was first seen
	Bad    time.Time     `json:"bad"`              // when it was last seen
	Well   time.Time     `json:"well,omitzero"`    // since when it is well; zero: it is not
	Opened time.Time     `json:"opened,omitzero"`  // zero: its alert is not open yet
	Failed int           `json:"failed,omitempty"` // runs that have failed so since it opened
}

// A state is the input of a run, and what a look finds is the result of a step, so both have bounds.
const (
	mostTroubles = 500   // others wait until some of these are over
	mostChanges  = 100   // alerts that one look sends; the next one sends the others
	mostDetail   = 1_000 // bytes
)

// A look is what a watch sees at once.
type look struct {
	At     time.Time
	Checks []health.Check // that are bad, one for each name
	Failed []failed
	After  int64 // the position of the last event that was read
}

// A failed counts the runs of a workflow that failed with a kind since the last look.
type failed struct {
	Workflow string
	Kind     kind.Kind
	Runs     int
	Last     string // the ID of the last one
}

// of returns the workflow and kind as one text, which may be part of an ID.
func (f failed) of() string {
	workflow := f.Workflow
	if strings.Contains(workflow, ": ") {
		workflow = strconv.Quote(workflow)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(workflow+": "+string(f.Kind), "?"))
}

// bad returns the checks of a report that are bad and that keep accepts. Those of one name become one, with the worst
// status.
func bad(report health.Report, keep func(name string) bool) (out []health.Check) {
	const most = 10
	found := map[string]int{} // where in out
	more := map[string]int{}
	for _, c := range report.Checks {
		if c.Status == health.Healthy || !keep(c.Name) {
			continue
		}
		i, ok := found[c.Name]
		switch {
		case !ok:
			found[c.Name] = len(out)
			out = append(out, c)
			continue
		case strings.Count(out[i].Detail, "\n") < most-1:
			out[i].Detail += "\n" + c.Detail
		default:
			more[c.Name]++
		}
		if c.Status.Worse(out[i].Status) {
			out[i].Status = c.Status
		}
	}
	for name, n := range more {
		out[found[name]].Detail += fmt.Sprintf("\nand %d more", n)
	}
	return out
}

// learn returns the state after a look, and the alerts that it opens and closes, in order of their IDs.
func (s state) learn(l look, cfg Config) (next state, changed []Alert) {
	next = state{Troubles: maps.Clone(s.Troubles), RunsSince: s.RunsSince, After: max(s.After, l.After)}
	if cfg.Runs && next.RunsSince.IsZero() {
		next.RunsSince = l.At
	}
	if next.Troubles == nil {
		next.Troubles = map[string]trouble{}
	}
	next.see(l, max(cfg.For+2*cfg.Every, time.Minute))
	for _, id := range slices.Sorted(maps.Keys(next.Troubles)) {
		if len(changed) == mostChanges {
			break
		}
		t := next.Troubles[id]
		wait := cfg.For
		if t.Of != "" {
			wait = cfg.Quiet
		}
		switch {
		case t.Well.IsZero() && t.Opened.IsZero() && (t.Of != "" || l.At.Sub(t.Since) >= cfg.For):
			t.Opened = l.At
			next.Troubles[id] = t
			changed = append(changed, t.alert(id, false, l.At))
		case t.Well.IsZero():
		case t.Opened.IsZero(): // it was bad for a moment
			delete(next.Troubles, id)
		case l.At.Sub(t.Well) >= wait:
			delete(next.Troubles, id)
			changed = append(changed, t.alert(id, true, l.At))
		}
	}
	return next, changed
}

// see notes which troubles the look has seen, and which it has not. One that was not seen for longer than gap, because
// nothing looked, begins anew.
func (s *state) see(l look, gap time.Duration) {
	seen := map[string]bool{}
	note := func(id string, now trouble) {
		seen[id] = true
		t, ok := s.Troubles[id]
		switch {
		case !ok && len(s.Troubles) == mostTroubles:
			return
		case !ok:
			t = trouble{Check: now.Check, Status: now.Status, Of: now.Of, Since: l.At}
		case t.Opened.IsZero() && (l.At.Sub(t.Bad) > gap || t.Since.After(l.At)):
			t.Since = l.At
		}
		t.Bad, t.Well, t.Failed = l.At, time.Time{}, t.Failed+now.Failed
		t.Detail = text.Sanitize(now.Detail, mostDetail)
		s.Troubles[id] = t
	}
	for _, c := range l.Checks {
		for _, status := range []health.Status{health.Degraded, health.Unhealthy} {
			_, known := s.Troubles[c.Name+"/"+string(status)]
			if c.Status == status || known && !status.Worse(c.Status) { // one that begins as Unhealthy is one alert
				note(c.Name+"/"+string(status), trouble{Check: c.Name, Status: status, Detail: c.Detail})
			}
		}
	}
	for _, f := range l.Failed {
		note("runs/"+f.of(), trouble{
			Check: "runs", Status: health.Degraded, Of: f.of(), Failed: f.Runs,
			Detail: "The last of them is " + text.Quote(f.Last) + ".",
		})
	}
	for id, t := range s.Troubles {
		if !seen[id] && t.Well.IsZero() {
			t.Well = t.Bad
			if t.Of == "" {
				t.Well = l.At
			}
			s.Troubles[id] = t
		}
	}
}

// alert returns the alert that opens or closes at a time. Its namespace is added where it is sent.
func (t trouble) alert(id string, closed bool, at time.Time) Alert {
	a := Alert{
		ID: id, Check: t.Check, Status: t.Status, Closed: closed, Detail: t.Detail, Since: t.Since, At: at,
	}
	state := "opened"
	if closed {
		state = "closed"
	}
	a.Key = id + "/" + t.Opened.UTC().Format(time.RFC3339Nano) + "/" + state
	switch {
	case t.Of == "" && closed:
		a.Title = "Check " + t.Check + ": no longer " + string(t.Status)
	case t.Of == "":
		a.Title = "Check " + t.Check + ": " + string(t.Status)
	case closed:
		a.Title = "Runs no longer fail: " + t.Of
		a.Detail = strconv.Itoa(t.Failed) + " had failed. " + t.Detail
	default:
		a.Title = "Runs fail: " + t.Of
	}
	return a
}

// failures counts the events of runs that failed.
type failures struct {
	by    map[string]*failed
	order []string
}

func (f *failures) add(e topic.RunEvent) {
	if e.Status != kagzi.StatusFailed {
		return
	}
	one := failed{Workflow: e.Workflow, Kind: e.Kind}
	if f.by == nil {
		f.by = map[string]*failed{}
	}
	found, ok := f.by[one.of()]
	if !ok {
		found = &one
		f.by[one.of()] = found
		f.order = append(f.order, one.of())
	}
	found.Runs++
	found.Last = cmp.Or(string(e.ID), string(e.Run))
}

// all returns what was counted, the first failure first.
func (f *failures) all() (out []failed) {
	for _, of := range f.order {
		out = append(out, *f.by[of])
	}
	return out
}
