package ui

import (
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A screen is the data of a page's template: that of all pages, and the buttons of things.
type screen struct{ *web.Screen }

// onScreen returns the data of a template.
func onScreen(s *web.Screen) any { return &screen{s} }

// May reports whether to show the button of a change.
func (s *screen) May(verb Verb, object Object, id ...string) bool {
	return s.allows(asks(verb, object, id...))
}

// allows reports whether to show a button that asks for the action.
func (s *screen) allows(a web.Action) bool { return s.Screen.May(a) }

// usualChanges are the changes that OnlyReads asks for on a page without buttons.
var usualChanges = []web.Action{
	asks(Cancel, OnRun), asks(Pause, OnLimit), asks(Set, OnQueue), asks(Trigger, OnSchedule), asks(Drain, OnWorker),
}
