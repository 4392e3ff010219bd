package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/waits"
)

// timeHTML returns a time in UTC. The browser shows it in the zone that the viewer has chosen, and how long ago it is
// beside it.
func timeHTML(t time.Time) template.HTML { return timeTag(t, "time") }

// agoHTML returns a time that the browser shows as its distance from now: "3 min ago".
func agoHTML(t time.Time) template.HTML { return timeTag(t, "ago") }

// clockHTML returns a time that the browser shows as how long ago it is, counting on: "3 min 20 s".
func clockHTML(t time.Time) template.HTML { return timeTag(t, "clock") }

// hourHTML returns a time that the browser shows as the time of day in that zone.
func hourHTML(t time.Time) template.HTML {
	t = t.UTC()
	// digits
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-as="hour" title="%s">%s</time>`,
		t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05 UTC"), t.Format("15:04")))
}

func timeTag(t time.Time, as string) template.HTML {
	if t.IsZero() {
		return `<span class="none zero">–</span>`
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-as="%s" title="%s">%s</time>`, // digits
		t.Format(time.RFC3339Nano), as, t.Format("2006-01-02 15:04:05.000 UTC"), t.Format("2006-01-02 15:04:05 UTC")))
}

const day = 24 * time.Hour

// duration returns d with its two largest units: "350 ms", "1.5 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
func duration(d time.Duration) string {
	two := func(large time.Duration, name string, small time.Duration, smallName string) string {
		n, rest := d/large, d%large/small
		if rest == 0 {
			return fmt.Sprintf("%d %s", n, name)
		}
		return fmt.Sprintf("%d %s %d %s", n, name, rest, smallName)
	}
	switch {
	case d < 0:
		return "−" + duration(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(float64(d/(100*time.Millisecond))/10, 'f', -1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, "min", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "min")
	case d < 100*day:
		return two(day, "d", time.Hour, "h")
	}
	return fmt.Sprintf("%s d", count(int(d/day)))
}

// latency returns a duration of several runs together, such as a median, which a whole number of milliseconds says well
// enough.
func latency(d time.Duration) string {
	if d < time.Millisecond {
		return "< 1 ms"
	}
	return duration(d)
}

// count returns a number with thousands separators.
func count(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// atLeast is count for a number beyond which there may be more.
func atLeast(n int, more bool) string {
	if more {
		return count(n) + "+"
	}
	return count(n)
}

// plural returns the number with its noun: "1 run", "2,000 runs".
func plural(n int, one string, many ...string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + cmp.Or(strings.Join(many, ""), one+"s")
}

func perSecond(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.1:
		return fmt.Sprintf("%.2f", n)
	case n < 10:
		return fmt.Sprintf("%.1f", n)
	}
	return count(int(n + 0.5))
}

// size returns a number of bytes for people.
func size(n int) string {
	switch {
	case n < 1<<10:
		return plural(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// short returns the end of a run ID, which distinguishes runs that were started at about the same time.
func short(id kagzi.RunID) string {
	if len(id) <= 12 {
		return string(id)
	}
	return string(id[:8]) + "…" + string(id[len(id)-4:])
}

// oneLine returns a text on one line, without the name of the library, cut to 300 characters.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.TrimPrefix(s, "kagzi: ")), " ")
	return first(300, s)
}

// first returns the first n characters of a text.
func first(n int, s string) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// attempts is the end of the text of a failed step, which says again what its kind is.
var attempts = regexp.MustCompile(`(: [a-z_]+)? \([a-z_]+, [0-9]+ attempts?\)$`)

// due reports whether a run waits for a time. One that is paused does not: the time may pass.
func due(r kagzi.RunInfo) bool {
	return !r.AvailableAt.IsZero() && r.PausedAt.IsZero() &&
		(r.Status == kagzi.StatusPending || r.Status == kagzi.StatusSleeping)
}

// dueWord says how a run goes on at the time that it waits for, after runDetail.
func dueWord(r kagzi.RunInfo) string {
	if len(r.WaitingOn) == 0 {
		return "due"
	}
	if len(r.WaitingOn) > 1 {
		return ", next"
	}
	switch r.WaitingOn[0].Kind {
	case waits.Signal:
		return ", gives up"
	case waits.Timer:
		return ", wakes"
	case waits.Timeout:
		return ", times out"
	case waits.Retry:
		return ", next attempt"
	}
	return ", due"
}

// held says in a word which pause a due run is subject to; it is empty if there is none. Of other runs WaitingOn says
// what they wait for.
func held(pauses []admin.Pause, r kagzi.RunInfo) string {
	if r.WaitingOn != nil || r.Status != kagzi.StatusPending || r.AvailableAt.After(time.Now()) {
		return ""
	}
	for _, p := range pauses {
		switch {
		case !explain.Holds(p, r):
		case p.All:
			return "everything"
		case p.Key != "":
			return "its key"
		case p.Group != "":
			return "its group"
		case p.Workflow != "":
			return "its workflow"
		default:
			return "its queue"
		}
	}
	return ""
}

// runDetail says in a few words what the status does not: what the run waits for, or how it failed.
func runDetail(r kagzi.RunInfo) string {
	if r.Status == kagzi.StatusFailed || r.Status == kagzi.StatusCancelled {
		return oneLine(attempts.ReplaceAllString(r.Error, "")) // its kind has a place of its own
	}
	return oneLine(explain.Detail(r))
}

// silentHTML says, for a list, since when the run's worker is silent, and when another one takes the run over.
func silentHTML(r kagzi.RunInfo) template.HTML {
	// times
	return template.HTML(explain.Silent(r, explain.Words{Ago: func(t time.Time) string { return string(agoHTML(t)) }}))
}

// named are the run IDs and times in a text of the library.
var named = regexp.MustCompile(runID.String() + `|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)

// inProse returns the text with the runs that it names as run writes them.
func inProse(text string, run func(kagzi.RunID) string) template.HTML {
	var out strings.Builder
	text, last := deeds.InPages(text), 0
	for _, at := range named.FindAllStringIndex(text, -1) {
		out.WriteString(template.HTMLEscapeString(text[last:at[0]]))
		name := text[at[0]:at[1]]
		if t, err := time.Parse(time.RFC3339Nano, name); err == nil {
			out.WriteString(string(timeHTML(t)))
		} else {
			out.WriteString(run(kagzi.RunID(name)))
		}
		last = at[1]
	}
	out.WriteString(template.HTMLEscapeString(text[last:]))
	return template.HTML(out.String())
}

// dict makes the data of a partial that needs several values: {{template "x" (dict "Title" "Runs" "Screen" .)}}.
func dict(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}
