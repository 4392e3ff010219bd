package timetable

import "time"

// Overlap policies. Without one, each tick starts its run regardless of others.
const (
	OverlapSkip           = "skip"
	OverlapQueueOne       = "queue_one"
	OverlapCancelPrevious = "cancel_previous"
)

// A Decision says which runs a schedule starts, and when it is due again.
type Decision struct {
	Ticks  []time.Time // each starts a run
	Queued bool        // the runs wait until no other run of the schedule is active
	Cursor time.Time   // every tick up to here is decided; zero: as it was
	Next   time.Time   // when the schedule is due again; zero: never
	// nothing is decided, not even Next: cancel the active runs first, and decide again with Cancelled
	Replace bool
	Dropped string // why ticks were dropped, which should be rare; "" if none were
}

// Decide decides which of the ticks that are due at now start a run, at most budget of them. If runs must not overlap,
// only the newest of the due ticks counts. It returns the errors of Timetable.
func (s *Schedule) Decide(now time.Time, budget int) (Decision, error) {
	table, err := s.Timetable()
	if err != nil {
		return Decision{}, err
	}
	return s.decide(table, now, budget), nil
}

func (s *Schedule) decide(table *Timetable, now time.Time, budget int) Decision {
	ticks, last, dropped := table.due(s.Cursor, now, s.CatchUp)
	if s.Overlap != "" && len(ticks) > 0 {
		ticks = ticks[len(ticks)-1:]
	}
	switch {
	case len(ticks) == 0:
	case budget == 0: // the next transaction decides
		return Decision{Next: s.Next}
	case s.Overlap == OverlapCancelPrevious && (s.Active || s.Queued) && !s.Cancelled:
		return Decision{Replace: true}
	case s.Overlap == OverlapSkip && (s.Active || s.Queued), s.Overlap == OverlapQueueOne && s.Queued:
		ticks = nil
	case len(ticks) > budget:
		ticks, last = ticks[:budget], ticks[budget-1]
	}
	queued := s.Active && (s.Overlap == OverlapQueueOne || s.Overlap == OverlapCancelPrevious)
	return Decision{Ticks: ticks, Queued: queued, Cursor: last, Next: table.Next(last), Dropped: dropped}
}

// DecideBeforeChange is Decide for a schedule that is about to change. The ticks that have come start their runs under
// the old schedule, without waiting for its share of the jitter. DecideBeforeChange cancels no active run, which only a
// coordinator does: the next run waits for the active one.
func (s *Schedule) DecideBeforeChange(now time.Time) (Decision, error) {
	table, err := s.Timetable()
	if err != nil {
		return Decision{}, err
	}
	was := *s
	if was.Overlap == OverlapCancelPrevious {
		was.Overlap = OverlapQueueOne
	}
	return was.decide(table, now.Add(table.Offset), MaxTicks), nil
}

// NextFires returns the next n times at which s starts a run, as seen at now, or fewer if End comes first. Overdue
// ticks come first, if CatchUp, CatchUpAge and Overlap allow them. For a paused schedule, NextFires returns the times
// that it would have if it were resumed now. It returns the errors of Timetable.
func (s *Schedule) NextFires(now time.Time, n int) ([]time.Time, error) {
	table, err := s.Timetable()
	if err != nil {
		return nil, err
	}
	then := *s
	if s.Paused {
		then.Cursor = table.Resume(s.Cursor, now)
	}
	if s.Overlap == OverlapCancelPrevious {
		then.Active, then.Queued = false, false // the coordinator will have cancelled the active run
	}
	out := make([]time.Time, 0, n)
	overdue := then.decide(table, now, n)
	for _, tick := range overdue.Ticks {
		out = append(out, tick.Add(table.Offset).UTC())
	}
	for at := overdue.Next; len(out) < n && !at.IsZero(); at = table.Next(at.Add(-table.Offset)) {
		out = append(out, at.UTC())
	}
	return out, nil
}
