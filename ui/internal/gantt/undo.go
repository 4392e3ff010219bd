package gantt

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// Undoes reports whether the attempt is a compensation. It is recorded when it is registered, with a step for example.
// If the run fails, a run of its own executes it, maybe hours later.
func Undoes(a kagzi.StepAttempt) bool { return a.Type == "COMPENSATION" }

// Undoing returns the time in which the run of a compensation was under way, until now if it is; the zero Span if it
// has not begun. The record has only the time of the registration, so the beginning is the time in the run's ID.
func Undoing(a kagzi.StepAttempt, now time.Time) Span {
	from := madeAt(a.Child)
	if !Undoes(a) || from.IsZero() {
		return Span{}
	}
	from = later(from, a.StartedAt)
	to := a.EndedAt
	if to.IsZero() && a.Status == kagzi.StatusRunning {
		to = now
	}
	return Span{from, later(from, to)}
}

// madeAt returns the time in a run's ID, which is a UUIDv7; the zero time if it is none.
func madeAt(id kagzi.RunID) time.Time {
	const version = 14 // where the digit of the version is
	if len(id) <= version || id[version] != '7' {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(strings.Replace(string(id[:13]), "-", "", 1), 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// UndoneFrom returns when the first compensation began; the zero time if none has.
func UndoneFrom(steps []*Step) (first time.Time) {
	for _, s := range steps {
		for _, a := range s.Attempts {
			if from := Undoing(a, time.Time{}).From; !from.IsZero() && (first.IsZero() || from.Before(first)) {
				first = from
			}
		}
	}
	return first
}

// Undo returns the compensations that have begun or wait for their turn, in the order in which they run: the last one
// registered comes first.
func Undo(steps []*Step, now time.Time) (out []*Step) {
	for _, s := range steps {
		a := s.Last()
		if Undoes(*a) && (a.Status == kagzi.StatusPending || !Undoing(*a, now).From.IsZero()) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *Step) int {
		if ab := turn(a, now).Compare(turn(b, now)); ab != 0 {
			return ab
		}
		return b.Last().StartedAt.Compare(a.Last().StartedAt)
	})
	return out
}

// turn returns when a compensation began; never if it has not.
func turn(s *Step, now time.Time) time.Time {
	if from := Undoing(*s.Last(), now).From; !from.IsZero() {
		return from
	}
	return never
}
