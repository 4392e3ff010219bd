package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var cronMacros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

var (
	cronDays   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	cronMonths = []string{"", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames = []string{
		"", "January", "February", "March", "April", "May", "June", "July", "August", "September",
		"October", "November", "December",
	}
)

// cronWords says in words when a cron expression fires, as in "07:00 from Monday to Friday". It returns an empty text
// for one that is beyond the usual forms: a wrong sentence would be worse than none.
func cronWords(expr string) string {
	expr = strings.ToLower(strings.TrimSpace(expr))
	if macro, ok := cronMacros[expr]; ok {
		expr = macro
	}
	f := strings.Fields(expr)
	if len(f) == 7 && f[6] == "*" {
		f = f[:6]
	}
	second := "0"
	if len(f) == 6 {
		second, f = f[0], f[1:]
	}
	if len(f) != 5 {
		return ""
	}
	for i, field := range f {
		if field == "?" {
			f[i] = "*"
		}
	}
	at, often := clockWords(second, f[0], f[1])
	days, ok := dayWords(f[2], f[3], f[4])
	switch {
	case at == "" || !ok:
		return ""
	case days == "" && often:
		return at
	case days == "":
		return at + " each day"
	}
	return at + " " + days
}

// clockWords says when a cron expression fires within a day, and whether that is more than at some times.
func clockWords(second, minute, hour string) (at string, often bool) {
	if second != "0" {
		return secondWords(second, minute, hour), true
	}
	m, err := strconv.Atoi(minute)
	single := err == nil && m >= 0 && m < 60
	from, to, ranged := hourRange(hour)
	within := fmt.Sprintf(" from %02d:00 to %02d:59", from, to)
	switch n := cronStep(minute, 60); {
	case n > 0 && hour == "*":
		return each(n, "minute"), true
	case n > 0 && ranged:
		return each(n, "minute") + within, true
	case !single:
		return "", false
	case hour == "*" && m == 0:
		return "each hour", true
	case hour == "*":
		return fmt.Sprintf("each hour at %02d minutes past", m), true
	case ranged && from != to:
		return fmt.Sprintf("each hour from %02d:%02d to %02d:%02d", from, m, to, m), true
	}
	if n := cronStep(hour, 24); n > 0 {
		if m > 0 {
			return fmt.Sprintf("%s at %02d minutes past", each(n, "hour"), m), true
		}
		return each(n, "hour"), true
	}
	hours, ok := cronList(hour, nil, 0, 23)
	if !ok {
		return "", false
	}
	var times []string
	for _, h := range hours {
		times = append(times, fmt.Sprintf("%02d:%02d", h, m))
	}
	return and(times), false
}

func secondWords(second, minute, hour string) string {
	if n := cronStep(second, 60); n > 0 && minute == "*" && hour == "*" {
		return each(n, "second")
	}
	return ""
}

// cronStep returns the n of "*/n", and 1 for "*"; zero if that is not an equal distance.
func cronStep(field string, of int) int {
	if field == "*" {
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(field, "*/"))
	if !strings.HasPrefix(field, "*/") || err != nil || n <= 0 || of%n != 0 {
		return 0
	}
	return n
}

func hourRange(field string) (from, to int, ok bool) {
	a, b, is := strings.Cut(field, "-")
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	return from, to, is && err1 == nil && err2 == nil && from >= 0 && from <= to && to <= 23
}

// dayWords says on which days a cron expression fires; an empty text stands for each day.
func dayWords(day, month, week string) (string, bool) {
	months, ok := cronList(month, cronMonths, 1, 12)
	if !ok {
		return "", false
	}
	in := ""
	if months != nil {
		var names []string
		for _, m := range months {
			names = append(names, monthNames[m])
		}
		in = " in " + and(names)
	}
	var parts []string
	switch days, ok := cronList(day, nil, 1, 31); {
	case day == "l":
		parts = append(parts, "on the last day of the month")
	case !ok:
		return "", false
	case len(days) == 1 && len(months) == 1 && week == "*":
		return fmt.Sprintf("on %d %s", days[0], monthNames[months[0]]), true
	case days != nil:
		var names []string
		for _, d := range days {
			names = append(names, strconv.Itoa(d))
		}
		parts = append(parts, "on day "+and(names)+" of the month")
	}
	on, ok := weekWords(week)
	if !ok {
		return "", false
	}
	if on != "" {
		parts = append(parts, on)
	}
	return strings.TrimSpace(strings.Join(parts, ", and ") + in), true
}

func weekWords(week string) (string, bool) {
	days, ok := cronList(week, cronDays, 0, 7)
	if !ok {
		return "", false
	}
	for i, d := range days {
		days[i] = d % 7
	}
	if from, to, is := strings.Cut(week, "-"); is && !strings.Contains(week, ",") && len(days) > 2 && from != to {
		return "from " + dayNames[days[0]] + " to " + dayNames[days[len(days)-1]], true
	}
	var names []string
	for _, d := range days {
		names = append(names, dayNames[d])
	}
	if names == nil {
		return "", true
	}
	return "on " + and(names), true
}

// cronList reads "1,3-5" or "mon-fri"; nil stands for each value.
func cronList(field string, names []string, least, most int) (out []int, ok bool) {
	if field == "*" {
		return nil, true
	}
	value := func(s string) (int, bool) {
		if i := slices.Index(names, s); i >= 0 && s != "" {
			return i, true
		}
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= least && n <= most
	}
	for part := range strings.SplitSeq(field, ",") {
		a, b, ranged := strings.Cut(part, "-")
		from, ok := value(a)
		to := from
		if ok && ranged {
			to, ok = value(b)
		}
		if !ok || to < from {
			return nil, false
		}
		for n := from; n <= to; n++ {
			out = append(out, n)
		}
	}
	return out, len(out) <= 12 // more is no sentence
}

func each(n int, unit string) string {
	if n == 1 {
		return "each " + unit
	}
	return fmt.Sprintf("each %d %ss", n, unit)
}

// and joins texts as a sentence does.
func and(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
