package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/adhocore/gronx"
)

// An expression is a cron expression in canonical form.
type expression struct {
	fields    [7]string // seconds first, year last: digits, `*` and the letters L, W, #
	gronx     string    // the fields; all seven, because gronx guesses the meaning of a sixth one
	everyHour bool      // the hour is `*` or has a step: follow real time
}

// maxLength is the most bytes of an expression. A list of every second, minute, hour and day takes 500.
const maxLength = 1000

var macros = map[string]string{
	"@yearly":    "0 0 1 1 *",
	"@annually":  "0 0 1 1 *",
	"@monthly":   "0 0 1 * *",
	"@weekly":    "0 0 * * 0",
	"@daily":     "0 0 * * *",
	"@midnight":  "0 0 * * *",
	"@hourly":    "0 * * * *",
	"@30minutes": "*/30 * * * *",
	"@15minutes": "*/15 * * * *",
	"@10minutes": "*/10 * * * *",
	"@5minutes":  "*/5 * * * *",
}

// parse reads text. It accepts only expressions that gronx reads in the same way. gronx accepts many more, and gives
// them another meaning.
func parse(text string) (expression, error) {
	if len(text) > maxLength {
		return expression{}, fmt.Errorf("%d bytes are too long: want at most %d", len(text), maxLength)
	}
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return expression{}, errors.New(`empty: want an expression such as "0 7 * * 1-5" or @daily`)
	case strings.EqualFold(words[0], "@every"):
		return expression{}, errors.New("an interval is not a cron expression: " + insteadOf(words[1:]))
	case words[0][0] == '@':
		macro, ok := macros[strings.ToLower(words[0])]
		if !ok || len(words) > 1 {
			return expression{}, errors.New("want one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, " +
				"@annually, @5minutes, @10minutes, @15minutes and @30minutes, alone")
		}
		words = strings.Fields(macro)
	case strings.Contains(words[0], "TZ="):
		return expression{}, errors.New("the time zone is given beside the expression, not in it: set TimeZone")
	}
	return parseFields(words)
}

// insteadOf returns advice for an expression of @every and the words after it.
func insteadOf(words []string) string {
	if len(words) == 1 {
		d, err := time.ParseDuration(words[0])
		for _, unit := range []struct {
			name string
			time.Duration
		}{{"Hour", time.Hour}, {"Minute", time.Minute}, {"Second", time.Second}} {
			if err == nil && d > 0 && d%unit.Duration == 0 {
				return fmt.Sprintf("set Every: %d*time.%s instead of Cron", d/unit.Duration, unit.name)
			}
		}
	}
	return "set Every, a time.Duration, instead of Cron"
}

func parseFields(words []string) (expression, error) {
	var e expression
	switch len(words) {
	case 5:
		copy(e.fields[1:], words)
		e.fields[0], e.fields[6] = "0", "*"
	case 6:
		copy(e.fields[:], words)
		e.fields[6] = "*"
		if n, err := strconv.Atoi(words[5]); err == nil && n >= minYear {
			return expression{}, fmt.Errorf("day of week %q: a year needs seven fields: second minute hour day month "+
				"weekday year", words[5])
		}
	case 7:
		copy(e.fields[:], words)
	default:
		return expression{}, fmt.Errorf("%d fields: want 5 (minute hour day month weekday), 6 with seconds first, or "+
			"7 with the year last", len(words))
	}
	for i, f := range fields {
		canonical, err := f.parse(e.fields[i])
		if err != nil {
			return expression{}, fmt.Errorf("%s %w", f.name, err)
		}
		e.fields[i] = canonical
	}
	e.gronx = strings.Join(e.fields[:], " ")
	e.everyHour = strings.ContainsAny(e.fields[2], "*/")
	return e, nil
}

// String omits a second of 0 and a year of *, which Parse adds.
func (e expression) String() string {
	switch {
	case e.fields[6] != "*":
		return e.gronx
	case e.fields[0] != "0":
		return strings.Join(e.fields[:6], " ")
	}
	return strings.Join(e.fields[1:6], " ")
}

// next returns the first match after the wall-clock time wall.
func (e expression) next(wall int64) (int64, bool) {
	t, err := gronx.NextTickAfter(e.gronx, time.Unix(wall, 0).UTC(), false)
	// gronx gives up with an error. Where it gives up on a time that matches, it returns that time and no error.
	if err != nil || t.Unix() <= wall {
		return 0, false
	}
	return t.Unix(), true
}

// A field is one of the seven fields of an expression.
type field struct {
	name   string
	lo, hi int
	names  []string // of lo, lo+1, …
	most   int      // the largest number accepted: 7 for a Sunday, otherwise hi
	// ownStar: `*` means more than lo-hi, because it decides how the two days combine, and years are counted from 0.
	ownStar bool
	// special reads a form that only this field has; ok is false if p is no such form.
	special func(f field, p string) (canonical string, ok bool, err error)
}

// minYear is the first year of an expression: the first whose Unix seconds are not negative.
const minYear = 1970

