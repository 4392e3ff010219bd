package ui

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/gantt"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// rowsPerPage is how many rows the timeline has at most, and stepsPerPage the table of steps.
const (
	rowsPerPage  = 200
	stepsPerPage = 100
)

// A choice is what the page's query selects of a run's steps.
type choice struct {
	q        web.Query
	all      int           // how many steps the run has
	steps    []*gantt.Step // those that match
	name     string
	state    string
	from, to time.Time // the window; zero for all
	toScale  bool
	row      int       // the first row of the timeline
	step     int       // the first row of the table
	undone   time.Time // when the run's compensations began; zero if none has
}

// choose reads the query.
func choose(q web.Query, steps []*gantt.Step) (choice, error) {
	c := choice{
		q: q, all: len(steps), name: q.Get("name"), state: strings.ToLower(q.Get("state")),
		toScale: q.Get("scale") == "true", undone: gantt.UndoneFrom(steps),
	}
	if _, ok := deeds.Statuses[c.state]; !ok && c.state != "" {
		return c, web.BadRequest("There is no status %q: use %s.", c.state, strings.Join(statusNames, ", "))
	}
	for field, to := range map[string]*time.Time{"from": &c.from, "to": &c.to} {
		var err error
		if *to, err = past(q.Get(field), time.Now()); err != nil {
			return c, err
		}
	}
	for field, to := range map[string]*int{"row": &c.row, "step": &c.step} {
		if n, err := strconv.Atoi(q.Get(field)); err == nil && n > 0 {
			*to = n
		}
	}
	for _, s := range steps {
		if c.matches(s) {
			c.steps = append(c.steps, s)
		}
	}
	return c, nil
}

// filtered reports whether some steps may be left out.
func (c choice) filtered() bool { return c.name != "" || c.state != "" }

// matches reports whether a step has the name or a part of it, and an attempt of the status.
func (c choice) matches(s *gantt.Step) bool {
	if !strings.Contains(strings.ToLower(s.Name), strings.ToLower(c.name)) {
		return false
	}
	return c.state == "" || slices.ContainsFunc(s.Attempts, func(a kagzi.StepAttempt) bool {
		return slices.Contains(deeds.Statuses[c.state], a.Status)
	})
}

// edit returns the path of the page with other values.
func (c choice) edit(change func(url.Values)) string {
	values := maps.Clone(c.q.Values)
	if values == nil {
		values = url.Values{}
	}
	for name, v := range values {
		values[name] = slices.Clone(v)
	}
	change(values)
	at, _, _ := strings.Cut(c.q.URL, "?")
	return strings.TrimSuffix(at+"?"+values.Encode(), "?")
}

// toggle returns the path of the page with a group open or folded.
func (c choice) toggle(id string, open bool) string {
	return c.edit(func(v url.Values) {
		for _, name := range []string{"open", "fold"} {
			if v[name] = slices.DeleteFunc(v[name], func(s string) bool { return s == id }); len(v[name]) == 0 {
				delete(v, name)
			}
		}
		if open {
			v.Add("open", id)
		} else {
			v.Add("fold", id)
		}
		v.Del("row")
	})
}

// A timeline is the view model of the chart of steps.
type timeline struct {
	Rows    []timelineRow
	Run     template.HTML // the lane of the run itself
	Came    template.HTML // the lane of its messages; empty if it has none
	Workers *workersLane  // the lane of executions; nil if none is known
	Undo    *undoing      // the compensations; nil if none has begun
	Axis    template.HTML
	Grid    template.HTML
	windows
	Pager       pager
	Name, State string
	Steps       int // that the run has
	Match       int // that match the filter
	Inside      int // of those, in the window
}

// windows are the part of the time that a timeline shows, and the ways to others.
type windows struct {
	Scale       string // the segments as JSON, for dragging: [[x0, x1, from, to], …] in percents and milliseconds
	Base        string // the path without a window, for dragging
	Shown       gantt.Span
	Folded      bool
	Zoomed      bool
	In, Out     string // paths of other windows; empty if there is none
	Left, Right string
	All         string
	ToScale     string // the path with the other kind of axis; empty if that is the same
	IsToScale   bool
}

