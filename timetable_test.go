package kagzi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

func templateOf(t *testing.T, spec scheduleSpec, change func(*store.Template)) *store.Template {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &store.Template{ID: uuid.New(), CatchUp: 100, Spec: data}
	change(tmpl)
	return tmpl
}

// What is decided for a schedule of every hour whose cursor is at midnight.
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
		spec   scheduleSpec
		change func(*store.Template)
		now    time.Time
		budget int
		ticks  []int // hours
		queued bool
		cursor time.Time
		next   time.Time
	}{
		"OneTick":            {now: at(1), ticks: []int{1}, cursor: at(1), next: at(2)},
		"NothingYet":         {now: at(0, 59), cursor: at(0), next: at(1)},
		"Missed":             {now: at(3, 30), ticks: []int{1, 2, 3}, cursor: at(3), next: at(4)},
		"NewestKept":         {change: func(t *store.Template) { t.CatchUp = 2 }, now: at(9), ticks: []int{8, 9}, cursor: at(9), next: at(10)},
		"TooOld":             {spec: scheduleSpec{CatchUpAge: 90 * time.Minute}, now: at(9, 10), ticks: []int{8, 9}, cursor: at(9), next: at(10)},
		"AllTooOld":          {spec: scheduleSpec{CatchUpAge: time.Minute}, now: at(9, 10), cursor: at(9), next: at(10)},
		"ClockWentBack":      {now: at(-5), cursor: at(0), next: at(1)},
		"Budget":             {now: at(5), budget: 2, ticks: []int{1, 2}, cursor: at(2), next: at(3)},
		"EndIncluded":        {spec: scheduleSpec{End: at(2)}, now: at(5), ticks: []int{1, 2}, cursor: at(2)},
		"EndBetween":         {spec: scheduleSpec{End: at(2, 30)}, now: at(2), ticks: []int{1, 2}, cursor: at(2)},
		"StartIncluded":      {spec: scheduleSpec{Start: at(3)}, now: at(3), ticks: []int{3}, cursor: at(3), next: at(4)},
		"BeforeStart":        {spec: scheduleSpec{Start: at(3, 30)}, now: at(3), cursor: at(0), next: at(3, 30)},
		"SkipFree":           {change: func(t *store.Template) { t.Overlap = store.OverlapSkip }, now: at(3), ticks: []int{3}, cursor: at(3), next: at(4)},
		"SkipActive":         {change: func(t *store.Template) { t.Overlap, t.Active = store.OverlapSkip, true }, now: at(3), cursor: at(3), next: at(4)},
		"SkipQueued":         {change: func(t *store.Template) { t.Overlap, t.Queued = store.OverlapSkip, true }, now: at(3), cursor: at(3), next: at(4)},
		"QueueFree":          {change: func(t *store.Template) { t.Overlap = store.OverlapQueueOne }, now: at(3), ticks: []int{3}, cursor: at(3), next: at(4)},
		"QueueActive":        {change: func(t *store.Template) { t.Overlap, t.Active = store.OverlapQueueOne, true }, now: at(3), ticks: []int{3}, queued: true, cursor: at(3), next: at(4)},
		"QueueFull":          {change: func(t *store.Template) { t.Overlap, t.Active, t.Queued = store.OverlapQueueOne, true, true }, now: at(3), cursor: at(3), next: at(4)},
		"CancelFree":         {change: func(t *store.Template) { t.Overlap = store.OverlapCancelPrevious }, now: at(3), ticks: []int{3}, cursor: at(3), next: at(4)},
		"CancelActive":       {change: func(t *store.Template) { t.Overlap, t.Active = store.OverlapCancelPrevious, true }, now: at(3), next: at(3).Add(overlapPause)},
		"AllowActive":        {change: func(t *store.Template) { t.Active = true }, now: at(1), ticks: []int{1}, cursor: at(1), next: at(2)},
		"OldTickNotReplaced": {spec: scheduleSpec{CatchUpAge: time.Minute}, change: func(t *store.Template) { t.Overlap, t.Active = store.OverlapCancelPrevious, true }, now: at(3, 30), cursor: at(3), next: at(4)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.spec.Every = time.Hour
			if tc.spec.Start.IsZero() {
				tc.spec.Start = at(-100)
			}
			tmpl := templateOf(t, tc.spec, func(tm *store.Template) {
				tm.Cursor, tm.Next = at(0), at(1)
				if tc.change != nil {
					tc.change(tm)
				}
			})
			budget := tc.budget
			if budget == 0 {
				budget = 1000
			}
			f, _ := decide(tmpl, tc.now, budget)
			if f.Problem != "" || len(f.Runs) != len(tc.ticks) || !f.Cursor.Equal(tc.cursor) || !f.Next.Equal(tc.next) {
				t.Fatalf("decided %+v, want ticks %v, cursor %v, next %v", f, tc.ticks, tc.cursor, tc.next)
			}
			for i, r := range f.Runs {
				if !r.Tick.Equal(at(tc.ticks[i])) || r.Queued != tc.queued || r.RunID == uuid.Nil {
					t.Errorf("run %d: %+v, want hour %d", i, r, tc.ticks[i])
				}
			}
		})
	}
}

// A schedule that gets nothing of the budget stays due, and nothing of it is lost.
func TestDecideWithoutBudget(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	tmpl := templateOf(t, scheduleSpec{Every: time.Hour}, func(t *store.Template) { t.Cursor, t.Next = now.Add(-time.Hour), now })
	if f, _ := decide(tmpl, now, 0); len(f.Runs) != 0 || !f.Cursor.IsZero() || !f.Next.Equal(now) {
		t.Errorf("decided %+v", f)
	}
}

// Jitter moves all ticks of a schedule by the same share, and schedules apart.
func TestJitter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	offsets := map[time.Duration]bool{}
	for range 50 {
		tmpl := templateOf(t, scheduleSpec{Every: time.Hour, Jitter: 30 * time.Minute}, func(t *store.Template) { t.Cursor, t.Next = now.Add(-time.Hour), now })
		table, err := timetableOf(tmpl)
		if err != nil {
			t.Fatal(err)
		}
		if table.offset < 0 || table.offset >= 30*time.Minute {
			t.Errorf("offset %v", table.offset)
		}
		offsets[table.offset] = true
		if f, _ := decide(tmpl, now.Add(table.offset-time.Microsecond), 10); len(f.Runs) != 0 || !f.Next.Equal(now.Add(table.offset)) {
			t.Errorf("before its time: %+v", f)
		}
		if f, _ := decide(tmpl, now.Add(table.offset), 10); len(f.Runs) != 1 || !f.Runs[0].Tick.Equal(now) || !f.Next.Equal(now.Add(time.Hour+table.offset)) {
			t.Errorf("at its time: %+v", f)
		}
	}
	if len(offsets) < 40 {
		t.Errorf("50 schedules have %d offsets", len(offsets))
	}
}
