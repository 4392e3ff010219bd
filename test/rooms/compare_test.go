package rooms

import (
	"slices"
	"strings"
	"testing"
)

// A figure is red when it is worse than its bound, and when it is better; the table is only ever lowered.
func TestCompare(t *testing.T) {
	t.Parallel()
	line := func(worst, excess int) figure {
		return figure{rule: "complexity", where: "./...", worst: worst, excess: excess, reach: 18, what: "a.go: f"}
	}
	raised := line(30, 20)
	raised.reason = "moved from ui"
	bounds := []figure{line(30, 20)}
	drawing := line(30, 20)
	drawing.reach = 16
	for _, c := range []struct {
		name                  string
		bounds, today, lowers []figure
		worse, slack          string
	}{
		{"Same", bounds, bounds, bounds, "", ""},
		{"Reached", nil, nil, nil, "", ""},
		{"Worse", bounds, []figure{line(31, 21)}, bounds, "31, and at most 30 are allowed", ""},
		{"WorseInTheShadow", bounds, []figure{line(30, 21)}, bounds, "above 18 there are 21", ""},
		{"WorseWithoutLine", nil, []figure{line(19, 1)}, nil, "19, and at most 18 are allowed", ""},
		{"Better", bounds, []figure{line(29, 18)}, []figure{line(29, 18)}, "", "write bound 29 and excess 18"},
		{"BetterInTheShadow", bounds, []figure{line(30, 18)}, []figure{line(30, 18)}, "", "bound 30 and excess 18"},
		{"WorseAndBetter", bounds, []figure{line(31, 15)}, []figure{line(30, 15)}, "at most 30 are allowed", ""},
		{"NowReached", bounds, nil, nil, "", "Remove its line"},
		{"KeepsTheReason", []figure{raised}, bounds, []figure{raised}, "", ""},
		{"OtherDrawing", []figure{drawing}, bounds, bounds, "", "the drawing has 18"},
	} {
		worse, slack, lowered := compare(c.bounds, c.today)
		for what, found := range map[string][]string{c.worse: worse, c.slack: slack} {
			if want := min(len(what), 1); len(found) != want || !strings.Contains(strings.Join(found, ""), what) {
				t.Errorf("%s: worse are %q and slack %q, want %q and %q", c.name, worse, slack, c.worse, c.slack)
			}
		}
		if !slices.Equal(lowered, c.lowers) {
			t.Errorf("%s: the table becomes %+v, want %+v", c.name, lowered, c.lowers)
		}
	}
}

// The table is read as it is written.
func TestTable(t *testing.T) {
	t.Parallel()
	figures := []figure{
		{rule: "lines over 120 columns", where: "ui/...", worst: 10, what: "ui/a.go"},
		{rule: "complexity", where: ".", worst: 30, excess: 20, reach: 18, what: "a.go: T.f", reason: "moved from ui"},
	}
	text := format(figures)
	if got, err := parse(text); err != nil || !slices.Equal(got, figures) {
		t.Errorf("read %+v with the error %v, want %+v", got, err, figures)
	}
	for _, wrong := range []string{"complexity  ./...  30  20  18", "complexity  ./...  thirty  20  18  a.go: f"} {
		if got, err := parse(text + wrong + "\n"); err == nil {
			t.Errorf("read %+v from %q", got, wrong)
		}
	}
}
