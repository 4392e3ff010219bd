package cron_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones everywhere

	"github.com/kagzi/kagzi/internal/cron"
)

// The reference finds the ticks of a schedule by testing every second or minute of a period. It uses neither gronx nor
// Parse, and reads plain digits only.
type reference struct {
	fields               []string // seconds first, year last
	second, minute, hour [60]bool
	days                 map[int64]bool
}

func newReference(expr string) *reference {
	f := strings.Fields(expr)
	if len(f) == 5 {
		f = append([]string{"0"}, f...)
	}
	if len(f) == 6 {
		f = append(f, "*")
	}
	r := &reference{fields: f, days: map[int64]bool{}}
	for i := range 60 {
		r.second[i] = listed(f[0], i, 0, 59)
		r.minute[i] = listed(f[1], i, 0, 59)
		r.hour[i] = listed(f[2], i, 0, 23)
	}
	return r
}

// everyHour reports whether the schedule follows real time: its hour is *, or has a step.
func (r *reference) everyHour() bool {
	for p := range strings.SplitSeq(r.fields[2], ",") {
		values := 0
		for h := range 24 {
			if listed(p, h, 0, 23) {
				values++
			}
		}
		_, step, stepped := strings.Cut(p, "/")
		if values == 24 || stepped && step != "1" && values > 1 {
			return true
		}
	}
	return false
}

// A watch has the times that clocks show in a period, one every step seconds.
type watch struct {
	from, step int64
	walls      []int64 // as the second at which clocks in UTC show the same
}

// newWatch reads the clocks in [from, to), and for some time before, for the times that they have shown already.
func newWatch(from, to, earlier, step int64, loc *time.Location) *watch {
	start := from - earlier
	w := &watch{from: start - start%60, step: step}
	for u := w.from; u < to; u += step {
		t := time.Unix(u, 0).In(loc)
		w.walls = append(w.walls, time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0,
			time.UTC).Unix())
	}
	return w
}

// ticks returns the ticks of the schedule from the second from on.
func (r *reference) ticks(w *watch, from int64) []int64 {
	var ticks []int64
	everyHour, latest := r.everyHour(), w.walls[0] // the latest wall-clock time shown so far
	for i, wall := range w.walls[1:] {
		fires := false
		switch {
		case everyHour:
			fires = r.matches(wall)
		case wall > latest:
			fires = r.matches(wall)
			for skipped := latest + w.step; skipped < wall && !fires; skipped += w.step {
				fires = r.matches(skipped)
			}
		}
		latest = max(latest, wall)
		if u := w.from + int64(i+1)*w.step; fires && u >= from {
			ticks = append(ticks, u)
		}
	}
	return ticks
}

func (r *reference) matches(wall int64) bool {
	t := time.Unix(wall, 0).UTC()
	if !r.second[t.Second()] || !r.minute[t.Minute()] || !r.hour[t.Hour()] {
		return false
	}
	day := t.Truncate(24 * time.Hour)
	match, known := r.days[day.Unix()]
	if !known {
		match = r.matchesDay(day)
		r.days[day.Unix()] = match
	}
	return match
}

func (r *reference) matchesDay(t time.Time) bool {
	day, weekday := r.fields[3], r.fields[5]
	if !listed(r.fields[4], int(t.Month()), 1, 12) || !listed(r.fields[6], t.Year(), 0, 9999) {
		return false
	}
	if day[0] == '*' || weekday[0] == '*' {
		return matchesDayOfMonth(day, t) && matchesWeekday(weekday, t)
	}
	return matchesDayOfMonth(day, t) || matchesWeekday(weekday, t)
}

func matchesDayOfMonth(field string, t time.Time) bool {
	last := time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	for p := range strings.SplitSeq(field, ",") {
		if p == "L" && t.Day() == last {
			return true
		}
		if n, ok := strings.CutSuffix(p, "W"); ok && number(n) <= last {
			working := number(n)
			switch t.AddDate(0, 0, working-t.Day()).Weekday() {
			case time.Saturday:
				working--
				if working == 0 {
					working = 3
				}
			case time.Sunday:
				working++
				if working > last {
					working = last - 2
				}
			}
			if t.Day() == working {
				return true
			}
		}
	}
	return listed(field, t.Day(), 1, 31)
}

func matchesWeekday(field string, t time.Time) bool {
	weekday := int(t.Weekday())
	for p := range strings.SplitSeq(field, ",") {
		if n, ok := strings.CutSuffix(p, "L"); ok && number(n)%7 == weekday && t.AddDate(0, 0, 7).Month() != t.Month() {
			return true
		}
		if n, k, ok := strings.Cut(p, "#"); ok && number(n)%7 == weekday && (t.Day()+6)/7 == number(k) {
			return true
		}
	}
	for p := range strings.SplitSeq(field, ",") {
		if weekday == 0 && (p == "7" || strings.Contains(p, "-")) && listed(p, 7, 0, 7) { // Sunday is 7 as well
			return true
		}
	}
	return listed(field, weekday, 0, 6)
}

