package cron_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/cron"
)

// dst has clock changes worked out by hand: all ticks of a period, as local times with their offsets.
var dst = []struct {
	name, zone, expr string
	after, until     string
	want             []string
}{
	{
		"a fixed time in the gap fires at its end", "America/New_York", "30 2 * * *",
		"2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00",
		[]string{"03-07 02:30 -0500", "03-08 03:00 -0400", "03-09 02:30 -0400"},
	},
	{
		"several fixed times in the gap fire once", "Europe/London", "0,20,40 1 * * *",
		"2026-03-29T00:00:00Z", "2026-03-30T00:00:00+01:00",
		[]string{"03-29 02:00 +0100"},
	},
	{
		"the end of the gap is also a tick of its own: once", "America/New_York", "30 2,3 * * *",
		"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
		[]string{"03-08 03:00 -0400", "03-08 03:30 -0400"},
	},
	{
		"the end of the gap coincides with a tick: once", "America/New_York", "0 2,3 * * *",
		"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
		[]string{"03-08 03:00 -0400"},
	},
	{
		"a fixed time in the overlap fires in the first pass", "America/New_York", "30 1 * * *",
		"2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00",
		[]string{"11-01 01:30 -0400", "11-02 01:30 -0500"},
	},
	{
		"every minute of a fixed hour: the first pass only", "Europe/London", "*/20 1 * * *",
		"2026-10-25T00:00:00+01:00", "2026-10-25T12:00:00Z",
		[]string{"10-25 01:00 +0100", "10-25 01:20 +0100", "10-25 01:40 +0100"},
	},
	{
		"every hour in the gap: nothing", "America/New_York", "30 * * * *",
		"2026-03-08T00:00:00-05:00", "2026-03-08T05:00:00-04:00",
		[]string{"03-08 00:30 -0500", "03-08 01:30 -0500", "03-08 03:30 -0400", "03-08 04:30 -0400"},
	},
	{
		"every hour in the overlap: both passes", "America/New_York", "30 * * * *",
		"2026-11-01T00:00:00-04:00", "2026-11-01T03:00:00-05:00",
		[]string{"11-01 00:30 -0400", "11-01 01:30 -0400", "11-01 01:30 -0500", "11-01 02:30 -0500"},
	},
	{
		"hours with a step in the overlap: both passes", "Europe/London", "0 1/3 * * *",
		"2026-10-25T00:00:00+01:00", "2026-10-25T06:00:00Z",
		[]string{"10-25 01:00 +0100", "10-25 01:00 +0000", "10-25 04:00 +0000"},
	},
	{
		"a step of one value is a fixed hour", "Africa/Cairo", "0 */24 * * *",
		"2026-04-23T12:00:00+02:00", "2026-04-25T12:00:00+03:00",
		[]string{"04-24 01:00 +0300", "04-25 00:00 +0300"},
	},
	{
		"midnight in the gap", "Africa/Cairo", "@daily",
		"2026-04-22T12:00:00+02:00", "2026-04-25T12:00:00+03:00",
		[]string{"04-23 00:00 +0200", "04-24 01:00 +0300", "04-25 00:00 +0300"},
	},
	{
		"the last hour of the day twice", "Africa/Cairo", "30 23 * * *",
		"2026-10-28T12:00:00+03:00", "2026-10-31T12:00:00+02:00",
		[]string{"10-28 23:30 +0300", "10-29 23:30 +0300", "10-30 23:30 +0200"},
	},
	{
		"midnight after the last hour twice", "Africa/Cairo", "@daily",
		"2026-10-28T12:00:00+03:00", "2026-10-31T12:00:00+02:00",
		[]string{"10-29 00:00 +0300", "10-30 00:00 +0200", "10-31 00:00 +0200"},
	},
	{
		"midnight in the gap, southern", "America/Sao_Paulo", "0 0 * * *",
		"2018-11-03T12:00:00-03:00", "2018-11-05T12:00:00-02:00",
		[]string{"11-04 01:00 -0200", "11-05 00:00 -0200"},
	},
	{
		"a week whose midnight is in the gap", "America/Santiago", "0 0 * * 0",
		"2026-08-31T00:00:00-04:00", "2026-09-15T00:00:00-03:00",
		[]string{"09-06 01:00 -0300", "09-13 00:00 -0300"},
	},
	{
		"a gap of half an hour", "Australia/Lord_Howe", "15 2 * * *",
		"2026-10-03T12:00:00+10:30", "2026-10-05T12:00:00+11:00",
		[]string{"10-04 02:30 +1100", "10-05 02:15 +1100"},
	},
	{
		"an overlap of half an hour, every hour", "Australia/Lord_Howe", "45 * * * *",
		"2026-04-05T01:00:00+11:00", "2026-04-05T03:00:00+10:30",
		[]string{"04-05 01:45 +1100", "04-05 01:45 +1030", "04-05 02:45 +1030"},
	},
	{
		"a gap of two hours", "Antarctica/Troll", "30 1,2 * * *",
		"2026-03-29T00:00:00Z", "2026-03-30T00:00:00+02:00",
		[]string{"03-29 03:00 +0200"},
	},
	{
		"a day left out", "Pacific/Apia", "0 12 * * *",
		"2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
		[]string{"12-29 12:00 -1000", "12-31 00:00 +1400", "12-31 12:00 +1400"},
	},
	{
		"back for Ramadan", "Africa/Casablanca", "30 2 * * *",
		"2026-02-14T12:00:00+01:00", "2026-02-16T12:00:00Z",
		[]string{"02-15 02:30 +0100", "02-16 02:30 +0000"},
	},
	{
		"no change at all", "Asia/Kathmandu", "15 0 * * *",
		"2026-03-28T12:00:00+05:45", "2026-03-30T12:00:00+05:45",
		[]string{"03-29 00:15 +0545", "03-30 00:15 +0545"},
	},
}

