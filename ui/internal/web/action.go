package web

import (
	"fmt"
	"strings"
)

// An Action is what a request wants to do, as Access is asked. Its verb and the sort of its object are names of the
// pages.
type Action struct {
	Verb, Object string
	ID           string // which object; empty for lists
	Namespace    string // of the object; empty: that of the site
}

const (
	// View is the verb of those who only look.
	View = "view"
	// change is the verb of a change to which no route answers: who only reads should not learn that.
	change = "update"
)

// Changes reports whether the action changes something.
func (a Action) Changes() bool { return a.Verb != View }

// looks returns the action of looking at the same object.
func (a Action) looks() Action {
	a.Verb = View
	return a
}

// of returns the action for one object.
func (a Action) of(id string) Action {
	a.ID = id
	return a
}

// unknown returns the action of a request that changes something, if this one does not say what.
func (a Action) unknown() Action {
	if !a.Changes() {
		a.Verb = change
	}
	return a
}

// String returns the action in words, as in "cancel run 0198a1b2-…".
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Verb, a.Object, a.ID))
}