// A timelineRow is a row as it is drawn.
type timelineRow struct {
	gantt.Row
	HTMLID string
	Status kagzi.Status
	Type   string
	Toggle string // path; empty for a step
	Link   string // path to the step in the table
	Note   string
	SVG    template.HTML
}

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

// A pager leads through the rows of a list.
type pager struct {
	First, Last, All int
	Prev, Next       string // paths; empty if there is none
	End              string // the last page
}

// page returns the part of n rows that begins at the row that the query has under name.
func (c choice) page(name string, at, n, size int) (lo, hi int, p pager) {
	lo = min(at, max(n-1, 0)) / size * size
	hi = min(lo+size, n)
	p = pager{First: min(lo+1, n), Last: hi, All: n}
	to := func(row int) string {
		return c.edit(func(v url.Values) {
			if v.Set(name, strconv.Itoa(row)); row == 0 {
				v.Del(name)
			}
		})
	}
	if lo > 0 {
		p.Prev = to(max(0, lo-size))
	}
	if hi < n {
		p.Next, p.End = to(hi), to((n-1)/size*size)
	}
	return lo, hi, p
}

// lanes are what the timeline shows besides the steps.
type lanes struct {
	run      kagzi.RunInfo
	log      []admin.LogEntry
	messages []message
	workers  *workersLane
}

