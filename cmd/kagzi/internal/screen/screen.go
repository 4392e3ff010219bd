// Package screen writes tables, times and progress bars: for people at a terminal, or for a pipe.
package screen

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
)

// A Screen is where a command writes, and how.
type Screen struct {
	Out, Err io.Writer
	// columns of the terminal; zero: Out is no terminal, so nothing is cut, and times are RFC 3339
	Width int
	Color bool             // Out is a terminal that shows colours
	Live  int              // columns of the terminal that Err is; zero: it is none, and there are no bars
	Now   func() time.Time // this computer's clock
}

// A Tone says how a text looks if the screen has colours.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good
	Warning
	Bad
	Faint
	Strong
)

var styles = map[Tone]lipgloss.Style{
	Good:    lipgloss.NewStyle().Foreground(lipgloss.Color("2")),
	Warning: lipgloss.NewStyle().Foreground(lipgloss.Color("3")),
	Bad:     lipgloss.NewStyle().Foreground(lipgloss.Color("1")),
	Faint:   lipgloss.NewStyle().Faint(true),
	Strong:  lipgloss.NewStyle().Bold(true),
}

// Paint returns s in a tone.
func (s *Screen) Paint(tone Tone, text string) string {
	if !s.Color || tone == Plain || text == "" {
		return text
	}
	return styles[tone].Render(text)
}

// Printf writes a line.
func (s *Screen) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Out, format+"\n", args...)
	return err
}

// Time returns t for people: how long ago it is at a terminal, and RFC 3339 elsewhere. It is "-" for the zero time.
func (s *Screen) Time(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case s.Width == 0:
		return t.UTC().Format(time.RFC3339)
	}
	return Ago(t, s.Now())
}

// Moment returns t with its date, and at a terminal also how long ago it is.
func (s *Screen) Moment(t time.Time) string {
	if t.IsZero() || s.Width == 0 {
		return s.Time(t)
	}
	return t.Local().Format("2006-01-02 15:04:05 MST") + " (" + Ago(t, s.Now()) + ")"
}

// Ago returns the distance between now and t: "3m ago" or "in 2h".
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d < time.Second && d > -time.Second:
		return "now"
	case d > 0:
		return Short(d) + " ago"
	default:
		return "in " + Short(-d)
	}
}

const day = 24 * time.Hour

// Short returns d with its two largest units: "350ms", "1.5s", "3m20s", "2h5m", "4d3h".
func Short(d time.Duration) string {
	two := func(large time.Duration, name string, small time.Duration, smallName string) string {
		n, rest := d/large, d%large/small
		if rest == 0 {
			return fmt.Sprintf("%d%s", n, name)
		}
		return fmt.Sprintf("%d%s%d%s", n, name, rest, smallName)
	}
	switch {
	case d < 0:
		return "-" + Short(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return two(time.Minute, "m", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "m")
	case d < 100*day:
		return two(day, "d", time.Hour, "h")
	}
	return fmt.Sprintf("%dd", d/day)
}

// PerSecond writes a rate.
func PerSecond(n float64) string {
	switch {
	case n == 0:
		return "0/s"
	case n < 0.1:
		return fmt.Sprintf("%.2f/s", n)
	case n < 10:
		return fmt.Sprintf("%.1f/s", n)
	}
	return fmt.Sprintf("%.0f/s", n)
}

// Line returns s on one line, without characters that a terminal obeys.
func Line(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// Fill breaks s into lines of the terminal's width, those after the first with an indent. It does not break s if there
// is no terminal, and no word ever.
func (s *Screen) Fill(text string, indent int) string { return Fill(text, s.Width, indent) }

// Fill breaks text into lines of at most width columns, those after the first with an indent. A width of zero means one
// line.
func Fill(text string, width, indent int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		w := lipgloss.Width(word)
		switch {
		case column == 0:
		case width > 0 && column+1+w > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += w
	}
	return b.String()
}

// Cut returns s, cut to width columns.
func Cut(s string, width int) string {
	if lipgloss.Width(s) <= width {
		return s
	}
	if width <= 1 {
		return strings.Repeat("…", max(width, 0))
	}
	var b strings.Builder
	left := width - 1
	for _, r := range s {
		w := lipgloss.Width(string(r))
		if w > left {
			break
		}
		left -= w
		b.WriteRune(r)
	}
	return b.String() + "…"
}
