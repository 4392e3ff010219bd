package timetable

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// scheduleOf returns a schedule with spec, after change.
func scheduleOf(t *testing.T, spec Spec, change func(*Schedule)) *Schedule {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &Schedule{ID: uuid.New(), CatchUp: 100, Spec: data}
	change(s)
	return s
}

// The schedule is hourly, and its cursor is at midnight.
func TestDecide(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	at := func(hour int, minute ...int) time.Time {
		tm := day.Add(time.Duration(hour) * time.Hour)
		for _, m := range minute {
			tm = tm.Add(time.Duration(m) * time.Minute)
		}
		return tm
	}
	for name, tc := range map[string]struct {
		spec   Spec
		change func(*Schedule)
		now    time.Time
		budget int
		ticks  []int // hours
		queued bool
		cursor time.Time
		next   time.Time

		replace bool
	}{
		"OneTick":    {now: at(1), ticks: []int{1}, cursor: at(1), next: at(2)},
		"NothingYet": {now: at(0, 59), cursor: at(0), next: at(1)},
		"Missed":     {now: at(3, 30), ticks: []int{1, 2, 3}, cursor: at(3), next: at(4)},
		"NewestKept": {
			change: func(s *Schedule) { s.CatchUp = 2 }, now: at(9), ticks: []int{8, 9},
			cursor: at(9), next: at(10),
		},
		"TooOld": {
			spec: Spec{CatchUpAge: 90 * time.Minute}, now: at(9, 10), ticks: []int{8, 9},
			cursor: at(9), next: at(10),
		},
		"AllTooOld":     {spec: Spec{CatchUpAge: time.Minute}, now: at(9, 10), cursor: at(9), next: at(10)},
		"ClockWentBack": {now: at(-5), cursor: at(0), next: at(1)},
		"Budget":        {now: at(5), budget: 2, ticks: []int{1, 2}, cursor: at(2), next: at(3)},
		"EndIncluded":   {spec: Spec{End: at(2)}, now: at(5), ticks: []int{1, 2}, cursor: at(2)},
		"EndBetween":    {spec: Spec{End: at(2, 30)}, now: at(2), ticks: []int{1, 2}, cursor: at(2)},
		"StartIncluded": {spec: Spec{Start: at(3)}, now: at(3), ticks: []int{3}, cursor: at(3), next: at(4)},
		"FractionOfStart": {
			spec: Spec{Start: at(3).Add(1500 * time.Microsecond)}, now: at(3), ticks: []int{3},
			cursor: at(3), next: at(4),
		},
		"CancelQueued": {
			change: func(s *Schedule) { s.Overlap, s.Queued = OverlapCancelPrevious, true },
			now:    at(3), replace: true,
		},
		"Cancelled": {
			change: func(s *Schedule) { s.Overlap, s.Cancelled = OverlapCancelPrevious, true },
			now:    at(3), ticks: []int{3}, cursor: at(3), next: at(4),
		},
		"CancelledActive": {change: func(s *Schedule) {
			s.Overlap, s.Active, s.Cancelled = OverlapCancelPrevious, true, true
		}, now: at(3), ticks: []int{3}, queued: true, cursor: at(3), next: at(4)},
		"BeforeStart": {spec: Spec{Start: at(3, 30)}, now: at(3), cursor: at(0), next: at(3, 30)},
		"SkipFree": {
			change: func(s *Schedule) { s.Overlap = OverlapSkip }, now: at(3), ticks: []int{3},
			cursor: at(3), next: at(4),
		},
		"SkipActive": {
			change: func(s *Schedule) { s.Overlap, s.Active = OverlapSkip, true }, now: at(3),
			cursor: at(3), next: at(4),
		},
		"SkipQueued": {
			change: func(s *Schedule) { s.Overlap, s.Queued = OverlapSkip, true }, now: at(3),
			cursor: at(3), next: at(4),
		},
		"QueueFree": {
			change: func(s *Schedule) { s.Overlap = OverlapQueueOne }, now: at(3), ticks: []int{3},
			cursor: at(3), next: at(4),
		},
		"QueueActive": {
			change: func(s *Schedule) { s.Overlap, s.Active = OverlapQueueOne, true }, now: at(3),
			ticks: []int{3}, queued: true, cursor: at(3), next: at(4),
		},
		"QueueFull": {change: func(s *Schedule) {
			s.Overlap, s.Active, s.Queued = OverlapQueueOne, true, true
		}, now: at(3), cursor: at(3), next: at(4)},
		"CancelFree": {
			change: func(s *Schedule) { s.Overlap = OverlapCancelPrevious }, now: at(3),
			ticks: []int{3}, cursor: at(3), next: at(4),
		},
		"CancelActive": {
			change: func(s *Schedule) { s.Overlap, s.Active = OverlapCancelPrevious, true },
			now:    at(3), replace: true,
		},
		"AllowActive": {
			change: func(s *Schedule) { s.Active = true }, now: at(1), ticks: []int{1},
			cursor: at(1), next: at(2),
		},
		"OldTickNotReplaced": {spec: Spec{CatchUpAge: time.Minute}, change: func(s *Schedule) {
			s.Overlap, s.Active = OverlapCancelPrevious, true
		}, now: at(3, 30), cursor: at(3), next: at(4)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.spec.Every = time.Hour
			if tc.spec.Start.IsZero() {
				tc.spec.Start = at(-100)
			}
			s := scheduleOf(t, tc.spec, func(s *Schedule) {
				s.Cursor, s.Next = at(0), at(1)
				if tc.change != nil {
					tc.change(s)
				}
			})
			d, err := s.Decide(tc.now, cmp.Or(tc.budget, 1000))
			if err != nil {
				t.Fatal(err)
			}
			var ticks []time.Time
			for _, hour := range tc.ticks {
				ticks = append(ticks, at(hour))
			}
			if !slices.EqualFunc(d.Ticks, ticks, time.Time.Equal) || !d.Cursor.Equal(tc.cursor) ||
				!d.Next.Equal(tc.next) || d.Replace != tc.replace {
				t.Fatalf("decided %+v, want ticks %v, cursor %v, next %v, replace %t", d, ticks, tc.cursor, tc.next,
					tc.replace)
			}
			if len(d.Ticks) > 0 && d.Queued != tc.queued {
				t.Errorf("queued: %t", d.Queued)
			}
		})
	}
}

