package deeds

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
)

// A Kind is how the value of a field is written.
type Kind string

// The kinds of fields.
const (
	Text     Kind = "text"
	Number   Kind = "number"   // from 1
	Count    Kind = "count"    // from 0, which means none
	Version  Kind = "version"  // a number from 1, or "default"
	Duration Kind = "duration" // "30s"
	Past     Kind = "past"     // a moment, or a distance before now
	Future   Kind = "future"   // a moment, or a distance after now
	Rate     Kind = "rate"     // "10/s"; 0 is none
	JSON     Kind = "json"
	Pairs    Kind = "pairs"   // name=value: one on each line of a form, or one with each flag
	Several  Kind = "several" // texts: boxes of a form, or one with each flag
	Check    Kind = "check"   // whether something is so
	Choice   Kind = "choice"  // one of Choices
	Hidden   Kind = "hidden"  // the form keeps it
)

// args are what the help of a command calls a value of each kind.
var args = map[Kind]string{
	Number: "N", Count: "N", Version: "VERSION", Duration: "DURATION", Past: "TIME", Future: "TIME",
	Rate: "RATE", JSON: "JSON", Pairs: "NAME=VALUE", Choice: "N",
}

// A Field is what a deed asks for.
type Field struct {
	Name     string // in Values
	Flag     string // of the command line; empty: as Name; "-": none, as an argument or nothing says it
	Letter   string // of the flag
	NoForm   bool   // only the command line has it
	About    bool   // it says what the deed is about: a form that a link leads to does not ask for it
	Label    string // in a form
	Kind     Kind   // empty: Text
	Arg      string // what the help of the command calls the value; empty: as its kind has it
	Help     string // a sentence
	Hint     string // an example
	Value    string // what it is before; of Check, "" if it is not so
	Choices  []Option
	Required string // what to do if it is missing; empty: it need not be filled in
	Rare     bool   // few people need it
	One      bool   // it is of one run, not of many
}

// An Option is a value that a field may have.
type Option struct {
	Value, Label string
	On           bool // it is the one that is proposed
}

// On reports whether a field of kind Check is so.
func (f Field) On() bool { return f.Value != "" }

// Digits reports whether a number is typed.
func (f Field) Digits() bool { return f.Kind == Number || f.Kind == Count }

// Rows is how many lines an editor shows.
func (f Field) Rows() int { return min(max(strings.Count(f.Value, "\n")+1, 3), 16) }

// ArgName returns what the help of a command calls the value.
func (f Field) ArgName() string {
	switch {
	case f.Arg != "":
		return f.Arg
	case f.Kind == Check:
		return "bool"
	case args[f.Kind] != "":
		return args[f.Kind]
	}
	return "TEXT"
}

// A Mistake is a value that cannot be. Its text names fields in braces.
type Mistake struct{ Text string }

func mistake(format string, args ...any) error { return &Mistake{fmt.Sprintf(format, args...)} }

// Error returns the text with the names of the fields.
func (m *Mistake) Error() string { return m.In(func(name string) string { return name }) }

// In returns the text with what call returns in place of the names of fields.
func (m *Mistake) In(call func(name string) string) string {
	var out strings.Builder
	rest := m.Text
	for {
		before, after, ok := strings.Cut(rest, "{")
		name, tail, closed := strings.Cut(after, "}")
		if !ok || !closed || strings.ContainsAny(name, " \"") {
			out.WriteString(rest)
			return out.String()
		}
		out.WriteString(before + call(name))
		rest = tail
	}
}

// Check returns the first mistake in the values. It needs no database.
func (d Deed) Check(a Asked) error {
	err := d.CheckEach(a)
	if err == nil && d.Valid != nil {
		err = d.Valid(a)
	}
	return err
}

// CheckEach is Check without what the values must be together.
func (d Deed) CheckEach(a Asked) error {
	for _, f := range d.Fields {
		if f.Required != "" && !a.Values.Has(f.Name) {
			return mistake("{%s} is missing: %s", f.Name, f.Required)
		}
		for _, s := range a.Values.all(f.Name) {
			if err := f.check(s, a.Zone); err != nil {
				return err
			}
		}
	}
	return nil
}

