package ui

import (
	"html/template"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/health"
)

// shapes are the drawings of statuses in a square of 12: so colour is not the only difference.
var shapes = map[string]template.HTML{
	"pending": `<circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5" ` +
		`stroke-dasharray="2 1.5"/>`,
	"running": `<circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5"/>` +
		`<path d="M4.8 3.9v4.2L8.2 6z" fill="currentColor"/>`,
	"sleeping": `<circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5"/>` +
		`<path d="M6 3.5V6l1.8 1.1" fill="none" stroke="currentColor" stroke-width="1.3" stroke-linecap="round"/>`,
	"completed": `<circle cx="6" cy="6" r="5.25" fill="currentColor"/>` +
		`<path d="M3.6 6.2l1.7 1.7 3.2-3.6" fill="none" stroke="var(--surface)" stroke-width="1.4" ` +
		`stroke-linecap="round" stroke-linejoin="round"/>`,
	"failed": `<path d="M3.7.75h4.6l2.95 2.95v4.6L8.3 11.25H3.7L.75 8.3V3.7z" fill="currentColor"/>` +
		`<path d="M4.2 4.2l3.6 3.6m0-3.6L4.2 7.8" stroke="var(--surface)" stroke-width="1.4" stroke-linecap="round"/>`,
	"cancelled": `<circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5"/>` +
		`<path d="M2.9 9.1l6.2-6.2" stroke="currentColor" stroke-width="1.5"/>`,
	"warning": `<path d="M6 .9l5.4 9.9H.6z" fill="currentColor"/>` +
		`<path d="M6 4.3v3m0 1.5v.2" stroke="var(--surface)" stroke-width="1.3" stroke-linecap="round"/>`,
}

// badge returns a text with its shape, in the tone of a status: one of the keys of shapes.
func badge(tone, text string) template.HTML {
	return `<span class="badge ` + template.HTML(template.HTMLEscapeString(tone)) + `">` +
		`<svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">` + shapes[tone] + `</svg>` +
		template.HTML(template.HTMLEscapeString(text)) + `</span>`
}

// statusHTML returns the badge of a run's or step's status.
func statusHTML(s kagzi.Status) template.HTML {
	name := strings.ToLower(string(s))
	switch {
	case name == "":
		return ""
	case s == kagzi.StatusInDoubt:
		return badge("warning", "In doubt")
	}
	return badge(name, strings.ToUpper(name[:1])+name[1:])
}

// runStatusHTML returns the badge of a run's status. A run whose worker is dead or silent is RUNNING in the table only.
func runStatusHTML(r kagzi.RunInfo) template.HTML {
	if !r.SilentSince.IsZero() {
		return badge("warning", "Worker silent")
	}
	return statusHTML(r.Status)
}

// healthHTML returns the badge of a check.
func healthHTML(s health.Status) template.HTML {
	tone := map[health.Status]string{
		health.Healthy: "completed", health.Degraded: "warning",
		health.Unhealthy: "failed",
	}[s]
	return badge(tone, strings.ToUpper(string(s[:1]))+string(s[1:]))
}

// icons are drawings in a square of 16, by name.
var icons = map[string]template.HTML{
	"overview":  `<path d="M2 13.5h12M3.5 11V8m3 3V4m3 7V6.5m3 4.5V2.5"/>`,
	"runs":      `<path d="M5.5 4h8.5M5.5 8h8.5M5.5 12h8.5M2 4h.5M2 8h.5M2 12h.5"/>`,
	"failures":  `<path d="M8 2l6.5 11.5h-13z"/><path d="M8 6.5v3.2m0 1.8v.1"/>`,
	"schedules": `<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/>`,
	"topics":    `<path d="M2 5.5c2-2 4-2 6 0s4 2 6 0M2 10.5c2-2 4-2 6 0s4 2 6 0"/>`,
	"limits":    `<path d="M2.5 12a6 6 0 1 1 11 0M8 9.5L10.5 6"/>`,
	"workers": `<rect x="2.5" y="2.5" width="11" height="4.5" rx="1"/>` +
		`<rect x="2.5" y="9" width="11" height="4.5" rx="1"/><path d="M5 4.75h.1M5 11.25h.1"/>`,
	"audit": `<path d="M4 2h6l2.5 2.5V14H4zM6 6h4M6 8.5h4.5M6 11h3"/>`,
	"stranded": `<circle cx="8" cy="8" r="6"/><circle cx="8" cy="8" r="2.2"/>` +
		`<path d="M3.8 3.8l2.6 2.6m3.2 3.2l2.6 2.6m0-8.4L9.6 6.4M6.4 9.6l-2.6 2.6"/>`,
	"doctor": `<path d="M1.5 8.5h3l1.5-4 3 7 1.8-4.5.7 1.5h3"/>`,
	"search": `<circle cx="7" cy="7" r="4.5"/><path d="M10.5 10.5L14 14"/>`,
	"theme":  `<circle cx="8" cy="8" r="6"/><path d="M8 2v12a6 6 0 0 0 0-12z" fill="currentColor"/>`,
	"menu":   `<path d="M2 4h12M2 8h12M2 12h12"/>`,
	"close":  `<path d="M3.5 3.5l9 9m0-9l-9 9"/>`,
	"next":   `<path d="M6 3l5 5-5 5"/>`,
	"left":   `<path d="M10 3L5 8l5 5"/>`,
	"open":   `<path d="M3 6l5 5 5-5"/>`,
	"plus":   `<path d="M8 3v10M3 8h10"/>`,
	"minus":  `<path d="M3 8h10"/>`,
	"copy":   `<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 5.5v-3h-8v8h3"/>`,
	"filter": `<path d="M2 3.5h12L9.5 8.5v4l-3 1v-5z"/>`,
	"fork": `<circle cx="4" cy="3.5" r="1.7"/><circle cx="12" cy="3.5" r="1.7"/>` +
		`<circle cx="8" cy="12.5" r="1.7"/><path d="M4 5.2v.8a2 2 0 0 0 2 2h4a2 2 0 0 0 2-2v-.8M8 8v2.8"/>`,
	"child": `<path d="M4 2.5v6a2 2 0 0 0 2 2h6M9.5 8l2.5 2.5L9.5 13"/>`,
}

// icon returns a drawing that says nothing to a screen reader: the text beside it does.
func icon(name string) template.HTML {
	return `<svg class="icon" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" ` +
		`stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">` +
		icons[name] + `</svg>`
}
