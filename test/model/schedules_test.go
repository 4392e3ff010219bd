package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

// The verbs of schedules. Each hour has a tick, and all of these hours are over. A schedule whose next tick has not
// come is due in another century; the verb hour makes it due.

var firstHour = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func timeOf(tick int) time.Time { return firstHour.Add(time.Duration(tick) * time.Hour) }
func tickOf(t time.Time) int    { return int(t.Sub(firstHour) / time.Hour) }

// nextAfter returns when a schedule is due whose ticks up to cursor are decided.
func nextAfter(cursor, now int) time.Time {
	if cursor < now {
		return timeOf(cursor + 1)
	}
	return timeOf(cursor+1).AddDate(100, 0, 0)
}

func scheduleID(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

// schedule draws a name.
func (w *world) schedule(t *rapid.T) string {
	if !w.schedules {
		panic(nothingToDo{})
	}
	return drawn(t, "schedule", "s", "s", "z")
}

// editing edits a schedule. change returns the new one, nil if it is deleted; before is nil if there is none.
func editing(what, name string, change func(before *Schedule, hour int) *Schedule, hour int) act {
	edit := func(now time.Time, t *store.Template) (*store.Edit, error) {
		if t == nil {
			s := change(nil, hour)
			if s == nil {
				return nil, store.ErrScheduleNotFound
			}
			return &store.Edit{Save: &store.Template{
				ID: scheduleID(name), Name: name, Input: []byte("input"),
				Spec: store.Spec{Queue: "queue", Type: "a", Priority: 3},
				Cron: "0 * * * *", Timing: json.RawMessage("{}"),
				Overlap: s.Overlap, Cursor: timeOf(s.Cursor), Next: nextAfter(s.Cursor, hour),
			}}, nil
		}
		s := change(&Schedule{t.Overlap, t.Paused, tickOf(t.Cursor)}, hour)
		if s == nil {
			return &store.Edit{Delete: true}, nil
		}
		save := *t
		save.Overlap, save.Paused, save.PausedAt = s.Overlap, s.Paused, time.Time{}
		if s.Paused {
			save.PausedAt = now
		}
		return &store.Edit{Save: &save}, nil
	}
	return changing(what, func(s *store.Store) error {
		_, err := s.Schedules.Edit(ctx, nil, scheduleID(name), edit)
		return err
	}, func(m *Model) error {
		before, ok := m.Schedules[name]
		var s *Schedule
		if ok {
			s = change(&before, hour)
		} else {
			s = change(nil, hour)
		}
		switch {
		case s == nil && !ok:
			return store.ErrScheduleNotFound
		case s == nil:
			delete(m.Schedules, name)
		default:
			m.Schedules[name] = *s
		}
		return nil
	})
}

// scheduling makes a schedule, some of whose ticks have come already, or changes its overlap policy.
func (w *world) scheduling(t *rapid.T) act {
	name := w.schedule(t)
	overlap := drawn(t, "overlap", "", timetable.OverlapSkip, timetable.OverlapQueueOne, timetable.OverlapQueueOne,
		timetable.OverlapCancelPrevious, timetable.OverlapCancelPrevious)
	missed := number(t, "missed", 3)
	return editing("schedule", name, func(s *Schedule, hour int) *Schedule {
		if s == nil {
			return &Schedule{Overlap: overlap, Cursor: max(0, hour-missed)}
		}
		return &Schedule{overlap, s.Paused, s.Cursor}
	}, w.Hour)
}

// unscheduling deletes a schedule. Its runs stay.
func (w *world) unscheduling(t *rapid.T) act {
	return editing("unschedule", w.schedule(t), func(*Schedule, int) *Schedule { return nil }, w.Hour)
}

// pausingSchedule pauses a schedule, or ends its pause: the ticks meanwhile are due then.
func (w *world) pausingSchedule(t *rapid.T) act {
	return editing("pause a schedule", w.schedule(t), func(s *Schedule, _ int) *Schedule {
		if s == nil {
			return nil
		}
		return &Schedule{s.Overlap, !s.Paused, s.Cursor}
	}, w.Hour)
}

// hour lets the next tick come.
func (w *world) hour(t *rapid.T) {
	w.schedule(t)
	w.Hour++
	w.exec(t, `UPDATE kagzi.schedules SET next_at = now() WHERE next_at > now()`)
}

// firing fires the schedules that are due. It answers with what the store has said of them. A schedule whose active
// runs are to be replaced stays due.
func (w *world) firing(t *rapid.T) act {
	w.schedule(t)
	hour, beside := w.Hour, w.focus != nil
	ids := map[string]uuid.UUID{}
	var answer string
	decide := func(_ time.Time, due []*store.Template) (firings []*store.Firing) {
		answer = ""
		slices.SortFunc(due, func(a, b *store.Template) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		for _, s := range due {
			answer += fmt.Sprintf("%s: active %t, queued %t, from %d\n", s.Name, s.Active, s.Queued, tickOf(s.Cursor))
			firings = append(firings, w.decided(s, hour, ids))
		}
		return firings
	}
	return act{name: "fire", send: func(s *store.Store) (string, error) {
		err := insist(func() error {
			_, _, err := s.Schedules.FireDue(ctx, 10, decide)
			return err
		})
		return answer, err
	}, apply: func(m *Model) (want string, err error) {
		for _, name := range m.DueSchedules() {
			active, queued := m.Uses(name)
			want += fmt.Sprintf("%s: active %t, queued %t, from %d\n", name, active, queued, m.Schedules[name].Cursor)
		}
		if beside && answer == "" { // another coordinator fires
			return "", nil
		}
		m.Fire(func(name string, tick int) uuid.UUID { return ids[fmt.Sprint(name, tick)] })
		return want, nil
	}}
}

// decided returns the firing of a schedule that is due, and notes the IDs of the runs.
func (w *world) decided(s *store.Template, hour int, ids map[string]uuid.UUID) *store.Firing {
	ticks, waits, replace := Decide(s.Overlap, s.Active, s.Queued, s.Cancelled, tickOf(s.Cursor), hour)
	f := &store.Firing{Template: s.ID, Cursor: timeOf(hour), Next: nextAfter(hour, hour), Replace: replace}
	if replace {
		f.Cursor, f.Next = time.Time{}, s.Next
	}
	for _, n := range ticks {
		id := uuid.Must(uuid.NewV7())
		ids[fmt.Sprint(s.Name, n)] = id
		w.met["tick"]++
		if waits {
			w.met["queued tick"]++
		}
		f.Runs = append(f.Runs, store.TickRun{RunID: id, Tick: timeOf(n), Queued: waits})
	}
	return f
}

// insist calls f again if an answer was lost: the transaction was rolled back, or there is nothing left to do.
func insist(f func() error) (err error) {
	for range 3 {
		if err = f(); !pg.Unavailable(err) {
			break
		}
	}
	return err
}

// replacingFired cancels the active runs of a schedule and starts that of its tick, by what was known of it.
func (w *world) replacingFired(t *rapid.T) act {
	name := w.schedule(t)
	hour, cursor := w.Hour, w.Hour-drawn(t, "since", 1, 1, 1, 0, 2)
	ids := map[string]uuid.UUID{}
	return changing("replace fired", func(s *store.Store) error {
		return insist(func() error {
			_, err := s.Schedules.Tick(ctx, scheduleID(name), time.Minute,
				func(_ time.Time, t *store.Template) (*store.Edit, error) {
					if t == nil || t.Paused || t.Overlap != timetable.OverlapCancelPrevious ||
						tickOf(t.Cursor) != cursor {
						return nil, nil
					}
					return &store.Edit{Fire: w.decided(t, hour, ids)}, nil
				})
			return err
		})
	}, func(m *Model) error {
		m.Replace(name, cursor, func(name string, tick int) uuid.UUID { return ids[fmt.Sprint(name, tick)] })
		return nil
	})
}

// releasingQueued makes the runs due that waited for the previous one. Beside another act it may pass over some.
func (w *world) releasingQueued(t *rapid.T) act {
	w.schedule(t)
	beside := w.focus != nil
	var released []uuid.UUID
	return act{name: "release queued", send: func(s *store.Store) (string, error) {
		runs, _, err := s.Schedules.ReleaseQueued(ctx, func(run store.QueuedRun, err error) {
			t.Errorf("run %s: %v", run.RunID, err)
		})
		for _, r := range runs {
			released = append(released, r.RunID)
		}
		return "", err
	}, apply: func(m *Model) (string, error) {
		left := slices.Clone(released)
		for _, r := range m.Queues() {
			i := slices.Index(left, r.ID)
			if i < 0 && beside {
				continue
			}
			if i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
			r.Queued = false
			r.due()
		}
		if len(left) > 0 {
			return fmt.Sprint("not to be released: ", left), nil
		}
		return "", nil
	}}
}
