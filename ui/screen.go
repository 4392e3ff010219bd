package ui

import (
	"cmp"

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

// A navItem is a link in the navigation.
type navItem struct {
	Title, Path, Icon string
	Current           bool
}

// navigation is the order of the pages.
var navigation = []navItem{
	{Title: "Overview", Path: "/", Icon: "overview"},
	{Title: "Runs", Path: "/runs", Icon: "runs"},
	{Title: "Schedules", Path: "/schedules", Icon: "schedules"},
	{Title: "Topics", Path: "/topics", Icon: "topics"},
	{Title: "Limits", Path: "/limits", Icon: "limits"},
	{Title: "Workers", Path: "/workers", Icon: "workers"},
	{Title: "Stranded", Path: "/stranded", Icon: "stranded"},
	{Title: "Audit log", Path: "/audit", Icon: "audit"},
	{Title: "Doctor", Path: "/doctor", Icon: "doctor"},
}

// sections are the first elements of paths whose pages belong to another one's item of the navigation.
var sections = map[string]string{"consumers": "topics", "queues": "limits", "groups": "limits"}

// navigate returns the navigation of a page whose path begins with the section.
func navigate(section string) (items []navItem) {
	for _, item := range navigation {
		item.Current = item.Path == "/"+cmp.Or(sections[section], section)
		items = append(items, item)
	}
	return items
}
