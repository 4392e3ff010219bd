package ui

import "slices"

// BulkActions returns the buttons of a list of runs. Of a list of one status these are the changes that apply to it.
func (s *screen) BulkActions() (a actions) {
	listed := statuses[s.Query.Get("status")]
	for _, v := range bulkVerbs() {
		if len(listed) > 0 && !slices.ContainsFunc(listed, v.appliesTo) || !s.May(v.verb, OnRun) {
			continue
		}
		a.add(v.verb == Cancel || v.verb == Resume || v.verb == Restart, action{
			Title: title(v.verb) + "…", To: "/runs/bulk/" + string(v.verb), Danger: v.danger,
			For: v.statuses(),
		})
	}
	return a.safeFirst()
}
