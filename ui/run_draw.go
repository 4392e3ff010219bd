package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// A drawing makes the SVG of a timeline's rows: percents across, pixels down, so that texts keep their size on every
// width. It is hidden from screen readers: the table of steps says the same.
type drawing struct {
	scale gantt.Scale
	now   time.Time
	of    kagzi.Status // of the run
	apart bool         // compensations have an axis of their own: here they are the moments of their registration
}

const (
	rowHeight = 26
	barTop    = 7
	barHeight = 12
	// mostDrawn is how many attempts of a step, and changes of a run, are drawn one by one.
	mostDrawn = 200
)

// A canvas is the SVG of a row.
type canvas struct {
	strings.Builder
}

func newCanvas(class string, height int) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg class="%s" width="100%%" height="%d" aria-hidden="true">`, class, height)
	return c
}

func (c *canvas) html() template.HTML { return template.HTML(c.String() + "</svg>") }

// rect draws a bar. title is shown by the browser when the mouse is over it.
func (c *canvas) rect(class string, x0, x1 float64, y, h int, title string) {
	fill := ""
	if strings.HasPrefix(class, "wait") {
		fill = ` fill="url(#hatch)"`
	}
	w := max(x1-x0, 0.3)
	if x0+w > 100 {
		x0 = 100 - w
	}
	fmt.Fprintf(c, `<rect class="%s" x="%.3f%%" y="%d" width="%.3f%%" height="%d" rx="2.5"%s><title>%s</title></rect>`,
		class, x0, y, w, h, fill, template.HTMLEscapeString(title))
}

// dot draws a moment.
func (c *canvas) dot(class string, x float64, title string) {
	fmt.Fprintf(c, `<circle class="%s" cx="%.3f%%" cy="%d" r="4.5"><title>%s</title></circle>`, class,
		min(max(x, 0.5), 99.5), rowHeight/2, template.HTMLEscapeString(title))
}

// text writes beside a bar that reaches from x0 to x1, where there is room.
func (c *canvas) text(x0, x1 float64, text string) {
	switch {
	case text == "":
	case x1 < 88:
		fmt.Fprintf(c, `<text class="took" x="%.3f%%" dx="6" y="17">%s</text>`, x1, template.HTMLEscapeString(text))
	case x0 > 12:
		fmt.Fprintf(c, `<text class="took end" x="%.3f%%" dx="-6" y="17">%s</text>`, x0,
			template.HTMLEscapeString(text))
	}
}

// place returns where a span is on the axis, and whether it is there.
func (d drawing) place(s gantt.Span) (x0, x1 float64, ok bool) {
	w := d.scale.Window()
	if s.From.IsZero() || s.To.Before(w.From) || s.From.After(w.To) {
		return 0, 0, false
	}
	return d.scale.X(s.From), d.scale.X(s.To), true
}

// step draws the attempts of a step, and the time between them.
func (d drawing) step(s *gantt.Step) template.HTML {
	c := newCanvas("track", rowHeight)
	if len(s.Attempts) > mostDrawn {
		for _, p := range gantt.Pieces([]*gantt.Step{s}, d.scale, d.now) {
			c.rect("seg many "+strings.ToLower(string(p.Status)), p.X0, p.X1, barTop, barHeight,
				fmt.Sprintf("%s: %s", s.Name, plural(len(s.Attempts), "attempt")))
		}
		return c.html()
	}
	first, last, any := 100.0, 0.0, false
	var before gantt.Span
	for _, a := range s.Attempts {
		span := gantt.Of(a, d.now)
		if !before.From.IsZero() && span.From.After(before.To) {
			if x0, x1, ok := d.place(gantt.Span{From: before.To, To: span.From}); ok && x1-x0 > 0.3 {
				c.rect("between", x0, x1, rowHeight/2, 1,
					fmt.Sprintf("%s before attempt %d", duration(span.From.Sub(before.To)), a.Attempt))
			}
		}
		if x0, x1, ok := d.place(span); ok {
			d.attempt(c, a, x0, x1)
			first, last, any = min(first, x0), max(last, x1), true
		}
		before = span
	}
	if any {
		c.text(first, max(last, first+0.3), d.beside(s))
	}
	return c.html()
}

// beside says how long the last attempt took.
func (d drawing) beside(s *gantt.Step) string {
	a := s.Last()
	switch {
	case explain.NotNeeded(d.of, *a):
		return "not needed"
	case d.apart && gantt.Undoes(*a):
		return ""
	case instant(*a) || !a.EndedAt.After(a.StartedAt):
		return ""
	case a.Status == kagzi.StatusFailed:
		return "failed after " + duration(a.EndedAt.Sub(a.StartedAt))
	}
	return duration(a.EndedAt.Sub(a.StartedAt))
}

// instant reports whether the attempt is a moment.
func instant(a kagzi.StepAttempt) bool {
	switch a.Type {
	case "METADATA", "VALUE", "CHECKPOINT", "PUBLISH", "PEEK", "RESERVE", "BRANCH":
		return true
	case "MARKER":
		return strings.Contains(a.Step, "#")
	}
	return false
}

// attempt draws one attempt.
func (d drawing) attempt(c *canvas, a kagzi.StepAttempt, x0, x1 float64) {
	title := d.title(a)
	state := strings.ToLower(string(a.Status))
	switch {
	case d.apart && gantt.Undoes(a):
		c.dot("mark", x0, a.Step+": registered\nat "+clockText(a.StartedAt))
	case instant(a):
		c.dot("mark "+state, x0, title)
	case a.Type == "MARKER":
		c.rect("brace "+state, x0, x1, rowHeight/2-2, 4, title)
	case gantt.Waits(a):
		c.rect("wait "+state, x0, x1, barTop, barHeight, title)
		if a.Type == "SIGNAL" && a.Status == kagzi.StatusCompleted {
			c.dot("message", d.scale.X(a.EndedAt), "its message came "+clockText(a.EndedAt))
		}
	case a.Type == "CHILD_WORKFLOW":
		c.rect("seg child "+state, x0, x1, barTop, barHeight, title)
	case a.Type == "COMPENSATION":
		c.rect("seg undo "+state, x0, x1, barTop, barHeight, title)
	default:
		c.rect("seg "+state, x0, x1, barTop, barHeight, title)
	}
}

// title says what an attempt was, for the mouse.
func (d drawing) title(a kagzi.StepAttempt) string {
	text := fmt.Sprintf("%s: %s", a.Step, stepType(a))
	if a.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", a.Attempt)
	}
	switch {
	case explain.NotNeeded(d.of, a):
		text += ", not needed"
	case !a.EndedAt.IsZero() && a.EndedAt.After(a.StartedAt):
		text += ", " + strings.ToLower(string(a.Status)) + " after " + duration(a.EndedAt.Sub(a.StartedAt))
	default:
		text += ", " + strings.ToLower(string(a.Status))
	}
	if a.Kind != "" {
		text += ": " + string(a.Kind)
	}
	if !a.StartedAt.IsZero() {
		text += "\nfrom " + clockText(a.StartedAt)
	}
	if a.Status == kagzi.StatusRunning && !a.WakeAt.IsZero() {
		text += "\nuntil " + clockText(a.WakeAt)
	}
	return text
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// group draws a folded group: when its steps were under way, and which of them failed.
func (d drawing) group(row gantt.Row) template.HTML {
	c := newCanvas("track", rowHeight)
	steps := row.Steps
	pieces := gantt.Pieces(steps, d.scale, d.now)
	for _, p := range pieces {
		c.rect("seg many "+strings.ToLower(string(p.Status)), p.X0, p.X1, barTop, barHeight,
			fmt.Sprintf("%s: %s", row.Label, plural(len(steps), "step")))
	}
	return c.html()
}

// brace draws an open group: from its first step to its last one.
func (d drawing) brace(row gantt.Row) template.HTML {
	c := newCanvas("track", rowHeight)
	var all gantt.Span
	for _, s := range row.Steps {
		for _, a := range s.Attempts {
			span := gantt.Of(a, d.now)
			if span.From.IsZero() {
				continue
			}
			if all.From.IsZero() || span.From.Before(all.From) {
				all.From = span.From
			}
			if span.To.After(all.To) {
				all.To = span.To
			}
		}
	}
	if x0, x1, ok := d.place(all); ok {
		c.rect("brace "+strings.ToLower(string(row.Status())), x0, x1, rowHeight/2-2, 4,
			fmt.Sprintf("%s: %s", row.Label, plural(len(row.Steps), "step")))
		c.text(x0, x1, duration(all.Len()))
	}
	return c.html()
}

// undone draws a compensation: the time in which its run was under way.
func (d drawing) undone(a kagzi.StepAttempt) template.HTML {
	c := newCanvas("track", rowHeight)
	span := gantt.Undoing(a, d.now)
	x0, x1, ok := d.place(span)
	if !ok {
		return c.html()
	}
	title := fmt.Sprintf("%s, %s\nfrom %s", a.Step, strings.ToLower(string(a.Status)), clockText(span.From))
	c.rect("seg "+strings.ToLower(string(a.Status)), x0, x1, barTop, barHeight, title)
	took := duration(span.Len())
	if a.Status == kagzi.StatusFailed {
		took = "failed after " + took
	}
	c.text(x0, max(x1, x0+0.3), took)
	return c.html()
}

// run draws the lane of the run: how long it waited for its first worker, how long it lived, and what people did.
func (d drawing) run(r kagzi.RunInfo, log []admin.LogEntry) template.HTML {
	c := newCanvas("track", rowHeight)
	end := r.EndedAt
	if end.IsZero() {
		end = d.now
	}
	begun := r.StartedAt
	if begun.IsZero() {
		begun = end
	}
	if x0, x1, ok := d.place(gantt.Span{From: r.CreatedAt, To: begun}); ok && x1-x0 > 0.1 {
		c.rect("queued", x0, x1, barTop+3, barHeight-6, "it waited "+duration(begun.Sub(r.CreatedAt))+" for a worker")
	}
	if x0, x1, ok := d.place(gantt.Span{From: begun, To: end}); ok && !r.StartedAt.IsZero() {
		c.rect("life "+strings.ToLower(string(r.Status)), x0, x1, barTop+3, barHeight-6, "the run, "+
			strings.ToLower(string(r.Status)))
	}
	for _, e := range log {
		if x, _, ok := d.place(gantt.Span{From: e.At, To: e.At}); ok {
			title := strings.ToLower(e.Event) + " " + clockText(e.At)
			if e.Actor != "" {
				title += " by " + e.Actor
			}
			c.dot("event", x, title)
		}
	}
	return c.html()
}

// messages draws when messages came.
func (d drawing) messages(all []message) template.HTML {
	if len(all) == 0 {
		return ""
	}
	c := newCanvas("track", rowHeight)
	for _, m := range all {
		if x, _, ok := d.place(gantt.Span{From: m.ReceivedAt, To: m.ReceivedAt}); ok {
			class, read := "message", "read by "+m.ReadBy
			if m.ReadBy == "" {
				class, read = "message unread", "unread"
			}
			c.dot(class, x, fmt.Sprintf("%s, %s\n%s", m.Signal, read, clockText(m.ReceivedAt)))
		}
	}
	return c.html()
}

// axis draws the labels of times, which the script shows in the viewer's zone, and the lengths of folded gaps.
func (d drawing) axis() template.HTML {
	c := newCanvas("axis", 34)
	day := ""
	for _, t := range d.scale.Ticks() {
		class := "tick"
		if t.Minor || d.crowded(t.X) {
			class += " minor"
		}
		fmt.Fprintf(c, `<text class="%s" x="%.3f%%" dx="4" y="28" data-at="%s" data-every="%d">%s</text>`, class, t.X,
			t.At.UTC().Format(time.RFC3339Nano), t.Every.Microseconds(), tickText(t))
		if date := t.At.UTC().Format("2 Jan 2006"); date != day {
			day = date
			fmt.Fprintf(c, `<text class="%s date" x="%.3f%%" dx="4" y="12" data-at="%s" data-every="date">%s</text>`,
				class, t.X, t.At.UTC().Format(time.RFC3339Nano), date)
		}
	}
	for _, g := range d.scale {
		if g.Folded {
			fmt.Fprintf(c, `<text class="gap" x="%.3f%%" y="28">%s</text>`, (g.X0+g.X1)/2, gapText(g.Len(), g.X1-g.X0))
		}
	}
	return c.html()
}

// crowded reports whether a label at x would run into the end of the axis or a fold's label on a narrow page.
func (d drawing) crowded(x float64) bool {
	const room = 24
	if x > 100-room {
		return true
	}
	for _, g := range d.scale {
		if g.Folded && x < g.X0 && x > g.X0-room {
			return true
		}
	}
	return false
}

// gapText returns the length of a folded gap, as exactly as there is room.
func gapText(d time.Duration, room float64) string {
	text := duration(d)
	if words := strings.Fields(text); len(words) > 2 && room < 8 {
		text = words[0] + " " + words[1]
	}
	if room < 3 {
		return ""
	}
	return text
}

// tickText returns a tick's time, as exactly as its distance to the next one asks for.
func tickText(t gantt.Tick) string {
	layout := "15:04:05"
	switch {
	case t.Every >= day:
		layout = "2 Jan"
	case t.Every >= time.Minute:
		layout = "15:04"
	case t.Every >= time.Second || t.Every == 0:
	case t.Every >= time.Millisecond:
		layout = "15:04:05.000"
	case t.Every >= 100*time.Microsecond: // seconds of the minute: there is no room for more
		layout = "05.0000 s"
	default:
		layout = "05.000000 s"
	}
	return t.At.UTC().Format(layout)
}

// grid draws the lines of ticks and the folds behind all rows.
func (d drawing) grid() template.HTML {
	c := &canvas{}
	c.WriteString(`<svg class="grid" width="100%" height="100%" aria-hidden="true">`)
	for _, g := range d.scale {
		if g.Folded {
			fmt.Fprintf(c, `<rect class="fold" x="%.3f%%" y="0" width="%.3f%%" height="100%%" fill="url(#fold)"/>`,
				g.X0, g.X1-g.X0)
		}
	}
	for _, t := range d.scale.Ticks() {
		fmt.Fprintf(c, `<line x1="%.3f%%" x2="%.3f%%" y1="0" y2="100%%"/>`, t.X, t.X)
	}
	return c.html()
}
