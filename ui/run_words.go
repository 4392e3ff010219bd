package ui

import (
	"fmt"
	"html/template"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/explain"
)

// words are how the page of a run names things in the sentences of package explain: as HTML.
func (p *runPage) words() explain.Words {
	return explain.Words{
		Text:    template.HTMLEscapeString,
		Moment:  func(t time.Time) string { return string(timeHTML(t)) }, // with how long ago that is beside it
		Ago:     func(t time.Time) string { return string(agoHTML(t)) },
		Elapsed: func(since time.Time) string { return string(clockHTML(since)) },
		Took:    duration,
		Run:     func(id kagzi.RunID) string { return p.names.link(p.links, id) },
		Named:   func(id string) string { return p.names.namedLink(p.links, id) },
		Worker:  func(id string) string { return p.anchor(p.links.To("/workers/", id), short(kagzi.RunID(id))) },
		Deed:    p.deed,
	}
}

// anchor returns a link as HTML.
func (p *runPage) anchor(to, text string) string {
	return fmt.Sprintf(`<a href="%s">%s</a>`, template.HTMLEscapeString(to), template.HTMLEscapeString(text))
}

// deed names the button or the page where something is done.
func (p *runPage) deed(deed explain.Deed) string {
	switch deed.Verb {
	case explain.Resume:
		return "<b>Resume</b>"
	case explain.Restart:
		return "<b>Restart</b>"
	case explain.Signal:
		return "<b>Signal</b>"
	case explain.RedeliverMessage:
		return p.anchor(p.links.To("/runs/"+string(deed.Run.ID)+"/redeliver-message?", "message", deed.Name),
			"Redeliver")
	case explain.DropMessage:
		return p.anchor(p.links.To("/runs/"+string(deed.Run.ID)+"/drop-message?", "message", deed.Name), "Drop")
	case explain.Resolve:
		return p.anchor(p.links.To("/runs/"+string(deed.Run.ID)+"/resolve?", "step", deed.Name), "Resolve")
	case explain.UnpauseRun:
		return "<b>Unpause</b>"
	case explain.Unpause:
		return "the page " + p.anchor(p.links.To("/limits"), "Limits")
	case explain.Limits:
		return "The tables of the page " + p.anchor(p.links.To("/limits"), "Limits")
	case explain.Workers:
		return "the page " + p.anchor(p.links.To("/workers?", "queue", deed.Name), "Workers")
	case explain.Previous:
		return p.anchor(p.links.To("/runs?", "schedule", deed.Name, "status", "active"), "its active runs")
	case explain.Drain:
		return "drain it on " + p.anchor(p.links.To("/workers/", deed.Name), "its page") + "."
	}
	return "" // the page shows the children
}