var fields = [7]field{
	{name: "second", hi: 59, most: 59},
	{name: "minute", hi: 59, most: 59},
	{name: "hour", hi: 23, most: 23},
	{name: "day of month", lo: 1, hi: 31, most: 31, special: specialDay, ownStar: true},
	{name: "month", lo: 1, hi: 12, most: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{
		name: "day of week", hi: 6, most: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT"),
		special: specialWeekday,
		ownStar: true,
	},
	{name: "year", lo: minYear, hi: 9999, most: 9999, ownStar: true},
}

// parse returns the canonical form of a field's text.
func (f field) parse(text string) (string, error) {
	if text == "*" || text == "?" {
		return "*", nil
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		canonical, err := f.parsePart(p)
		if err != nil {
			return "", fmt.Errorf("%s: %w", quote(p), err)
		}
		switch {
		case len(parts) == 1:
		case canonical == "*":
			return "", fmt.Errorf("%s: %s in a list means every %s: want it alone", quote(text), p, f.name)
		// The first character of the field decides how the two days combine; no user should have to know that.
		case canonical[0] == '*' && f.special != nil:
			return "", fmt.Errorf("%s: want no * in a list", quote(text))
		}
		parts[i] = canonical
	}
	return strings.Join(parts, ","), nil
}

func (f field) parsePart(p string) (string, error) {
	if f.special != nil {
		if canonical, ok, err := f.special(f, p); ok {
			return canonical, err
		}
	}
	body, stepText, stepped := strings.Cut(p, "/")
	step := 1
	if stepped {
		var err error
		if step, err = number(stepText); err != nil || step < 1 || step > f.hi-f.lo+1 {
			return "", fmt.Errorf("want a step of 1 to %d", f.hi-f.lo+1)
		}
	}
	if body == "*" {
		return f.format(f.lo, f.hi, step, true), nil
	}
	fromText, toText, ranged := strings.Cut(body, "-")
	from, err := f.value(fromText)
	if err != nil {
		return "", err
	}
	to := from
	if ranged {
		if to, err = f.value(toText); err != nil {
			return "", err
		}
	} else if stepped {
		to = f.hi
	}
	if from > f.hi && to <= f.hi { // a Sunday written as 7 begins the week, except at the end of a range
		from = f.lo
	}
	if to < from {
		return "", fmt.Errorf("the range runs backwards: %s", f.forwards(fromText, toText, from, to, step))
	}
	return f.format(from, to, step, false), nil
}

// forwards returns advice for a range that runs over the field's end, or from a later year to an earlier one.
func (f field) forwards(fromText, toText string, from, to, step int) string {
	switch {
	case f.lo == minYear:
		return fmt.Sprintf("write %s-%s", toText, fromText)
	case step > 1:
		return "list its values"
	}
	name := func(n int) string {
		switch {
		case f.names == nil || fromText[0] <= '9':
			return strconv.Itoa(n)
		case fromText == strings.ToLower(fromText):
			return strings.ToLower(f.names[n-f.lo])
		default:
			return f.names[n-f.lo]
		}
	}
	first, last := fromText, toText
	if from < f.hi {
		first += "-" + name(f.hi)
	}
	if to > f.lo {
		last = name(f.lo) + "-" + last
	}
	return fmt.Sprintf("write %s,%s", first, last)
}

// format writes a part in the form that gronx reads correctly. In particular it gives every step an end: gronx takes
// the years 2024/2 to be past in 2026.
func (f field) format(from, to, step int, star bool) string {
	all := star || from == f.lo && to == f.hi && !f.ownStar
	switch {
	case all && step == 1:
		return "*"
	case star && f.ownStar:
		return "*/" + strconv.Itoa(step)
	case from+step > to: // a single value: the hour */24 is as fixed as 0
		return strconv.Itoa(from % (f.hi + 1))
	case all:
		return "*/" + strconv.Itoa(step)
	case step == 1:
		return fmt.Sprintf("%d-%d", from, to)
	}
	return fmt.Sprintf("%d-%d/%d", from, to, step)
}

func (f field) value(s string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(name, s) {
			return f.lo + i, nil
		}
	}
	n, err := number(s)
	if err != nil || n < f.lo || n > f.most {
		return 0, f.want()
	}
	return n, nil
}

func (f field) want() error {
	names := ""
	if f.names != nil {
		names = fmt.Sprintf(" or %s-%s", f.names[0], f.names[len(f.names)-1])
	}
	return fmt.Errorf("want %d-%d%s", f.lo, f.most, names)
}

// specialDay reads L, the last day of the month, and 15W, the working day nearest to the 15th.
func specialDay(f field, p string) (string, bool, error) {
	p = strings.ToUpper(p)
	n, ok := strings.CutSuffix(p, "W")
	switch {
	case p == "L":
		return p, true, nil
	case !ok:
		return "", false, nil
	}
	day, err := number(n)
	if err != nil || day < f.lo || day > f.hi {
		return "", true, errors.New("want 1W-31W")
	}
	return strconv.Itoa(day) + "W", true, nil
}

// specialWeekday reads 5L, the last Friday of the month, and 5#2, its second Friday.
func specialWeekday(f field, p string) (string, bool, error) {
	day, k, ok := strings.Cut(p, "#")
	if ok {
		if len(k) != 1 || k < "1" || k > "5" {
			return "", true, errors.New("want #1-#5")
		}
		k = "#" + k
	} else if n := len(p) - 1; n >= 0 && (p[n] == 'L' || p[n] == 'l') {
		day, k, ok = p[:n], "L", true
	}
	if !ok {
		return "", false, nil
	}
	n, err := f.value(day)
	if err != nil {
		return "", true, err
	}
	return strconv.Itoa(n%7) + k, true, nil
}

// number reads up to four digits and nothing else.
func number(s string) (int, error) {
	if s == "" || len(s) > 4 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.Atoi(s)
}

// quote quotes text for an error, shortened.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		cut := most
		for cut > most-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		return strconv.Quote(text[:cut]) + "…"
	}
	return strconv.Quote(text)
}