// A schedule for which no budget is left stays due and loses no tick.
func TestDecideWithoutBudget(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	s := scheduleOf(t, Spec{Every: time.Hour}, func(s *Schedule) { s.Cursor, s.Next = now.Add(-time.Hour), now })
	d, err := s.Decide(now, 0)
	if err != nil || len(d.Ticks) != 0 || !d.Cursor.IsZero() || !d.Next.Equal(now) {
		t.Errorf("decided %+v, %v", d, err)
	}
}

// Jitter delays all runs of a schedule equally, and different schedules differently.
func TestJitter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	offsets := map[time.Duration]bool{}
	for range 50 {
		s := scheduleOf(t, Spec{Every: time.Hour, Jitter: 30 * time.Minute}, func(s *Schedule) {
			s.Cursor, s.Next = now.Add(-time.Hour), now
		})
		table, err := s.Timetable()
		if err != nil {
			t.Fatal(err)
		}
		if table.Offset < 0 || table.Offset >= 30*time.Minute {
			t.Errorf("offset %v", table.Offset)
		}
		offsets[table.Offset] = true
		if d, err := s.Decide(now.Add(table.Offset-time.Microsecond), 10); err != nil || len(d.Ticks) != 0 ||
			!d.Next.Equal(now.Add(table.Offset)) {
			t.Errorf("before its time: %+v, %v", d, err)
		}
		if d, err := s.Decide(now.Add(table.Offset), 10); err != nil || len(d.Ticks) != 1 || !d.Ticks[0].Equal(now) ||
			!d.Next.Equal(now.Add(time.Hour+table.Offset)) {
			t.Errorf("at its time: %+v, %v", d, err)
		}
	}
	if len(offsets) < 40 {
		t.Errorf("50 schedules have %d offsets", len(offsets))
	}
}

// A schedule that is about to change fires the ticks that have come at once. Their run waits for an active run, even
// under the policy that would cancel that run.
func TestDecideBeforeChange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for overlap, queued := range map[string]bool{"": false, OverlapQueueOne: true, OverlapCancelPrevious: true} {
		s := scheduleOf(t, Spec{Every: time.Hour, Jitter: 30 * time.Minute}, func(s *Schedule) {
			s.ID = uuid.Max // nearly all of the jitter
			s.Cursor, s.Next, s.Overlap, s.Active = now.Add(-time.Hour), now.Add(29*time.Minute), overlap, true
		})
		d, err := s.DecideBeforeChange(now)
		if err != nil || len(d.Ticks) != 1 || !d.Ticks[0].Equal(now) || d.Queued != queued || d.Replace ||
			!d.Cursor.Equal(now) {
			t.Errorf("overlap %q: decided %+v, %v", overlap, d, err)
		}
	}
}

// A schedule whose row cannot be read decides nothing and returns the reason.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*Schedule{
		"read the schedule": {Cron: "* * * * *", Spec: []byte("[")},
		"whenever":          {Cron: "whenever", Spec: []byte("{}")},
		"Mars/Olympus":      {Cron: "* * * * *", TimeZone: "Mars/Olympus", Spec: []byte("{}")},
		"Every is 0s":       {Spec: []byte("{}")},
	} {
		_, err := s.Decide(time.Now(), 1)
		_, before := s.DecideBeforeChange(time.Now())
		_, fires := s.NextFires(time.Now(), 1)
		for _, err := range []error{err, before, fires} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		}
	}
}

// Two schedules have the same ticks if their timetables are equal, even if other fields differ.
func TestSameTicks(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	spec := Spec{Every: time.Hour, Start: start}
	a := scheduleOf(t, spec, func(*Schedule) {})
	for name, tc := range map[string]struct {
		spec   Spec
		change func(*Schedule)
		same   bool
	}{
		"Itself": {spec: spec, same: true},
		// the same instant
		"OtherZone": {spec: Spec{Every: time.Hour, Start: start.In(time.FixedZone("", 3600))}, same: true},
		"Later": {spec: Spec{Every: time.Hour, Start: start, Jitter: time.Minute}, change: func(s *Schedule) {
			s.Overlap = OverlapSkip
		}, same: true},
		"Every":        {spec: Spec{Every: time.Minute, Start: start}},
		"Start":        {spec: Spec{Every: time.Hour}},
		"End":          {spec: Spec{Every: time.Hour, Start: start, End: start}},
		"Cron":         {spec: spec, change: func(s *Schedule) { s.Cron = "* * * * *" }},
		"TimeZone":     {spec: spec, change: func(s *Schedule) { s.TimeZone = "UTC" }},
		"CannotBeRead": {spec: spec, change: func(s *Schedule) { s.Spec = nil }},
	} {
		b := scheduleOf(t, tc.spec, func(s *Schedule) {
			if tc.change != nil {
				tc.change(s)
			}
		})
		if SameTicks(a, b) != tc.same || SameTicks(b, a) != tc.same {
			t.Errorf("%s: want %t", name, tc.same)
		}
	}
}
