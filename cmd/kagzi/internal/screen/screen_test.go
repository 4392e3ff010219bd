package screen

import (
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
)

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 350 * time.Millisecond: "350ms", 1500 * time.Millisecond: "1.5s", 42 * time.Second: "42s",
		200 * time.Second:           "3m20s",
		2*time.Hour + 5*time.Minute: "2h5m", 3 * time.Hour: "3h", 99 * time.Hour: "4d3h", 7 * day: "7d",
		1000 * day: "1000d", -time.Minute: "-1m",
	} {
		if got := Short(d); got != want {
			t.Errorf("Short(%s) is %q, want %q", d, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	terminal := &Screen{Width: 80, Now: func() time.Time { return now }}
	pipe := &Screen{Now: terminal.Now}
	for _, test := range []struct {
		at             time.Time
		terminal, pipe string
	}{
		{time.Time{}, "-", "-"},
		{now, "now", "2026-10-01T12:00:00Z"},
		{now.Add(-3 * time.Minute), "3m ago", "2026-10-01T11:57:00Z"},
		{now.Add(2 * time.Hour), "in 2h", "2026-10-01T14:00:00Z"},
	} {
		if got := terminal.Time(test.at); got != test.terminal {
			t.Errorf("a terminal shows %q, want %q", got, test.terminal)
		}
		if got := pipe.Time(test.at); got != test.pipe {
			t.Errorf("a pipe gets %q, want %q", got, test.pipe)
		}
	}
}

func TestTextsObeyNoEscapes(t *testing.T) {
	t.Parallel()
	s := &Screen{}
	table := s.Table(Column{Title: "ERROR"})
	table.Row("red\x1b[31m\nnext\x07")
	if got := table.String(); strings.ContainsAny(got, "\x1b\x07") || strings.Count(got, "\n") != 2 {
		t.Errorf("the table is %q", got)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	if got, want := Fill("one two three four", 9, 2), "one two\n  three\n  four"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
	if got, want := Fill("a-very-long-word b", 5, 0), "a-very-long-word\nb"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
	if got := Fill("one two", 0, 0); got != "one two" {
		t.Errorf("it is %q", got)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in    string
		width int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"尺寸尺寸", 5, "尺寸…"}, {"abc", 1, "…"}, {"abc", 0, ""}} {
		if got := Cut(test.in, test.width); got != test.want || lipgloss.Width(got) > test.width {
			t.Errorf("Cut(%q, %d) is %q, want %q", test.in, test.width, got, test.want)
		}
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	columns := []Column{
		{Title: "ID"},
		{Title: "NAME", Min: 6},
		{Title: "QUEUE", Drop: 2},
		{Title: "N", Right: true},
		{Title: "TEXT", Min: 8, Drop: 1},
		{Title: "EMPTY"},
	}
	of := func(width int) string {
		s := &Screen{Width: width}
		table := s.Table(columns...)
		table.Row("0199e5a0", "a name that is long", "reports", 7, "a text that is much longer than the name", "")
		table.Row("0199e5a1", "Größe", "shop", 1234, "", "")
		return table.String()
	}
	if got, want := of(0), ""+
		"ID        NAME                 QUEUE       N  TEXT\n"+
		"0199e5a0  a name that is long  reports     7  a text that is much longer than the name\n"+
		"0199e5a1  Größe                shop     1234\n"; got != want {
		t.Errorf("without a terminal the table is\n%s, want\n%s", got, want)
	}
	for width := 24; width < 100; width++ {
		for line := range strings.Lines(of(width)) {
			if n := lipgloss.Width(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d columns a line has %d: %q", width, n, line)
			}
		}
	}
	if got := of(40); strings.Contains(got, "QUEUE") || !strings.Contains(got, "0199e5a0") {
		t.Errorf("at 40 columns the table is\n%s", got)
	}
	if got := of(26); strings.Contains(got, "TEXT") || !strings.Contains(got, "0199e5a0  a name th…") {
		t.Errorf("at 26 columns the table is\n%s", got)
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	s := &Screen{Err: &out, Live: 90, Now: func() time.Time { return now }}
	b := s.Bar("cancelling", 400)
	now = now.Add(4 * time.Second)
	b.Add(100)
	if want := "\rcancelling ━━━━━━━─────────────────────── 100 of 400, 25 %, 12s " +
		"left\x1b[K"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the bar is %q, want %q", out.String(), want)
	}
	before := out.Len()
	b.Add(1) // too soon to draw again
	if out.Len() != before {
		t.Errorf("the bar was drawn twice within %s", often)
	}
	b.Add(299)
	b.End()
	if want := "400 of 400, 100 %\x1b[K\r\x1b[K"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the end is %q, want %q", out.String(), want)
	}
	out.Reset()
	pipe := &Screen{Err: &out, Now: s.Now}
	b = pipe.Bar("cancelling", 2)
	b.Add(2)
	if b.End(); out.Len() != 0 {
		t.Errorf("a pipe gets %q", out.String())
	}
}
