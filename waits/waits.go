// Package waits has what runs wait for. A program that reads [kagzi.RunInfo].WaitingOn as data imports it beside
// package kagzi:
//
//	for _, name := range info.WaitingOn.Names(waits.Signal) {
//		…
//	}
package waits

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind says what sort of thing a run waits for. docs/waiting.md explains each of them.
type Kind string

// What runs wait for, as their rows have it.
const (
	Timer        Kind = "timer"
	Timeout      Kind = "timeout" // of a group of branches
	Signal       Kind = "signal"
	Request      Kind = "request"
	Answer       Kind = "answer" // to a request, with the name of the step that has asked
	Event        Kind = "event"  // of a topic, with both names
	Child        Kind = "child"
	Retry        Kind = "retry" // with a name of a step, else of the run
	Doubt        Kind = "doubt" // about a step with kagzi.AtMostOnce, until it is known what its call has done
	Limit        Kind = "limit"
	Pause        Kind = "pause" // of the run itself
	PreviousRun  Kind = "previous run"
	Worker       Kind = "worker"
	Recovery     Kind = "recovery"
	History      Kind = "history"
	Children     Kind = "children"
	Compensation Kind = "compensation"
	Deletion     Kind = "deletion"
	More         Kind = "more" // Count further waits, which are not named; zero if they are not counted
)

// What holds up a run that is due, or that a worker executes. Only kagzi.Client.Get looks for it; Cancel without a name
// is in lists, too.
const (
	Takeover        Kind = "takeover"
	Cancel          Kind = "cancel"    // with the name of a step that is under way
	Undecoded       Kind = "undecoded" // Count messages, which were set aside
	Key             Kind = "key"       // Count of Limit running
	Group           Kind = "group"     // Count of Limit running
	Queue           Kind = "queue"     // Count of Limit running
	KeyRate         Kind = "rate of key"
	GroupRate       Kind = "rate of group"
	QueueRate       Kind = "rate of queue"
	PauseOfKey      Kind = "pause of key"
	PauseOfGroup    Kind = "pause of group"
	PauseOfWorkflow Kind = "pause of workflow"
	PauseOfQueue    Kind = "pause of queue"
	PauseOfAll      Kind = "pause of all runs"
)

// A Wait is one thing that a run waits for.
type Wait struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // of the sleep, signal, child, step, limit, key …
	// when the wait ends by itself, about; zero if no time ends it. The time of a retry is the run's AvailableAt.
	Until time.Time `json:"until,omitzero"`
	// how many: children, of which Name is the first; waits that are not named; messages; runs that hold slots
	Count  int    `json:"count,omitempty"`
	Limit  int    `json:"limit,omitempty"`  // how many slots the key, group or queue has
	Behind string `json:"behind,omitempty"` // the run that has held its slot of the key or group for longest
	// of a compensation: what the database refuses, its "start" or "end". Without a Name it is the end of the run.
	Refused string `json:"refused,omitempty"`
}

// IsPause reports whether the wait is for the end of a pause.
func (w Wait) IsPause() bool { return strings.HasPrefix(string(w.Kind), string(Pause)) }

// A List is all that a run waits for.
type List []Wait

// String names all of them: "timer cooling-off; signal approved; 4 more".
func (l List) String() string {
	texts := make([]string, len(l))
	for i, w := range l {
		texts[i] = w.String()
	}
	return strings.Join(texts, "; ")
}

// Has reports whether one of the waits is of the kind.
func (l List) Has(k Kind) bool {
	return slices.ContainsFunc(l, func(w Wait) bool { return w.Kind == k })
}

// Names returns the names of the waits of the kind.
func (l List) Names(k Kind) (names []string) {
	for _, w := range l {
		if w.Kind == k {
			names = append(names, w.Name)
		}
	}
	return names
}

// String returns the wait in words.
func (w Wait) String() string {
	switch {
	case w.Kind == More && w.Count > 0:
		return fmt.Sprintf("%d more", w.Count)
	case w.Kind == Undecoded && w.Count == 1:
		return "1 message that does not decode"
	case w.Kind == Undecoded:
		return fmt.Sprintf("%d messages that do not decode", w.Count)
	case w.Kind == Cancel && w.Name != "":
		return fmt.Sprintf("cancel (step %s under way)", w.Name)
	case w.Refused != "" && w.Name == "":
		return fmt.Sprintf("its %s is refused", w.Refused)
	}
	text := string(w.Kind)
	if w.Name != "" {
		text += " " + w.Name
	}
	if w.Kind == Child && w.Count > 1 {
		text += fmt.Sprintf(" and %d more", w.Count-1)
	}
	if w.Limit > 0 {
		text += fmt.Sprintf(" (%d of %d running)", w.Count, w.Limit)
	}
	if w.Behind != "" {
		text += ", behind " + w.Behind
	}
	if w.Refused != "" {
		text += fmt.Sprintf("; its %s is refused", w.Refused)
	}
	return text
}

// Parse returns the wait that a person means by the text of one: its kind, or its kind and name, as in "signal" and
// "signal approved".
func Parse(text string) Wait {
	if text == string(PreviousRun) {
		return Wait{Kind: PreviousRun}
	}
	k, name, _ := strings.Cut(text, " ")
	return Wait{Kind: Kind(k), Name: name}
}
