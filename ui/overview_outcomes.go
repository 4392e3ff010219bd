package ui

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// An outcomeSpan says how long a bar of the chart is, and how many there are.
type outcomeSpan struct {
	Name   string // as the query has it; empty for the usual one
	Title  string
	Unit   string // of a bar
	length time.Duration
	bars   int
}

// outcomeSpans are those that the overview has, the usual one first.
var outcomeSpans = []outcomeSpan{{"", "14 days", "day", day, 14}, {"24h", "24 h", "hour", time.Hour, 24}}

// An outcomes is the view model of the chart of what became of the runs that were started.
type outcomes struct {
	admin.Outcomes
	Span   outcomeSpan
	Spans  []preset // links to all of them
	Sum    admin.Outcome
	Rows   []outcomeRow // the newest first
	SVG    template.HTML
	Lacks  bool // some of the bars may lack runs
	Capped bool // some numbers may be larger
}

// An outcomeRow is a bar in the table.
type outcomeRow struct {
	admin.Outcome
	Label string
	Lacks bool // runs that retention has deleted
	Last  bool // its time is not over
}

// outcomes counts the runs by the time of their start.
func (p *overviewPage) outcomes(ctx context.Context, q web.Query) (any, error) {
	span, err := outcomeSpanOf(q)
	if err != nil {
		return nil, err
	}
	read, err := p.admin.Outcomes(ctx, span.length, span.bars)
	if err != nil {
		return nil, err
	}
	v := outcomes{Outcomes: read, Span: span}
	for _, s := range outcomeSpans {
		v.Spans = append(v.Spans, preset{s.Title, q.With("over", s.Name) + "#outcomes", s.Name == span.Name})
	}
	for _, o := range read.Intervals {
		row := outcomeRow{o, span.label(o.From), o.From.Before(read.KeptSince), o.Until.After(read.At)}
		v.Lacks, v.Capped = v.Lacks || row.Lacks, v.Capped || o.Started().More
		v.Rows = append([]outcomeRow{row}, v.Rows...)
		v.Sum = admin.Outcome{
			Completed: v.Sum.Completed.Plus(o.Completed), Failed: v.Sum.Failed.Plus(o.Failed),
			Cancelled: v.Sum.Cancelled.Plus(o.Cancelled), Active: v.Sum.Active.Plus(o.Active),
		}
	}
	v.SVG = v.draw(p.links)
	return v, nil
}

// outcomeSpanOf returns the span that the query asks for.
func outcomeSpanOf(q web.Query) (outcomeSpan, error) {
	for _, s := range outcomeSpans {
		if s.Name == q.Get("over") {
			return s, nil
		}
	}
	return outcomeSpan{}, web.BadRequest("There is no chart over %q: write 24h, or leave it out.", q.Get("over"))
}

// label names a bar, in UTC.
func (s outcomeSpan) label(from time.Time) string {
	if s.length < day && from.Hour() != 0 {
		return from.UTC().Format("15:04")
	}
	return from.UTC().Format("2 Jan")
}

// Path returns the path to the list of the row's runs, of a status or of all.
func (r outcomeRow) Path(status string) string {
	values := url.Values{"since": {r.From.UTC().Format(time.RFC3339)}}
	if !r.Last {
		values.Set("until", r.Until.UTC().Format(time.RFC3339))
	}
	if status != "" {
		values.Set("status", status)
	}
	return "/runs?" + values.Encode()
}

const (
	outcomeTop    = 20  // above the highest bar, for its number
	outcomeHeight = 130 // of the highest bar
	outcomeFoot   = 20  // for the labels
	leastOutcome  = 2   // of a part that is not zero, so that one failure among thousands can be seen
)

// draw draws the bars: percents across, pixels down. It is hidden from screen readers: the table says the same.
func (v outcomes) draw(links web.Links) template.HTML {
	most := 4
	for _, r := range v.Rows {
		most = max(most, r.Started().Runs)
	}
	c := newCanvas("outcomes", outcomeTop+outcomeHeight+outcomeFoot)
	fmt.Fprintf(c, `<line x1="0" x2="100%%" y1="%d" y2="%[1]d"/>`, outcomeTop+outcomeHeight)
	slot := 100 / float64(len(v.Rows))
	for i, r := range slices.Backward(v.Rows) {
		n := len(v.Rows) - 1 - i
		v.bar(c, links, r, float64(n)*slot, slot, most)
		class := "label"
		if every := (len(v.Rows) + 3) / 4; i%every != 0 {
			class += " minor" // a narrow page has no room for it
		}
		fmt.Fprintf(c, `<text class="%s" x="%.3f%%" y="%d">%s</text>`, class, (float64(n)+0.5)*slot,
			outcomeTop+outcomeHeight+15, r.Label)
	}
	return c.html()
}

// bar draws one of them.
func (v outcomes) bar(c *canvas, links web.Links, r outcomeRow, x, slot float64, most int) {
	title := fmt.Sprintf("%s: %s", r.Label, r.says())
	fmt.Fprintf(c, `<a href="%s" tabindex="-1"><title>%s</title>`, template.HTMLEscapeString(links.To(r.Path(""))),
		template.HTMLEscapeString(title))
	if r.Lacks {
		fmt.Fprintf(c, `<rect class="lacks" x="%.3f%%" y="%d" width="%.3f%%" height="%d" fill="url(#lacks)"/>`, x,
			outcomeTop, slot, outcomeHeight)
	}
	fmt.Fprintf(c, `<rect class="whole" x="%.3f%%" y="0" width="%.3f%%" height="%d"/>`, x, slot,
		outcomeTop+outcomeHeight)
	y := outcomeTop + outcomeHeight
	for _, part := range []struct {
		class string
		runs  int
	}{
		{"completed", r.Completed.Runs},
		{"active", r.Active.Runs},
		{"cancelled", r.Cancelled.Runs},
		{"failed", r.Failed.Runs},
	} {
		if part.runs == 0 {
			continue
		}
		h := max(leastOutcome, part.runs*outcomeHeight/most)
		h = min(h, y) // many small parts are higher than they are large
		y -= h
		fmt.Fprintf(c, `<rect class="%s" x="%.3f%%" y="%d" width="%.3f%%" height="%d"/>`, part.class, x+slot*0.18, y,
			slot*0.64, h)
	}
	if started := r.Started(); started.Runs > 0 {
		fmt.Fprintf(c, `<text class="sum" x="%.3f%%" y="%d">%s</text>`, x+slot/2, max(y-5, 11), shortCount(started))
	}
	c.WriteString("</a>")
}

// says says in words what the bar shows.
func (r outcomeRow) says() string {
	text := fmt.Sprintf("%s started, %s completed, %s failed, %s cancelled, %s active", tallyText(r.Started()),
		tallyText(r.Completed), tallyText(r.Failed), tallyText(r.Cancelled), tallyText(r.Active))
	if r.Lacks {
		text += "; retention may have deleted others"
	}
	return text
}

// tallyText returns a number of runs: "17", or "20,000+" if there may be more.
func tallyText(t admin.Tally) string { return atLeast(t.Runs, t.More) }

// shortCount is tallyText in few letters: "950", "1.2k", "20k+".
func shortCount(t admin.Tally) string {
	text := fmt.Sprint(t.Runs)
	switch {
	case t.Runs >= 10_000:
		text = fmt.Sprintf("%dk", t.Runs/1000)
	case t.Runs >= 1000:
		text = fmt.Sprintf("%d.%dk", t.Runs/1000, t.Runs/100%10)
	}
	if t.More {
		text += "+"
	}
	return text
}
