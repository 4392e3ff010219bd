package cron_test

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/cron"
)

// changes are the zones and years whose clock changes the tests cover.
var changes = []struct {
	zone string
	year int
}{
	{"UTC", 2026},
	{"America/New_York", 2026},
	{"Europe/London", 2026},
	{"Africa/Cairo", 2026},        // at midnight, forward and back
	{"Australia/Lord_Howe", 2026}, // by half an hour
	{"America/Sao_Paulo", 2018},   // at midnight
	{"America/Santiago", 2026},    // at midnight, south
	{"Antarctica/Troll", 2026},    // by two hours
	{"Africa/Casablanca", 2026},   // back for Ramadan
	{"Pacific/Apia", 2011},        // a day left out
	{"Asia/Kathmandu", 1986},      // by a quarter of an hour, once
	{"Asia/Kathmandu", 2026},
	{"Asia/Beirut", 2026},
	{"America/Havana", 2026},
	{"Asia/Gaza", 2026},
	{"Pacific/Kwajalein", 1993}, // a day left out
	{"America/Caracas", 2016},
	{"Asia/Pyongyang", 2018},
	{"America/New_York", 2028},    // leap years, on whose last day package time errs where a zone's file
	{"America/New_York", 2040},    // lists no more changes: after 2007 or after 2037, as the file was made
	{"Australia/Lord_Howe", 2040}, // the same in summer
}

// moments returns the changes of loc's clocks in year, and the end of the year.
func moments(loc *time.Location, year int) []time.Time {
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	all := []time.Time{end}
	_, before := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).In(loc).Zone()
	for t := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); t.Before(end); t = t.Add(30 * time.Minute) {
		if _, offset := t.In(loc).Zone(); offset != before {
			all, before = append(all, t), offset
		}
	}
	return all
}

// checkNext compares Next after each of refs with ticks, which are all ticks from the first of refs to to.
func checkNext(t *testing.T, s *cron.Schedule, ticks []int64, to int64, refs []time.Time) {
	t.Helper()
	for _, ref := range refs {
		got, ok := s.Next(ref)
		i := sort.Search(len(ticks), func(i int) bool { return ticks[i] > ref.Unix() })
		switch {
		case i == len(ticks): // later than the period
			if ok && got.Unix() < to {
				t.Fatalf("%q after %v: got %v, want none before %v", s, ref, got, time.Unix(to, 0))
			}
		case !ok || got.Unix() != ticks[i]:
			t.Fatalf("%q after %v: got %v %v, want %v", s, ref, got, ok, time.Unix(ticks[i], 0).In(ref.Location()))
		case got.Location() != time.UTC || got.Nanosecond() != 0:
			t.Fatalf("%q after %v: got %v, want whole seconds in UTC", s, ref, got)
		}
	}
}

// checkBetween compares Between with the reference's ticks for random periods.
func checkBetween(t *testing.T, r random, s *cron.Schedule, ticks []int64, from, to int64) {
	t.Helper()
	after := from + r.Int64N(to-from)
	until := after + r.Int64N(to-after)
	first := sort.Search(len(ticks), func(i int) bool { return ticks[i] > after })
	last := sort.Search(len(ticks), func(i int) bool { return ticks[i] > until })
	want := ticks[first:last]
	most := r.IntN(12)
	skip := len(want) > most
	if skip {
		want = want[len(want)-most:]
	}
	times, skipped := s.Between(time.Unix(after, 999), time.Unix(until, 999), most)
	var got []int64
	for _, g := range times {
		got = append(got, g.Unix())
	}
	if !slices.Equal(got, want) || skipped != skip {
		t.Fatalf("%q in (%v, %v], at most %d: got %v %v, want %v %v", s, time.Unix(after, 0), time.Unix(until, 0), most,
			got, skipped, want, skip)
	}
}

// Around every change of the clocks a schedule fires exactly when the reference, which reads them every second, says
// so.
func TestNextAroundChanges(t *testing.T) {
	t.Parallel()
	fixed := []string{
		"30 2 * * *", "0 2 * * *", "0 3 * * *", "30 1 * * *", "0 0 * * *", "30 0 * * *", "30 23 * * *", "0 12 30 12 *",
		"0 12 * * *",
		"* * * * *", "*/15 * * * *", "30 * * * *", "*/20 1 * * *", "* 2 * * *", "0 */2 * * *", "30 0-3 * * *",
		"15 1-23/2 * * *",
		"0 0 * * 0", "0 0 L * *", "30 2 * * 0#2", "0 0 1 * *", "59 23 * * 6L", "*/7 0-4 29W * *", "0 */24 * * *",
		"0 0-23 * * *",
	}
	total := 0
	for _, c := range changes {
		loc := zone(t, c.zone)
		for _, change := range moments(loc, c.year) {
			r := newRandom(uint64(change.Unix()))
			var exprs []string
			for range 2 * rounds() {
				exprs = append(exprs, fixed[r.IntN(len(fixed))], fmt.Sprintf("%s %s * %s", r.clock(), r.day(),
					r.weekday()))
			}
			for range r.IntN(2) * rounds() {
				exprs = append(exprs, fmt.Sprintf("%s %s * * *", r.list(0, 59), r.clock()))
			}
			a := around{change: change, loc: loc}
			for _, expr := range exprs {
				total += a.check(t, r, expr)
			}
		}
	}
	t.Log(total, "comparisons")
}

