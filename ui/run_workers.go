package ui

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// A workersLane is the view model of the timeline's lane of executions by worker.
type workersLane struct {
	All     []gantt.Execution
	Workers int               // how many different ones
	names   map[string]string // of the workers that the registry knows
	link    func(string, ...any) string
	lost    int // workers that died since the last record
	SVG     template.HTML
}

const (
	// mostLookedUp is how many workers of a run are looked up in the registry.
	mostLookedUp = 12
	// namedFor is how long the name of a worker is kept: it does not change, but the registry forgets it.
	namedFor = time.Minute
)

// workersLane returns who executed the run. The newest workers have their names.
func (p *runPage) workersLane(ctx context.Context, run kagzi.RunInfo, h *history,
	now time.Time,
) (*workersLane, error) {
	l := &workersLane{
		All: gantt.Executions(run, h.attempts, now), names: map[string]string{}, link: p.links.To,
		lost: run.Recoveries,
	}
	seen := map[string]bool{}
	for i := len(l.All) - 1; i >= 0; i-- {
		id := l.All[i].Worker
		if seen[id] {
			continue
		}
		seen[id] = true
		if len(seen) > mostLookedUp {
			continue
		}
		name, err := p.workerName(ctx, id)
		if err != nil {
			return nil, err
		}
		l.names[id] = name
	}
	l.Workers = len(seen)
	return l, nil
}

// workerName returns the host and the process of a worker; nothing if the registry does not know it any more.
func (p *runPage) workerName(ctx context.Context, id string) (string, error) {
	f := p.cache.Get(ctx, "worker's name "+id, namedFor, func(ctx context.Context) (any, error) {
		w, err := p.admin.Workers.Get(ctx, id)
		switch {
		case errors.Is(err, kagzi.ErrNotFound) || err == nil && w.Hostname == "":
			return "", nil
		case err != nil:
			return nil, err
		}
		return fmt.Sprintf("%s:%d", w.Hostname, w.PID), nil
	})
	name, ok := f.View.(string)
	if !ok {
		return "", f.Err
	}
	return name, nil
}

// Name returns what people call a worker.
func (l *workersLane) Name(id string) string {
	if name := l.names[id]; name != "" {
		return name
	}
	return short(kagzi.RunID(id))
}

// Only returns the worker if there is but one; else nothing.
func (l *workersLane) Only() string {
	if l.Workers == 1 {
		return l.All[0].Worker
	}
	return ""
}

// Label says who executed the run: "host-1:4711", or "3 workers".
func (l *workersLane) Label() string {
	if id := l.Only(); id != "" {
		return l.Name(id)
	}
	return plural(l.Workers, "worker")
}

// Title says what the lane shows, and what it cannot show.
func (l *workersLane) Title() string {
	text := "executed by " + l.Label()
	if n := len(l.All); n > 1 {
		text += ", with " + plural(n-1, "takeover")
	}
	switch {
	case l.lost == 1:
		text += "; a worker died since the last record"
	case l.lost > 1:
		text += fmt.Sprintf("; %s workers died since the last record", count(l.lost))
	}
	return text
}

// Lost says in a few words that workers died.
func (l *workersLane) Lost() string {
	if l.lost == 0 {
		return ""
	}
	return count(l.lost) + " died"
}

// workers draws the lane: a bar for each execution, thick where the worker did something, and a mark where another
// worker took over.
func (d drawing) workers(l *workersLane) template.HTML {
	c := newCanvas("track", rowHeight)
	if len(l.All) > mostDrawn {
		span := gantt.Span{From: l.All[0].From, To: l.All[len(l.All)-1].To}
		if x0, x1, ok := d.place(span); ok {
			c.rect("exec", x0, x1, execTop, execHeight, plural(len(l.All), "execution")+
				": zoom in to see them one by one")
		}
		return c.html()
	}
	for i, e := range l.All {
		x0, x1, ok := d.place(e.Span)
		if !ok {
			continue
		}
		next := 100.0
		if i+1 < len(l.All) {
			next = max(x0, d.scale.X(l.All[i+1].From))
		}
		fmt.Fprintf(c, `<a href="%s" tabindex="-1">`, template.HTMLEscapeString(l.link("/workers/", e.Worker)))
		d.execution(c, l, i, x0, x1, next)
		c.WriteString("</a>")
	}
	return c.html()
}

const (
	// execTop and execHeight are where the bars of executions are: the names of the workers stand above them.
	execTop    = 15
	execHeight = 8
	// roomForName is how much of the axis the name of a worker needs at least, in percent. A name that has no room is
	// cut off.
	roomForName = 5
)

// execution draws one of them. next is where the next one begins.
func (d drawing) execution(c *canvas, l *workersLane, i int, x0, x1, next float64) {
	e := l.All[i]
	title := fmt.Sprintf("worker %s\n%s, from %s", l.Name(e.Worker), plural(e.Records, "record"), clockText(e.From))
	if e.Current {
		title += "\nit executes the run now"
	}
	class := "exec"
	if i%2 == 1 {
		class = "exec other"
	}
	c.rect(class+" thin", x0, x1, execTop+2, execHeight-4, title)
	from, to := -1.0, -1.0
	flush := func() {
		if from >= 0 {
			c.rect(class, from, to, execTop, execHeight, title)
		}
	}
	for _, w := range e.Work {
		w0, w1, ok := d.place(w)
		if !ok {
			continue
		}
		if from >= 0 && w0-to < 0.4 { // as one, so that thousands of steps are a few bars
			to = max(to, w1)
			continue
		}
		flush()
		from, to = w0, w1
	}
	flush()
	if i > 0 && e.From.After(d.scale.Window().From) {
		c.mark("takeover", x0, "taken over by "+l.Name(e.Worker)+" at the latest "+clockText(e.From))
	}
	if l.Workers > 1 && next-x0 > roomForName {
		fmt.Fprintf(c, `<svg x="%.3f%%" width="%.3f%%" height="%d"><text x="5" y="11">%s</text></svg>`, x0, next-x0,
			rowHeight, template.HTMLEscapeString(l.Name(e.Worker)))
	}
}

// mark draws a change: a line over the whole row.
func (c *canvas) mark(class string, x float64, title string) {
	fmt.Fprintf(c, `<rect class="%s" x="%.3f%%" y="1" width="2" height="%d"><title>%s</title></rect>`, class,
		min(x, 99.7), rowHeight-2, template.HTMLEscapeString(title))
}
