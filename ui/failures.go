package ui

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A failuresPage groups failed runs by their causes.
type failuresPage struct {
	admin *admin.Client
	names *runNames
}

// pages are that page.
func (p *failuresPage) pages() []web.Page {
	return []web.Page{{
		Path: "/failures", Action: asks(View, OnOverview), Template: "failures",
		Live: []string{"groups"}, Look: p.failures,
	}}
}

// A failureList is the view model of that page.
type failureList struct {
	Spans  []failureSpan
	Span   failureSpan // that is shown
	Groups []failureGroup
	Beyond int // groups besides these
	Runs   int
	More   bool // runs than these
	Names  []string
	Some   bool // a workflow is chosen
}

// A failureSpan is a time over which failures are shown.
type failureSpan struct {
	Name    string // as in the address
	Title   string
	Within  time.Duration
	To      string // path
	Current bool
}

// failureSpans are the times in the order of their links. The second one is shown at first.
var failureSpans = []failureSpan{
	{Name: "1h", Title: "1 hour", Within: time.Hour},
	{Name: "24h", Title: "24 hours", Within: day},
	{Name: "7d", Title: "7 days", Within: 7 * day},
	{Name: "30d", Title: "30 days", Within: 30 * day},
}

// A failureGroup is a row of the page.
type failureGroup struct {
	admin.FailureGroup
	To   string // path of its runs
	Each time.Duration
}

func (p *failuresPage) failures(ctx context.Context, q web.Query) (any, error) {
	var v failureList
	chosen := q.Get("within")
	for i, s := range failureSpans {
		s.To = q.With("within", s.Name)
		if s.Current = chosen == s.Name || chosen == "" && i == 1; s.Current {
			v.Span = s
		}
		v.Spans = append(v.Spans, s)
	}
	if v.Span.Name == "" {
		return nil, web.BadRequest("There is no time %q here: use 1h, 24h, 7d or 30d.", chosen)
	}
	groups, err := p.admin.Failures(ctx, v.Span.Within)
	if err != nil {
		return nil, err
	}
	workflow := q.Get("workflow")
	v.Some = workflow != ""
	for _, g := range groups {
		if !slices.Contains(v.Names, g.Workflow) {
			v.Names = append(v.Names, g.Workflow)
		}
		if v.Some && g.Workflow != workflow {
			continue
		}
		v.Runs, v.More = v.Runs+g.Runs, v.More || g.More
		each := v.Span.Within / time.Duration(len(g.Trend))
		v.Groups = append(v.Groups, failureGroup{g, runsOf(g, v.Span.Name), each})
	}
	slices.Sort(v.Names)
	v.Groups, v.Beyond = bounded(v.Groups, mostRows)
	var newest []kagzi.RunID
	for _, g := range v.Groups {
		newest = append(newest, g.Newest)
	}
	return v, p.names.learn(ctx, newest...)
}

// runsOf returns the path of the group's runs, as far as the fields of the list tell them from others.
func runsOf(g admin.FailureGroup, within string) string {
	return web.Query{URL: "/runs"}.With("status", "failed", "workflow", g.Workflow, "kind", string(g.Kind),
		"error", literal(g), "ended-since", within)
}

// mostLiteral bounds the text that an address asks for.
const mostLiteral = 120

// literal returns the longest part of the group's text that has no number, as the errors of its runs have it, with the
// step if that stands before it. It is empty if there is none.
func literal(g admin.FailureGroup) string {
	part := ""
	for i, text := range strings.Split(g.Text, "#") {
		if text = firstBytes(mostLiteral, strings.TrimSpace(text)); i == 0 && g.Step != "" && text != "" {
			if ofStep := fmt.Sprintf("step %q: %s", g.Step, text); strings.Contains(g.Error, ofStep) {
				return ofStep
			}
		}
		if len(text) > len(part) && strings.Contains(g.Error, text) {
			part = text
		}
	}
	if part == "" && g.Step != "" && strings.Contains(g.Error, fmt.Sprintf("step %q: ", g.Step)) {
		return fmt.Sprintf("step %q:", g.Step)
	}
	return part
}

// firstBytes returns the beginning of a text, up to n bytes of whole characters.
func firstBytes(n int, s string) string {
	if len(s) <= n {
		return s
	}
	return strings.TrimSpace(strings.ToValidUTF8(s[:n], ""))
}

// Span says how long each bar of the trend is.
func (g failureGroup) Span() string { return duration(g.Each) }

const (
	trendHeight = 22 // of the drawing
	trendBar    = 4  // the width of a bar, with the gap after it
)

// Drawing is the trend as bars, the oldest on the left. A part without failures is a low bar.
func (g failureGroup) Drawing() template.HTML {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="trend" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%s">`,
		trendBar*len(g.Trend), trendHeight, g.inWords())
	most := max(1, slices.Max(g.Trend))
	for i, n := range g.Trend {
		height, class := 1, "none"
		if n > 0 {
			height, class = max(3, trendHeight*n/most), "some"
		}
		fmt.Fprintf(&out, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`, class, trendBar*i,
			trendHeight-height, trendBar-1, height)
	}
	out.WriteString(`</svg>`)
	return template.HTML(out.String()) // digits
}

// inWords says what the trend shows.
func (g failureGroup) inWords() string {
	most := slices.Max(g.Trend)
	return fmt.Sprintf("trend in steps of %s: %s at most, %s in the last one", g.Span(), plural(most, "run"),
		count(g.Trend[len(g.Trend)-1]))
}