// around is the time around a change of the clocks.
type around struct {
	change           time.Time
	loc              *time.Location
	minutes, seconds *watch // made when needed
}

func (a *around) check(t *testing.T, r random, expr string) (comparisons int) {
	t.Helper()
	s, err := cron.Parse(expr, a.loc)
	never := errors.Is(err, cron.ErrNeverFires) // as 3W on a Sunday
	if err != nil && !never {
		t.Fatal(err)
	}
	ref := newReference(expr)
	from, to := a.change.Add(-30*time.Hour).Unix(), a.change.Add(50*time.Hour).Unix()
	var ticks []int64
	if ref.fields[0] == "0" {
		if a.minutes == nil {
			a.minutes = newWatch(from, to, 6*3600, 60, a.loc)
		}
		ticks = ref.ticks(a.minutes, from)
	} else {
		from, to = a.change.Add(-90*time.Minute).Unix(), a.change.Add(4*time.Hour).Unix()
		if a.seconds == nil {
			a.seconds = newWatch(from, to, 2*3600, 1, a.loc)
		}
		ticks = ref.ticks(a.seconds, from)
	}
	if never {
		if ticks != nil {
			t.Fatalf("%v, but it does at %v", err, time.Unix(ticks[0], 0))
		}
		return 0
	}
	// One tick after the other near the change, and from random times.
	refs := []time.Time{time.Unix(from-1, 0)}
	near := sort.Search(len(ticks), func(i int) bool { return ticks[i] >= a.change.Add(-75*time.Minute).Unix() })
	for _, tick := range ticks[max(0, near-5):min(len(ticks), near+25)] {
		refs = append(refs, time.Unix(tick, 0))
	}
	for d := -120 * time.Minute; d <= 120*time.Minute; d += 20 * time.Minute {
		for _, ref := range []time.Time{
			a.change.Add(d), a.change.Add(d - time.Nanosecond).In(a.loc),
			a.change.Add(d + time.Duration(r.Int64N(int64(20*time.Minute)))),
		} {
			if ref.Unix() >= from-1 {
				refs = append(refs, ref)
			}
		}
	}
	checkNext(t, s, ticks, to, refs)
	checkBetween(t, r, s, ticks, from, to)
	return len(refs)
}

// In UTC gronx alone computes the ticks. The test covers all forms, even those that fire once in decades, from 1995 to
// 2065.
func TestNextOfRareDays(t *testing.T) {
	t.Parallel()
	r := newRandom(1)
	from := time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC)
	to := time.Date(2065, 1, 1, 0, 0, 0, 0, time.UTC)
	exprs := []string{
		"0 0 0 29 2 * *", "0 0 0 29 2 */7 *", "0 0 0 * 2 5#5 *", "0 0 0 */28 2 5#5 *", "0 0 0 31W * * *",
		"0 0 0 1W * * *", "0 0 0 30W * 7L *",
		"0 0 0 1 1 * 2024/2", "0 0 0 1 1 * 2024/20", "0 0 0 1 1 * 1999", "0 0 0 L 2 * */4", "0 0 0 13 * */5 *",
		"0 0 0 1 1 */7 */3",
	}
	for range 25 * rounds() {
		exprs = append(exprs, fmt.Sprintf("0 0 0 %s %s %s %s", r.day(), r.month(), r.weekday(), r.year()))
	}
	never, total := 0, 0
	for _, expr := range exprs {
		s, err := cron.Parse(expr, time.UTC)
		if errors.Is(err, cron.ErrNeverFires) {
			never++
		} else if err != nil {
			t.Fatal(err)
		}
		ref := newReference(expr)
		var ticks []int64
		for d := from; d.Before(to); d = d.AddDate(0, 0, 1) {
			if ref.matchesDay(d) {
				ticks = append(ticks, d.Unix())
			}
		}
		if s == nil {
			if i := sort.Search(len(ticks), func(i int) bool { return ticks[i] > 0 }); i < len(ticks) {
				t.Fatalf("%q: %v, but it does on %v", expr, err, time.Unix(ticks[i], 0).UTC())
			}
			continue
		}
		var refs []time.Time
		for range 20 {
			refs = append(refs, time.Unix(from.Unix()+r.Int64N(to.Unix()-from.Unix()), r.Int64N(1e9)))
		}
		i := r.IntN(max(1, len(ticks)-20))
		for _, tick := range ticks[i:min(len(ticks), i+20)] {
			refs = append(refs, time.Unix(tick, 0))
		}
		checkNext(t, s, ticks, to.Unix(), append(refs, from.Add(-time.Second)))
		total += len(refs) + 1
	}
	t.Log(total, "comparisons,", never, "of", len(exprs), "never fire")
}
