package rooms

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table has the bounds of the figures that have not reached the drawing.
const table = "figures.txt"

// lower is the advice that lowers the bounds.
const lower = "run go test ./test/rooms -update"

// heading explains the table to its readers.
const heading = `# Figures that are worse than the drawing of the code allows. No commit makes one worse, and a commit
# that betters one lowers its bound: go test ./test/rooms -update. A figure without a line here has reached the
# drawing and is held to it: see rules_test.go.
#
# bound     the worst in a package (ui), a module (ui/...) or a folder; without an excess, the sum in it
# excess    the sum of all above the drawing's bound, so that a function does not grow in the shadow of the worst
# to reach  the drawing's bound
#
# A bound is raised by hand only, with the reason at the end of its line, after two spaces: # moved here from ui
#
`

// compare returns the figures that are worse than their bounds, the bounds that are slack, and the table with them
// lowered.
func compare(bounds, today []figure) (worse, slack []string, lowered []figure) {
	seen := map[string]bool{}
	for _, f := range today {
		seen[f.name()] = true
		b := figure{worst: f.reach}
		if i := slices.IndexFunc(bounds, func(b figure) bool { return b.name() == f.name() }); i >= 0 {
			b = bounds[i]
			f.reason = b.reason
			if b.reach != f.reach {
				slack = append(slack, fmt.Sprintf("%s: the drawing has %d, not %d", f.name(), f.reach, b.reach))
			}
		}
		raise := fmt.Sprintf("If nothing else helps, raise the bound by hand in test/rooms/%s, with a reason.", table)
		switch {
		case f.worst > b.worst:
			worse = append(worse, fmt.Sprintf("%s: %d, and at most %d are allowed:%s\n%s",
				f.name(), f.worst, b.worst, f.advice, raise))
		case f.excess > b.excess:
			worse = append(worse, fmt.Sprintf("%s: above %d there are %d in sum, and at most %d are allowed:%s\n%s",
				f.name(), f.reach, f.excess, b.excess, f.advice, raise))
		case f.worst < b.worst || f.excess < b.excess:
			slack = append(slack, fmt.Sprintf("%s: better than its bound: in %s write bound %d and excess %s, or %s",
				f.name(), table, f.worst, f.above(), lower))
		}
		f.worst, f.excess = min(f.worst, b.worst), min(f.excess, b.excess)
		if f.worst > f.reach {
			lowered = append(lowered, f)
		}
	}
	for _, b := range bounds {
		if !seen[b.name()] {
			slack = append(slack, fmt.Sprintf("%s: no more than %d. Remove its line from %s, or %s",
				b.name(), b.reach, table, lower))
		}
	}
	return worse, slack, lowered
}

// format returns the text of the table.
func format(figures []figure) string {
	var out strings.Builder
	out.WriteString(heading)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "# figure\twhere\tbound\texcess\tto reach\tthe worst")
	for _, f := range figures {
		line := fmt.Sprintf("%s\t%s\t%d\t%s\t%d\t%s", f.rule, f.where, f.worst, f.above(), f.reach, f.what)
		if f.reason != "" {
			line += "\t# " + f.reason
		}
		fmt.Fprintln(w, line)
	}
	w.Flush()
	return out.String()
}

var gap = regexp.MustCompile(`\s{2,}`)

// above returns the excess as the table has it.
func (f figure) above() string {
	if f.excess == 0 {
		return "-"
	}
	return strconv.Itoa(f.excess)
}

// parse reads the table.
func parse(text string) (figures []figure, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		line, reason, _ := strings.Cut(line, "  # ")
		cells := gap.Split(strings.TrimSpace(line), -1)
		if len(cells) != 6 {
			return nil, fmt.Errorf("%s: %d cells with two spaces between them, want 6: %s", table, len(cells), line)
		}
		f := figure{rule: cells[0], where: cells[1], what: cells[5], reason: reason}
		if cells[3] == "-" {
			cells[3] = "0"
		}
		for i, to := range []*int{&f.worst, &f.excess, &f.reach} {
			if *to, err = strconv.Atoi(cells[2+i]); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", table, err, line)
			}
		}
		figures = append(figures, f)
	}
	return figures, nil
}