// timeline lays out the steps of the choice.
func (c choice) timeline(v lanes, now time.Time) timeline {
	t := timeline{Name: c.name, State: c.state, Steps: c.all, Match: len(c.steps)}
	t.IsToScale = c.toScale
	whole := c.whole(v.run, now)
	window := whole
	if !c.from.IsZero() || !c.to.IsZero() {
		window = gantt.Span{From: c.from, To: c.to}
		if c.to.IsZero() {
			window.To = whole.To
		}
		window = gantt.Clamp(gantt.Span{From: window.From, To: window.To}, whole)
		t.Zoomed = window != whole
	}
	busy := gantt.Busy(c.steps, now)
	for _, at := range []time.Time{v.run.CreatedAt, v.run.StartedAt, v.run.EndedAt} {
		if !at.IsZero() {
			busy = append(busy, gantt.Span{From: at, To: at})
		}
	}
	scale, linear := gantt.NewScale(window, busy), gantt.Linear(window)
	undone, _ := c.undoing(v.run)
	t.Folded = scale.Folded() || undone.Folded()
	if t.Folded {
		t.ToScale = c.edit(func(v url.Values) {
			if v.Set("scale", "true"); c.toScale {
				v.Del("scale")
			}
		})
	}
	if c.toScale {
		scale = linear
	}
	t.Shown = window
	c.controls(&t, scale, whole)
	open, fold := set(c.q.Values["open"]), set(c.q.Values["fold"])
	shown := c.steps
	if t.Zoomed {
		shown = slices.DeleteFunc(slices.Clone(c.steps), func(s *gantt.Step) bool {
			return !gantt.Within(s, window, now)
		})
	}
	t.Inside = len(shown)
	rows := gantt.Rows(shown, gantt.Options{Open: open, Fold: fold, All: c.filtered()})
	lo, hi, p := c.page("row", c.row, len(rows), rowsPerPage)
	t.Pager = p
	draw := drawing{scale, now, v.run.Status, !c.undone.IsZero()}
	for _, row := range rows[lo:hi] {
		t.Rows = append(t.Rows, c.line(row, draw, now))
	}
	t.Run, t.Came = draw.run(v.run, v.log), draw.messages(v.messages)
	if len(v.workers.All) > 0 {
		v.workers.SVG = draw.workers(v.workers)
		t.Workers = v.workers
	}
	t.Axis, t.Grid = draw.axis(), draw.grid()
	t.Undo = c.undo(v)
	return t
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

// whole returns the time from the run's start to its end, or now. A fork has steps that are older than itself. If
// compensations have begun, it ends there: they have an axis of their own.
func (c choice) whole(run kagzi.RunInfo, now time.Time) gantt.Span {
	w := gantt.Span{From: run.CreatedAt, To: now}
	if !c.undone.IsZero() {
		w.To = c.undone
	}
	for _, s := range c.steps {
		for _, a := range s.Attempts {
			span := gantt.Of(a, now)
			if gantt.Undoes(a) && !c.undone.IsZero() {
				continue
			}
			if span.From.IsZero() {
				continue
			}
			if span.From.Before(w.From) {
				w.From = span.From
			}
			if span.To.After(w.To) {
				w.To = span.To
			}
		}
	}
	if w.Len() < time.Millisecond {
		w.To = w.From.Add(time.Millisecond)
	}
	return w
}

// controls fills the links to other windows.
func (c choice) controls(t *timeline, s gantt.Scale, whole gantt.Span) {
	to := func(w gantt.Span) string {
		return c.edit(func(v url.Values) {
			v.Del("from")
			v.Del("to")
			if w != whole {
				v.Set("from", w.From.UTC().Format(time.RFC3339Nano))
				v.Set("to", w.To.UTC().Format(time.RFC3339Nano))
			}
		})
	}
	window := s.Window()
	if in := s.Zoom(25, 75, whole); in != window {
		t.In = to(in)
	}
	if t.Zoomed {
		t.All, t.Out = to(whole), to(s.Zoom(-50, 150, whole))
		if left := s.Zoom(-50, 50, whole); left.From.Before(window.From) {
			t.Left = to(gantt.Clamp(gantt.Span{
				From: window.From.Add(-window.Len() / 2),
				To:   window.To.Add(-window.Len() / 2),
			}, whole))
		}
		if window.To.Before(whole.To) {
			t.Right = to(gantt.Clamp(gantt.Span{
				From: window.From.Add(window.Len() / 2),
				To:   window.To.Add(window.Len() / 2),
			}, whole))
		}
	}
	t.Base = to(whole)
	var segments [][4]float64
	for _, g := range s {
		segments = append(segments, [4]float64{g.X0, g.X1, millis(g.From), millis(g.To)})
	}
	text, _ := json.Marshal(segments) // finite numbers
	t.Scale = string(text)
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

func set(names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// line draws a row.
func (c choice) line(row gantt.Row, draw drawing, now time.Time) timelineRow {
	r := timelineRow{Row: row, HTMLID: "row-" + hash(row.ID), Status: row.Status()}
	if row.Group {
		r.Toggle = c.toggle(row.ID, !row.Open)
		r.Note = plural(len(row.Steps), "step")
		if row.Failed > 0 {
			r.Note += ", " + count(row.Failed) + " failed"
		}
		if sum := row.Took(now); sum > 0 {
			r.Note += ", " + duration(sum)
		}
	}
	if row.Step != nil {
		r.Type = stepType(*row.Step.Last())
		if gantt.Waits(*row.Step.Last()) && r.Status == kagzi.StatusRunning && !row.Group {
			r.Status = kagzi.StatusSleeping // nothing is done meanwhile
		}
		r.Link = c.stepLink(row.Step.Name)
		if n := len(row.Step.Attempts); n > 1 && !row.Group {
			r.Note = "×" + count(n)
		}
	}
	switch {
	case row.Step == nil && !row.Open:
		r.SVG = draw.group(row)
	case row.Step == nil:
		r.SVG = draw.brace(row)
	case row.Group && !row.Open:
		r.SVG = draw.group(row)
	default:
		r.SVG = draw.step(row.Step)
	}
	return r
}

// stepLink returns the path of the page with the step alone.
func (c choice) stepLink(name string) string {
	return c.edit(func(v url.Values) { v.Set("name", name); v.Del("row"); v.Del("step") }) + "#" + stepID(name)
}

// stepID returns the element's ID of a step in the table.
func stepID(name string) string { return "step-" + hash(name) }

// hash returns a short name for a text that may have any characters.
func hash(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it never fails
	return fmt.Sprintf("%x", h.Sum64())
}

// stepType returns the type of a step in words.
func stepType(a kagzi.StepAttempt) string {
	switch a.Type {
	case "FUNCTION":
		return "step"
	case "CHILD_WORKFLOW":
		return "child"
	case "MARKER":
		switch {
		case strings.Contains(a.Step, "#patched:"):
			return "patch"
		case strings.HasSuffix(a.Step, "/#cancel"):
			return "cancel of a child"
		}
		return "branches"
	case "PEEK", "RESERVE":
		return "events"
	}
	return strings.ToLower(a.Type)
}
