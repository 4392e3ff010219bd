package ui

import (
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
)

// BulkActions returns the buttons of a list of runs. Of a list of one status these are the changes that apply to it.
func (s *screen) BulkActions() (a actions) {
	listed := deeds.Statuses[s.Query.Get("status")]
	for _, d := range bulkVerbs() {
		verb, names := Verb(d.Verb), []string{}
		for _, status := range d.Many.To {
			names = append(names, strings.ToLower(string(status)))
		}
		applies := func(s kagzi.Status) bool { return slices.Contains(d.Many.To, s) }
		if len(listed) > 0 && !slices.ContainsFunc(listed, applies) || !s.May(verb, OnRun) {
			continue
		}
		a.add(verb == Cancel || verb == Resume || verb == Restart, action{
			Title: title(verb) + "…", To: "/runs/bulk/" + d.Verb, Danger: d.Danger, For: strings.Join(names, " "),
		})
	}
	return a.safeFirst()
}
