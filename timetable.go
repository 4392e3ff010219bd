package kagzi

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

// scheduleOf returns the part of a template that decides when it fires.
func scheduleOf(t *store.Template) *timetable.Schedule {
	return &timetable.Schedule{
		ID: t.ID, Cron: t.Cron, TimeZone: t.TimeZone, CatchUp: t.CatchUp, Overlap: t.Overlap, Spec: t.Spec,
		Paused: t.Paused, Cursor: t.Cursor, Next: t.Next, Active: t.Active, Queued: t.Queued,
	}
}

// decide decides about a template that is due, and starts at most budget runs. dropped says why ticks were left out that
// should not be often.
func decide(t *store.Template, now time.Time, budget int) (f *store.Firing, dropped string) {
	d, err := scheduleOf(t).Decide(now, budget)
	if err != nil {
		return &store.Firing{Template: t.ID, Problem: failure.Text(err), Next: t.Next}, ""
	}
	f = firing(t, d)
	if f.Replace { // see replace; it is due again in case that fails
		f.Next = now.Add(overlapPause)
	}
	return f, d.Dropped
}

// firing has the store do as is decided.
func firing(t *store.Template, d timetable.Decision) *store.Firing {
	f := &store.Firing{Template: t.ID, Cursor: d.Cursor, Next: d.Next, Replace: d.Replace}
	for _, tick := range d.Ticks {
		f.Runs = append(f.Runs, store.TickRun{RunID: newRunID(), Tick: tick, Queued: d.Queued})
	}
	return f
}

func newRunID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
