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
	longQuery = 50 * time.Millisecond  // the next scan divides the part of a query that took longer
	maxQuery  = 200 * time.Millisecond // a query that takes longer is cut off, and its part divided
	maxCuts   = 100_000
)

// A scan over the runs goes from the oldest ID to the newest. It lies in memory: another process makes scans of its own, and
// one that begins anew finds the runs that are left. Only the loop of the retention uses it.
//
// A query finds the runs of one namespace, and reads the key of all. If others have many, cuts divide the key: a query reads
// up to the next cut at the most. The cuts stay from scan to scan. The planner's statistics give the first of them; a part
// that takes long is divided again, and two parts that are quickly read become one.
type scan struct {
	ranges  []store.Range // still to be read; none: no scan is under way
	old     []uuid.UUID   // found, and to be deleted
	workers int           // of the namespace when the scan began: about as many coordinators share the work
	shared  int           // the namespace has one in so many of all runs, and takes as much of scanShare
	cuts    []uuid.UUID   // in order
	joined  bool          // the last part that was read is joined with the one before: it stays as it is in this scan
	longest time.Duration // instead of maxQuery, for tests
	smaller int           // transactions are smaller by so many powers of two, because they took too long
	deleted int           // runs, since the log said so
	logged  time.Time     // when the log last said how many runs were deleted
	leftOut time.Time     // when the log last said that a run is left out
}

// next returns the part that the next query is to read: up to the next cut.
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

// passed notes that everything up to end was read.
func (s *scan) passed(end uuid.UUID) {
	if s.ranges[0].After = end; end == s.ranges[0].End {
		s.ranges = s.ranges[1:]
	}
}

// find returns the position of an ID among the cuts, and whether it is one.
func (s *scan) find(id uuid.UUID) (i int, at bool) {
	return slices.BinarySearchFunc(s.cuts, id, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// cut divides the part that was read. It returns false if the part cannot be divided.
func (s *scan) cut(part store.Range) bool {
	middle, ok := part.Middle()
	i, at := s.find(middle)
	if !ok || at || len(s.cuts) >= maxCuts {
		return false
	}
	s.cuts = slices.Insert(s.cuts, i, middle)
	return true
}

// fit divides the part that was read for the next scan if that took long. If it was quick it joins the part with the next
// one, but not with all that follow, which together may take long again.
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

// logDeleted logs how many runs were deleted, about once a minute.
func (s *scan) logDeleted(l *slog.Logger) {
	if s.deleted > 0 && time.Since(s.logged) > scanRest {
		l.Info("kagzi: runs past their retention are deleted", "runs", s.deleted)
		s.deleted, s.logged = 0, time.Now()
	}
}

// logLeftOut logs that the scan leaves a run out, now and then: each scan comes to it again.
func (s *scan) logLeftOut(l *slog.Logger, text string, args ...any) {
	if s.leftOut.IsZero() || time.Since(s.leftOut) > leftOutReminder {
		l.Warn(text, args...)
		s.leftOut = time.Now()
	}
}
