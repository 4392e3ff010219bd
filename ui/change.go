package ui

import "net/url"

// A changeForm is the view model of the template "change": a page or dialog that says what a change does, and asks for its reason. Most changes need no other
// page:
//
//	page{path: "/schedules/{name}/pause", action: Action{Verb: Pause, Object: OnSchedule}, template: "change", look: d.pauseSchedule}
//	change{path: "/schedules/{name}/pause", action: Action{Verb: Pause, Object: OnSchedule}, do: …}
//
// with a link to it: <a class="button" data-dialog href="{{link "/schedules/" .Name "/pause"}}">Pause…</a>.
type changeForm struct {
	Title  string // "Pause daily-report"
	Text   string // what happens, and what does not
	To     string // where the form is sent: a path behind Config.Path, such as pathTo("/schedules/", name, "/pause")
	Button string // "Pause"
	Danger bool   // it cannot be undone
	Back   string // path of the page that cancelling leads to
	Fields []field
	Wrong  string // what is wrong with what was sent last
}

// A field is a field of a changeForm, besides the reason.
type field struct {
	Name, Label, Value, Hint string
	Sort                     string // "text", which is the default, "area", "check", "select" or "hidden"
	Options                  []string
	Required                 bool
}

// pathTo returns a path behind Config.Path, for what the function link takes as its only argument, and for answer.to: pathTo("/schedules/", name, "/pause").
// The arguments are as for link.
func pathTo(text string, rest ...string) string {
	for i, part := range rest {
		if i%2 == 0 {
			part = url.PathEscape(part)
		}
		text += part
	}
	return text
}
