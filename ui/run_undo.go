package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// An undoing is the view model of the chart of compensations. They may run hours after the steps, so their axis begins
// with them.
type undoing struct {
	Shown gantt.Span
	After string // how long after the run's start they began
	Took  string // from then until now, or until the run ended: "37 ms in all"
	Run   template.HTML
	Axis  template.HTML
	Grid  template.HTML
	Rows  []undoRow
	All   int // compensations, of which Rows has the first
}

// An undoRow is a compensation as it is drawn.
type undoRow struct {
	HTMLID string
	Name   string // of the step that it compensates
	Step   string // of its record
	Status kagzi.Status
	Link   string // path to the step in the table
	Run    kagzi.RunID
	Waits  bool // for its turn
	SVG    template.HTML
}

// undoing returns the axis of the compensations, and until when it goes; none if none has begun. While they are under
// way, that is as exact as their age asks for, and not as that of the run.
func (c choice) undoing(run kagzi.RunInfo) (axis gantt.Scale, now time.Time) {
	if c.undone.IsZero() {
		return nil, now
	}
	if now = run.EndedAt; now.IsZero() {
		now = rounded(c.undone, time.Now())
	}
	window := gantt.Span{From: c.undone, To: now}
	var busy []gantt.Span
	for _, s := range c.steps {
		for _, a := range s.Attempts {
			if span := gantt.Undoing(a, now); !span.From.IsZero() {
				busy = append(busy, span)
				if span.To.After(window.To) {
					window.To = span.To
				}
			}
		}
	}
	if !run.EndedAt.IsZero() {
		busy = append(busy, gantt.Span{From: run.EndedAt, To: run.EndedAt})
	}
	if window.Len() < time.Millisecond {
		window.To = window.From.Add(time.Millisecond)
	}
	return gantt.NewScale(window, busy), now
}

// undo lays out the compensations of the choice; nil if none has begun.
func (c choice) undo(v lanes) *undoing {
	scale, now := c.undoing(v.run)
	if scale == nil {
		return nil
	}
	if c.toScale {
		scale = gantt.Linear(scale.Window())
	}
	draw := drawing{scale: scale, now: now, of: v.run.Status}
	steps := gantt.Undo(c.steps, now)
	u := &undoing{
		Shown: scale.Window(), After: duration(max(0, c.undone.Sub(v.run.CreatedAt))), All: len(steps),
		Run: draw.run(v.run, v.log), Axis: draw.axis(), Grid: draw.grid(),
	}
	u.Took = duration(u.Shown.Len()) + " in all"
	if v.run.EndedAt.IsZero() {
		u.Took = duration(u.Shown.Len()) + " so far"
	}
	for _, s := range steps[:min(len(steps), rowsPerPage)] {
		a := s.Last()
		u.Rows = append(u.Rows, undoRow{
			HTMLID: "undo-" + hash(s.Name), Name: strings.TrimSuffix(s.Name, "#compensation"), Step: s.Name,
			Status: a.Status, Link: c.stepLink(s.Name), Run: a.Child, Waits: a.Status == kagzi.StatusPending,
			SVG: draw.undone(*a),
		})
	}
	return u
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
