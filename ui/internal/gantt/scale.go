// Package gantt lays out the history of a run: which rows there are, and where in a row something is. It draws nothing
// and does no I/O.
package gantt

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Span is the time from From to To.
type Span struct{ From, To time.Time }

// Len returns how long the span is.
func (s Span) Len() time.Duration { return s.To.Sub(s.From) }

// A Segment is a part of the axis. X0 and X1 are percents of its width.
type Segment struct {
	Span
	X0, X1 float64
	Folded bool // it has a fixed width, whatever its length
}

// A Scale maps times to percents of the axis. Its segments follow each other without gaps.
type Scale []Segment

const (
	// longShare is the share of the axis from which on a gap is worth folding.
	longShare = 0.02
	// idleShare is the share of the axis that long gaps must have together: below it the axis stays to scale.
	idleShare = 0.6
	// foldWidth is the width of a folded gap in percent, if all of them have at most mostFolded percent together.
	foldWidth  = 6
	mostFolded = 50
	// shortestFold is the shortest gap that is folded: within a second the work itself is as short as the gaps.
	shortestFold = time.Second
	mostFolds    = 40
)

// NewScale returns the scale of a window. busy are the times in which something is under way: long gaps between them
// are folded, so that what happens before and after a sleep of three months can be seen.
func NewScale(window Span, busy []Span) Scale {
	folds := chooseFolds(idle(window, busy), window.Len())
	width := math.Min(foldWidth, mostFolded/math.Max(1, float64(len(folds))))
	rest := window.Len()
	for _, f := range folds {
		rest -= f.Len()
	}
	perUnit := (100 - width*float64(len(folds))) / float64(max(rest, 1))
	var s Scale
	at, x := window.From, 0.0
	add := func(to time.Time, w float64, folded bool) {
		if to.After(at) {
			s = append(s, Segment{Span{at, to}, x, x + w, folded})
			at, x = to, x+w
		}
	}
	for _, f := range folds {
		add(f.From, float64(f.From.Sub(at))*perUnit, false)
		add(f.To, width, true)
	}
	add(window.To, 100-x, false)
	return s
}

// Linear returns the scale of a window without folds.
func Linear(window Span) Scale { return Scale{{window, 0, 100, false}} }

// idle returns the gaps between the busy spans.
func idle(window Span, busy []Span) (gaps []Span) {
	busy = slices.Clone(busy)
	slices.SortFunc(busy, func(a, b Span) int { return a.From.Compare(b.From) })
	at := window.From
	for _, b := range busy {
		if from := earlier(b.From, window.To); from.After(at) {
			gaps = append(gaps, Span{at, from})
		}
		at = later(at, b.To)
	}
	if window.To.After(at) {
		gaps = append(gaps, Span{at, window.To})
	}
	return gaps
}

// chooseFolds returns the gaps to fold, in their order. It looks again at the rest, because beside three months a
// gap of two hours is nothing, and beside seconds it is all.
func chooseFolds(gaps []Span, total time.Duration) (folds []Span) {
	rest := total
	for {
		var long []Span
		var sum time.Duration
		gaps = slices.DeleteFunc(slices.Clone(gaps), func(g Span) bool {
			if g.Len() < shortestFold || float64(g.Len()) < longShare*float64(rest) {
				return false
			}
			long, sum = append(long, g), sum+g.Len()
			return true
		})
		if len(long) == 0 || len(folds)+len(long) > mostFolds || float64(sum) < idleShare*float64(rest) || sum >= rest {
			break
		}
		longest := slices.MaxFunc(long, func(a, b Span) int { return cmp.Compare(a.Len(), b.Len()) }).Len()
		for _, g := range long {
			if g.Len() >= longest/2 {
				folds, rest = append(folds, g), rest-g.Len()
			} else {
				gaps = append(gaps, g)
			}
		}
	}
	slices.SortFunc(folds, func(a, b Span) int { return a.From.Compare(b.From) })
	return joined(folds)
}

