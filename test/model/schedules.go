package model

import (
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

// A Schedule starts a run for each of its ticks, which are numbered from 1.
type Schedule struct {
	Overlap string // what a tick does while a run is active; empty: it starts its run
	Paused  bool
	Cursor  int // the ticks up to this one are decided
}

// Decide says which of the ticks between cursor and now start a run, and whether these runs wait for the active one. If
// replace is set, nothing is decided until the active runs are cancelled, which cancelled says they are. If runs must
// not overlap, only the newest tick counts.
func Decide(overlap string, active, queued, cancelled bool, cursor, now int) (ticks []int, waits, replace bool) {
	for n := cursor + 1; n <= now; n++ {
		ticks = append(ticks, n)
	}
	if overlap != "" && len(ticks) > 0 {
		ticks = ticks[len(ticks)-1:]
	}
	switch {
	case overlap == timetable.OverlapCancelPrevious && (active || queued) && !cancelled:
		return nil, false, true
	case overlap == timetable.OverlapSkip && (active || queued), overlap == timetable.OverlapQueueOne && queued:
		return nil, false, false
	}
	return ticks, (overlap == timetable.OverlapQueueOne || overlap == timetable.OverlapCancelPrevious) && active, false
}

// DueSchedules returns the schedules that have undecided ticks.
func (m *Model) DueSchedules() (names []string) {
	for name, s := range m.Schedules {
		if !s.Paused && s.Cursor < m.Hour {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Uses reports whether the schedule has an active run, and one that waits for it. A run that is being cancelled is
// active.
func (t *table) Uses(name string) (active, queued bool) {
	for _, r := range t.all() {
		if r.Schedule == name && r.Active() {
			active = active || !r.Queued
			queued = queued || r.Queued
		}
	}
	return active, queued
}

// Fire starts the runs of all ticks that have come. A tick that has a run gets no other.
func (m *Model) Fire(id func(name string, tick int) uuid.UUID) {
	for _, name := range m.DueSchedules() {
		m.fire(name, false, id)
	}
}

// fire is Fire for one schedule. cancelled says that its active runs have been cancelled for that.
func (m *Model) fire(name string, cancelled bool, id func(name string, tick int) uuid.UUID) {
	s := m.Schedules[name]
	active, queued := m.Uses(name)
	ticks, waits, replace := Decide(s.Overlap, active, queued, cancelled, s.Cursor, m.Hour)
	if replace {
		return
	}
	for _, n := range ticks {
		if slices.ContainsFunc(m.all(), func(r *Run) bool { return r.Schedule == name && r.Tick == n }) {
			continue
		}
		r := &Run{
			ID: id(name, n), Type: "a", Priority: 3, Schedule: name, Tick: n, Queued: waits,
			Status: store.Pending, At: Due,
		}
		if waits {
			r.At = Never
		}
		m.add(r)
	}
	s.Cursor = m.Hour
	m.Schedules[name] = s
}

// Queues returns the runs that wait and whose schedules have no other active run.
func (t *table) Queues() (free []*Run) {
	for _, r := range t.all() {
		others := func(o *Run) bool { return o != r && o.Schedule == r.Schedule && o.Active() }
		if r.Queued && !slices.ContainsFunc(t.all(), others) {
			free = append(free, r)
		}
	}
	return free
}

// Replace cancels the active runs of a schedule and starts that of its tick, unless the tick was decided meanwhile.
func (m *Model) Replace(name string, cursor int, id func(name string, tick int) uuid.UUID) {
	s, ok := m.Schedules[name]
	if !ok || s.Paused || s.Overlap != timetable.OverlapCancelPrevious || s.Cursor != cursor {
		return
	}
	var ids []uuid.UUID
	for _, r := range m.all() {
		if r.Schedule == name && r.Active() {
			ids = append(ids, r.ID)
		}
	}
	m.cancel(false, Soon, ids...)
	m.fire(name, true, id)
}