// listed reports whether a field's plain parts contain v.
func listed(field string, v, lo, hi int) bool {
	for p := range strings.SplitSeq(field, ",") {
		if strings.ContainsAny(p, "LW#") {
			continue
		}
		body, stepText, stepped := strings.Cut(p, "/")
		from, to, step := lo, hi, 1
		if stepped {
			step = number(stepText)
		}
		if body != "*" {
			first, last, ranged := strings.Cut(body, "-")
			from = number(first)
			switch {
			case ranged:
				to = number(last)
			case !stepped:
				to = from
			}
		}
		if from <= v && v <= to && (v-from)%step == 0 {
			return true
		}
	}
	return false
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// ---- helpers of the tests ----

// rounds multiplies the random part of the tests: KAGZI_CRON_ROUNDS=50 go test ./internal/cron.
func rounds() int {
	n, err := strconv.Atoi(os.Getenv("KAGZI_CRON_ROUNDS"))
	if err != nil {
		return 1
	}
	return n
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := cron.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parse(t testing.TB, expr string, loc *time.Location) *cron.Schedule {
	t.Helper()
	s, err := cron.Parse(expr, loc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A writer writes random expressions.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 20))} }

func (r random) between(lo, hi int) int { return lo + r.IntN(hi-lo+1) }

func (r random) part(lo, hi int) string {
	from := r.between(lo, hi)
	to := r.between(from, hi)
	switch kind := r.IntN(5); {
	case from == lo && to == hi: // refused in lists
	case kind == 0:
		return fmt.Sprintf("%d-%d", from, to)
	case kind == 1:
		return fmt.Sprintf("%d-%d/%d", from, to, r.between(1, min(9, hi-lo+1)))
	case kind == 2:
		return fmt.Sprintf("%d/%d", from, r.between(2, 6))
	}
	return strconv.Itoa(from)
}

func (r random) list(lo, hi int) string {
	parts := []string{r.part(lo, hi)}
	for r.IntN(3) == 0 {
		parts = append(parts, r.part(lo, hi))
	}
	return strings.Join(parts, ",")
}

// clock prefers the hours in which clocks change.
func (r random) clock() string {
	minute := []string{"0", "30", "*", "*/15", strconv.Itoa(r.between(0, 59)), r.list(0, 59)}[r.IntN(6)]
	hour := []string{
		"*", "*/" + strconv.Itoa(r.between(2, 8)), "0", "1,2", "0-3", "23", strconv.Itoa(r.between(0, 5)),
		strconv.Itoa(r.between(0, 23)), r.list(0, 23),
	}[r.IntN(9)]
	return minute + " " + hour
}

func (r random) day() string {
	switch r.IntN(8) {
	case 0:
		return "L"
	case 1:
		return fmt.Sprintf("%dW", r.between(1, 31))
	case 2:
		return fmt.Sprintf("%s,%dW,L", r.part(1, 31), r.between(1, 31))
	case 3:
		return fmt.Sprintf("*/%d", r.between(2, 31))
	case 4:
		return r.list(1, 31)
	}
	return "*"
}

func (r random) month() string {
	return []string{"*", "*", "*", "2", r.list(1, 12), fmt.Sprintf("*/%d", r.between(2, 6))}[r.IntN(6)]
}

func (r random) weekday() string {
	switch r.IntN(8) {
	case 0:
		return fmt.Sprintf("%dL", r.between(0, 7))
	case 1:
		return fmt.Sprintf("%d#%d", r.between(0, 7), r.between(1, 5))
	case 2:
		return fmt.Sprintf("%d#%d,%dL,%d", r.between(0, 7), r.between(1, 5), r.between(0, 7), r.between(0, 6))
	case 3:
		return fmt.Sprintf("*/%d", r.between(2, 7))
	case 4:
		from := r.between(0, 7)
		return fmt.Sprintf("%d-%d", from, r.between(from, 7))
	case 5:
		return r.list(0, 6)
	}
	return "*"
}

func (r random) year() string {
	from := r.between(1995, 2040)
	return []string{
		"*", "*", strconv.Itoa(from), fmt.Sprintf("*/%d", r.between(2, 9)),
		fmt.Sprintf("%d/%d", from, r.between(2, 20)), fmt.Sprintf("%d-%d", from, r.between(from, 2060)),
	}[r.IntN(6)]
}