func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range dst {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, c.zone)
			ticks, skipped := parse(t, c.expr, loc).Between(instant(t, c.after), instant(t, c.until), 100)
			var got []string
			for _, tick := range ticks {
				got = append(got, tick.In(loc).Format("01-02 15:04 -0700"))
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || skipped {
				t.Errorf("%s in %s: got %q, want %q", c.expr, c.zone, got, c.want)
			}
		})
	}
}

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A loop over Next goes forward wherever it begins.
func TestNextMakesProgress(t *testing.T) {
	t.Parallel()
	r := newRandom(3)
	for range 40 * rounds() {
		c := changes[r.IntN(len(changes))]
		loc := zone(t, c.zone)
		all := moments(loc, c.year)
		expr := fmt.Sprintf("%s %s %s %s %s", r.list(0, 59), r.clock(), r.day(), r.month(), r.weekday())
		s, err := cron.Parse(expr, loc)
		if err != nil {
			continue
		}
		ref := all[r.IntN(len(all))].Add(time.Duration(r.Int64N(int64(72*time.Hour))) - 48*time.Hour)
		for range 30 {
			next, ok := s.Next(ref)
			if !ok || !next.After(ref) {
				t.Fatalf("%q in %s after %v: got %v %v", expr, c.zone, ref, next, ok)
			}
			ref = next
		}
	}
}