// spans are the numbers that a field may have, and what to do about others.
var spans = map[Kind]struct {
	low, high int
	advice    string
}{
	Number: {1, math.MaxInt, "give a number from 1, or leave it out"},
	Count:  {0, math.MaxInt, "give a positive number, or 0 for no limit"},
}

// check returns the mistake in a value that is not empty.
func (f Field) check(s string, zone *time.Location) error {
	s = strings.TrimSpace(s)
	n, err := strconv.Atoi(s)
	advice := "give a number"
	switch f.Kind {
	case Number, Count:
		if span := spans[f.Kind]; err == nil && (n < span.low || n > span.high) {
			return mistake("{%s} is %d: %s", f.Name, n, span.advice)
		}
	case Version:
		if advice = "give a number from 1, or default"; s == "default" {
			err = nil
		} else if n < 1 {
			err = strconv.ErrRange
		}
	case Duration:
		advice = "give a duration, such as 30s, 2h or 7d"
		_, err = duration.Parse(s)
	case Past, Future:
		advice = TimeAdvice(zone)
		_, err = ParseTime(s, time.Now(), 1, zone)
	case Rate:
		advice = "write it as 10/s, 600/m or 5/10s; 0 means no rate"
		_, err = parseRate(s)
	case JSON:
		return checkJSON(f.Name, s)
	case Pairs:
		return checkPairs(f.Name, s)
	default:
		return nil
	}
	if err != nil {
		return mistake("{%s} is %q: %s", f.Name, s, advice)
	}
	return nil
}

// checkPairs says which line is not a pair.
func checkPairs(name, s string) error {
	for line := range strings.Lines(s) {
		if at := strings.Index(line, "="); at < 1 && strings.TrimSpace(line) != "" {
			return mistake("{%s} is %q: write it as name=value", name, strings.TrimRight(line, "\r\n"))
		}
	}
	return nil
}

// layouts are the forms of a moment.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04", "2006-01-02",
}

// ParseTime reads a moment, or its distance from now: sign is -1 for one before, 1 for one after.
func ParseTime(s string, now time.Time, sign time.Duration, zone *time.Location) (time.Time, error) {
	if s == "now" {
		return now, nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, s, zone); err == nil {
			return t, nil
		}
	}
	d, err := duration.Parse(strings.TrimPrefix(s, "in "))
	return now.Add(sign * d), err
}

// TimeAdvice says how a time is written.
func TimeAdvice(zone *time.Location) string {
	its := "UTC"
	if zone == time.Local {
		its = "this computer's"
	}
	return "give a duration such as 1h or 7d, a date such as 2026-10-01, or a time such as \"2026-10-01 08:00\" or " +
		"2026-10-01T08:00:00Z; without a zone it is " + its
}

var errRate = errors.New("no rate")

// parseRate reads a rate without its burst. "0" and "" are no rate.
func parseRate(s string) (admin.Rate, error) {
	if s == "0" || s == "" {
		return admin.Rate{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 {
		return admin.Rate{}, errRate
	}
	if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, err := duration.Parse(per)
	if err != nil || d <= 0 {
		return admin.Rate{}, errRate
	}
	return admin.Rate{Starts: n, Per: d}, nil
}

// checkJSON says where a text that was typed is no JSON.
func checkJSON(name, s string) error {
	var v json.RawMessage
	err := json.Unmarshal([]byte(s), &v)
	if err == nil {
		return nil
	}
	at := len(s)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = min(max(int(e.Offset)-1, 0), len(s))
	}
	line := strings.Count(s[:at], "\n") + 1
	column := at - strings.LastIndex(s[:at], "\n")
	return mistake("{%s} is no JSON: %s (line %d, column %d): write a text in quotes, as in \"ada\"", name,
		strings.TrimPrefix(err.Error(), "json: "), line, column)
}
