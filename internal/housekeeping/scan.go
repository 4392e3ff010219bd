package housekeeping

import (
	"bytes"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

const (
	scanRest        = time.Minute // between two scans, for each worker of the namespace
	skippedReminder = time.Hour   // how often the log says that some runs cannot be deleted

	longQuery = 50 * time.Millisecond  // the next scan divides the part of a query that took longer
	maxQuery  = 200 * time.Millisecond // a query that takes longer is cancelled, and its part divided
	maxCuts   = 100_000
)

// A scan reads the runs from the oldest ID to the newest. Its state is in memory: another process makes its own scans,
// and a new scan finds the runs that an interrupted one left. Only the loop of the retention uses it.
//
// A query returns the runs of one namespace, but reads the key of all namespaces. If other namespaces have many runs,
// cuts divide the key: a query reads up to the next cut at most. The cuts stay from scan to scan. The first cuts come
// from the planner's statistics; a part whose query takes long is divided, and two parts with quick queries are joined.
type scan struct {
	ranges []store.Range // still to be read; empty: no scan is under way
	old    []uuid.UUID   // runs found that are still to be deleted
	// of the namespace when the scan began: about as many coordinators share the work if none leads
	workers int
	shared  int           // the namespace has 1/shared of all runs, and uses that part of scanShare
	cuts    []uuid.UUID   // in order
	joined  bool          // fit has just joined the last part with the next: it leaves the next one as it is
	longest time.Duration // instead of maxQuery, for tests; zero: maxQuery
	smaller int           // transactions are 2^smaller times smaller, because larger ones took too long
	deleted int           // runs deleted since logged
	logged  time.Time     // when the log last reported deleted runs
	skipped time.Time     // when the log last reported a skipped run
}

// next returns the part that the next query reads: up to the next cut.
func (s *scan) next() store.Range {
	r := s.ranges[0]
	i, at := s.find(r.After)
	if at {
		i++
	}
	if i < len(s.cuts) && bytes.Compare(s.cuts[i][:], r.End[:]) < 0 {
		r.End = s.cuts[i]
	}
	return r
}

// passed records that everything up to end was read.
func (s *scan) passed(end uuid.UUID) {
	if s.ranges[0].After = end; end == s.ranges[0].End {
		s.ranges = s.ranges[1:]
	}
}

// find returns the position of id among the cuts, and whether id is a cut.
func (s *scan) find(id uuid.UUID) (i int, at bool) {
	return slices.BinarySearchFunc(s.cuts, id, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// cut divides part in the middle. It returns false if part cannot be divided.
func (s *scan) cut(part store.Range) bool {
	middle, ok := part.Middle()
	i, at := s.find(middle)
	if !ok || at || len(s.cuts) >= maxCuts {
		return false
	}
	s.cuts = slices.Insert(s.cuts, i, middle)
	return true
}

// fit adapts the cuts to the time that the query of part took. A slow part is divided for the next scan. A quick one is
// joined with the next part, but not with all that follow, because those together may be slow again.
func (s *scan) fit(part store.Range, took time.Duration) {
	i, at := s.find(part.End)
	switch {
	case took > longQuery:
		s.cut(part)
	case took > longQuery/8 || !at || s.joined:
		s.joined = false
	default:
		s.cuts, s.joined = slices.Delete(s.cuts, i, i+1), true
	}
}

// logDeleted logs the number of deleted runs, about once a minute.
func (s *scan) logDeleted(l *slog.Logger) {
	if s.deleted > 0 && time.Since(s.logged) > scanRest {
		l.Info("kagzi: runs past their retention are deleted", "runs", s.deleted)
		s.deleted, s.logged = 0, time.Now()
	}
}

// logSkipped logs that the scan skips a run, at most once every skippedReminder: each scan meets that run again.
func (s *scan) logSkipped(l *slog.Logger, text string, args ...any) {
	if s.skipped.IsZero() || time.Since(s.skipped) > skippedReminder {
		l.Warn(text, args...)
		s.skipped = time.Now()
	}
}