func TestNextAtTheEnds(t *testing.T) {
	t.Parallel()
	daily := parse(t, "@daily", zone(t, "America/New_York"))
	every, err := cron.Every(time.Hour, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*cron.Schedule{daily, every} {
		for _, late := range []time.Time{
			time.Date(9999, 12, 31, 23, 59, 59, 1, time.UTC),
			time.Unix(math.MaxInt64/2, 0), time.Unix(math.MaxInt64, 0),
		} {
			if got, ok := s.Next(late); ok {
				t.Errorf("%v after %v: got %v", s, late, got)
			}
		}
		for _, early := range []time.Time{{}, time.Unix(math.MinInt64/2, 0), time.Unix(math.MinInt64, 0)} {
			if got, ok := s.Next(early); !ok || got.Year() != 1 {
				t.Errorf("%v after %v: got %v %v", s, early, got, ok)
			}
		}
		if got, skipped := s.Between(time.Unix(math.MinInt64, 0), time.Unix(math.MaxInt64, 0), 2); len(got) != 2 ||
			!skipped || got[1].Year() != 9999 {
			t.Errorf("%v in all of time: got %v %v", s, got, skipped)
		}
	}

	gone := parse(t, "0 0 0 1 1 * 2020-2022", nil) // no error: a stored schedule must be readable in 2023
	if got, ok := gone.Next(instant(t, "2021-06-01T00:00:00Z")); !ok || got.Year() != 2022 {
		t.Errorf("2022: got %v %v", got, ok)
	}
	if got, ok := gone.Next(instant(t, "2022-01-01T00:00:00Z")); ok {
		t.Errorf("after 2022: got %v", got)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	anchor := instant(t, "2026-03-08T00:00:30.5Z")
	s, err := cron.Every(90*time.Minute, anchor)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[string]string{
		"2026-03-08T00:00:29Z":           "2026-03-08T00:00:30Z",
		"2026-03-08T00:00:29.999999999Z": "2026-03-08T00:00:30Z",
		"2026-03-08T00:00:30Z":           "2026-03-08T01:30:30Z",
		"2026-03-08T00:00:30.1Z":         "2026-03-08T01:30:30Z",
		"2026-03-08T23:00:00-05:00":      "2026-03-09T04:30:30Z",
		"2026-03-07T00:00:00Z":           "2026-03-07T00:00:30Z", // before the anchor too
	} {
		if got, ok := s.Next(instant(t, after)); !ok || got.Format(time.RFC3339Nano) != want {
			t.Errorf("after %s: got %v %v, want %s", after, got, ok, want)
		}
	}
	if s.String() != "every 1h30m0s" {
		t.Errorf("String: got %q", s)
	}
	ticks, skipped := s.Between(anchor, anchor.AddDate(1, 0, 0), 3)
	want := "[2027-03-07 21:00:30 +0000 UTC 2027-03-07 22:30:30 +0000 UTC 2027-03-08 00:00:30 +0000 UTC]"
	if fmt.Sprint(ticks) != want || !skipped {
		t.Errorf("Between: got %v %v, want %s", ticks, skipped, want)
	}
	for d, want := range map[time.Duration]string{
		0: "Every is 0s: give at least 1s", -time.Hour: "Every is -1h0m0s: give at least 1s",
		1500 * time.Millisecond: "Every is 1.5s: give whole seconds",
		30:                      "Every is 30ns: give at least 1s (a time.Duration counts nanoseconds: 30*time.Second)",
	} {
		if s, err := cron.Every(d, anchor); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: got %v, %v, want %q", d, s, err, want)
		}
	}
	longest, err := cron.Every(math.MaxInt64/time.Second*time.Second, anchor)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := longest.Next(anchor); !ok || got.Year() != 2318 {
		t.Errorf("292 years: got %v %v", got, ok)
	}
}

// If both day fields are restricted, either may match. A field that begins with * is not restricted, so both must
// match.
func TestTwoDayFields(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 7 1 * mon":   "[1 2 9 16 23 30]", // June 2025 begins on a Sunday
		"0 7 */2 * mon": "[9 23]",
		"0 7 1 * */2":   "[1]",
		"0 7 * * mon":   "[2 9 16 23 30]",
	} {
		ticks, _ := parse(t, expr, nil).Between(instant(t, "2025-06-01T00:00:00Z"),
			instant(t, "2025-06-30T23:59:59Z"), 100)
		var days []int
		for _, tick := range ticks {
			days = append(days, tick.Day())
		}
		if fmt.Sprint(days) != want {
			t.Errorf("%s fires on %v, want %s", expr, days, want)
		}
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	until := instant(t, "2026-11-01T12:00:00Z")
	for _, c := range []struct {
		name, expr string
		back       time.Duration
		most, want int
		skipped    bool
	}{
		{"three days of every second", "* * * * * *", 72 * time.Hour, 100, 100, true},
		{"all of them", "* * * * * *", time.Minute, 60, 60, false},
		{"one too many", "* * * * * *", time.Minute, 59, 59, true},
		{"none wanted", "* * * * * *", time.Minute, 0, 0, true},
		{"none wanted, none there", "0 0 1 1 *", time.Minute, 0, 0, false},
		{"fewer than none", "* * * * *", time.Hour, -1, 0, true},
		{"without limit", "0 * * * *", 24 * time.Hour, math.MaxInt, 24, false},
		{"none", "0 0 1 1 *", 24 * time.Hour, 10, 0, false},
		{"nothing to look at", "* * * * *", 0, 10, 0, false},
		{"backwards", "* * * * *", -time.Hour, 10, 0, false},
		{"a burst once a year", "* * * 1 1 *", 3 * 365 * 24 * time.Hour, 100, 100, true},
		{"ten of a century", "0 0 1 1 *", 100 * 365 * 24 * time.Hour, 10, 10, true},
		{"a century of leap days", "0 0 29 2 *", 100 * 365 * 24 * time.Hour, 100, 25, false},
	} {
		s := parse(t, c.expr, zone(t, "America/New_York"))
		got, skipped := s.Between(until.Add(-c.back), until, c.most)
		if len(got) != c.want || skipped != c.skipped {
			t.Errorf("%s: got %d %v, want %d %v", c.name, len(got), skipped, c.want, c.skipped)
			continue
		}
		for i, tick := range got {
			next, ok := s.Next(tick)
			switch {
			case i+1 < len(got) && (!ok || !next.Equal(got[i+1])):
				t.Errorf("%s: after %v comes %v, not %v", c.name, tick, next, got[i+1])
			case i+1 == len(got) && ok && !next.After(until):
				t.Errorf("%s: the last is %v, but %v follows", c.name, tick, next)
			}
		}
	}
}

// The work depends on the number of ticks asked for, not on the number missed. The test counts allocations, 20 to 100
// for each tick, because time depends on the load of the machine.
func TestBetweenIsBounded(t *testing.T) {
	until := instant(t, "2026-11-01T12:00:00Z")
	for _, c := range []struct {
		expr string
		back time.Duration
		most float64
	}{
		{"* * * * * *", 3 * 24 * time.Hour, 10_000}, // all: 5,000,000
		{"* * * * *", 365 * 24 * time.Hour, 50_000},
		{"* * * 1 1 *", 3 * 365 * 24 * time.Hour, 200_000},
		{"* * * 1 1 *", 200 * 24 * time.Hour, 20_000},
	} {
		s := parse(t, c.expr, zone(t, "America/New_York"))
		if n := testing.AllocsPerRun(1, func() { s.Between(until.Add(-c.back), until, 100) }); n > c.most {
			t.Errorf("%q over %v: %v allocations, want at most %v", c.expr, c.back, n, c.most)
		}
	}
}

func TestScheduleIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := parse(t, "*/5 1-4 L * 5#2", zone(t, "Europe/London"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			ref := instant(t, "2026-10-01T00:00:00Z")
			for range 200 {
				ref, _ = s.Next(ref)
			}
			if got := ref.Format(time.RFC3339); got != "2026-12-11T01:35:00Z" {
				t.Errorf("got %s", got)
			}
		})
	}
	wg.Wait()
}