// joined joins spans that follow each other.
func joined(spans []Span) (out []Span) {
	for _, s := range spans {
		if n := len(out); n > 0 && !s.From.After(out[n-1].To) {
			out[n-1].To = later(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// X returns where a moment is, in percent of the axis: 0 or 100 if it is outside.
func (s Scale) X(t time.Time) float64 {
	if len(s) == 0 || !t.After(s[0].From) {
		return 0
	}
	for _, g := range s {
		if !t.After(g.To) {
			return g.X0 + (g.X1-g.X0)*float64(t.Sub(g.From))/float64(g.Len())
		}
	}
	return 100
}

// Time is the inverse of X.
func (s Scale) Time(x float64) time.Time {
	if len(s) == 0 {
		return time.Time{}
	}
	for _, g := range s {
		if x <= g.X1 {
			return g.From.Add(time.Duration(math.Max(0, x-g.X0) / math.Max(g.X1-g.X0, 1e-9) * float64(g.Len())))
		}
	}
	return s[len(s)-1].To
}

// Window returns the time that the axis shows.
func (s Scale) Window() Span {
	if len(s) == 0 {
		return Span{}
	}
	return Span{s[0].From, s[len(s)-1].To}
}

// Folded reports whether a gap is folded.
func (s Scale) Folded() bool { return slices.ContainsFunc(s, func(g Segment) bool { return g.Folded }) }

// Zoom returns the window between two places of the axis, which may lie outside of it, within whole. It is never empty.
func (s Scale) Zoom(x0, x1 float64, whole Span) Span {
	w := s.Window()
	at := func(x float64) time.Time {
		switch {
		case x < 0:
			return w.From.Add(time.Duration(x / 100 * float64(w.Len())))
		case x > 100:
			return w.To.Add(time.Duration((x - 100) / 100 * float64(w.Len())))
		}
		return s.Time(x)
	}
	return Clamp(Span{at(x0), at(x1)}, whole)
}

// shortest is the shortest window. Postgres knows no shorter times than a microsecond.
const shortest = 20 * time.Microsecond

// Clamp returns the window within whole, and no shorter than 20 µs.
func Clamp(w, whole Span) Span {
	if w.Len() < shortest {
		middle := w.From.Add(w.Len() / 2)
		w = Span{middle.Add(-shortest / 2), middle.Add(shortest / 2)}
	}
	length := min(w.Len(), whole.Len())
	if w.From.Before(whole.From) {
		w = Span{whole.From, whole.From.Add(length)}
	}
	if w.To.After(whole.To) {
		w = Span{whole.To.Add(-length), whole.To}
	}
	return w
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A Tick is a mark of the axis.
type Tick struct {
	X  float64
	At time.Time
	// the distance between two ticks, which says how exact the label must be; zero at the beginning of a segment
	Every time.Duration
	Minor bool // every second one, which a narrow page leaves out
}

// tickSteps are the distances between ticks.
var tickSteps = []time.Duration{
	10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond,
	500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 15 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour,
	3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

const day = 24 * time.Hour

// tickRoom is the least distance between ticks, in percent: their labels stand beside them.
const tickRoom = 11

// Ticks returns the marks of the axis. Folded segments have none.
func (s Scale) Ticks() (ticks []Tick) {
	for _, g := range s {
		if width := g.X1 - g.X0; !g.Folded && width >= tickRoom {
			ticks = append(ticks, g.ticks(int(width/tickRoom))...)
		}
	}
	return ticks
}

// ticks returns at most about n ticks of a segment.
func (g Segment) ticks(n int) (ticks []Tick) {
	least := g.Len() / time.Duration(n)
	i, _ := slices.BinarySearchFunc(tickSteps, least, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	every := tickSteps[min(i, len(tickSteps)-1)]
	for every < least { // beyond ten years
		every *= 2
	}
	at := g.From.Truncate(every)
	if at.Before(g.From) {
		at = at.Add(every)
	}
	for ; at.Before(g.To); at = at.Add(every) {
		x := g.X0 + (g.X1-g.X0)*float64(at.Sub(g.From))/float64(g.Len())
		if g.X1-x >= tickRoom {
			ticks = append(ticks, Tick{x, at, every, len(ticks)%2 == 1})
		}
	}
	if len(ticks) == 0 {
		ticks = []Tick{{X: g.X0, At: g.From}}
	}
	return ticks
}