func BenchmarkNext(b *testing.B) {
	newYork := zone(b, "America/New_York")
	ref := instant(b, "2026-11-01T12:00:00Z")
	for _, expr := range []string{
		"* * * * * *", "*/5 * * * *", "30 7 * * 1-5", "0 0 L * *", "0 9 * * 5#2",
		"0 0 29 2 *", "0 0 * 2 5#5", "0 0 0 1 1 * 9999",
	} {
		b.Run(expr, func(b *testing.B) {
			s := parse(b, expr, newYork)
			for b.Loop() {
				s.Next(ref)
			}
		})
	}
}

func BenchmarkBetween(b *testing.B) {
	newYork := zone(b, "America/New_York")
	until := instant(b, "2026-11-01T12:00:00Z")
	for _, c := range []struct {
		expr string
		days int
	}{
		{"* * * * * *", 3},
		{"* * * * *", 3},
		{"0 7 * * *", 3},
		{"0 7 * * *", 365},
		{"* * * 1 1 *", 1095},
		{"0 0 29 2 *", 36500},
	} {
		b.Run(fmt.Sprintf("%s over %d days", c.expr, c.days), func(b *testing.B) {
			s := parse(b, c.expr, newYork)
			for b.Loop() {
				s.Between(until.AddDate(0, 0, -c.days), until, 100)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, expr := range []string{"30 7 * * 1-5", "0 0 30 2 *"} {
		b.Run(expr, func(b *testing.B) {
			for b.Loop() {
				cron.Parse(expr, nil)
			}
		})
	}
}
