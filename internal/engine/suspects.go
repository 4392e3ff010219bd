package engine

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// suspects say which crash-loop suspects a session executes at once. Suspects that died equally often begin as a group
// if their IDs end in the same bits: one bit at first, twice as many with each recovery. So half of n suspects begin at
// once; of those that die again a quarter of n do, then a sixteenth, and then each alone. The session's mutex guards
// the fields. See doc_suspects.go.
type suspects struct {
	patience time.Duration // of the suspects with the fewest recoveries: firstPatience, but for tests
	group    suspectGroup  // that began last
	// the runs of group that have neither ended nor made progress. Added by admit, removed by leave.
	last  map[*execution]bool
	since time.Time // when the last of them was admitted
	// wakes the claim loop when suspects with one more recovery may begin. Set by Session.wakeSuspects.
	timer *time.Timer
}

// firstPatience is how long a suspect with the fewest recoveries waits for the group before it.
const firstPatience = 10 * time.Second

// A suspectGroup has the suspects that begin together.
type suspectGroup struct {
	recoveries int
	bits       uint64 // the last bits of their IDs
}

func groupOf(r *store.ClaimedRun) suspectGroup {
	bits := 1 << min(r.Recoveries-store.SuspectRecoveries, 5)
	return suspectGroup{r.Recoveries, binary.BigEndian.Uint64(r.RunID[8:]) & (1<<bits - 1)}
}

// patienceOf returns how long a suspect waits for the group before it. It doubles with each recovery: who died more
// often comes last, and a run that needs long gets the worker without such neighbours in the end.
func (s *suspects) patienceOf(recoveries int) time.Duration {
	return s.patience << min(recoveries-store.SuspectRecoveries, maxRecoveries)
}

// admit reports whether the suspect e may begin: with its group, or because the group before it is gone, or has been
// under way for long enough.
func (s *suspects) admit(e *execution, now time.Time) bool {
	g := groupOf(e.ClaimedRun)
	if g != s.group || len(s.last) == 0 {
		if len(s.last) > 0 && now.Sub(s.since) < s.patienceOf(g.recoveries) {
			return false
		}
		s.group, s.last = g, map[*execution]bool{}
	}
	s.last[e], s.since = true, now
	return true
}

// leave reports whether the next group may begin because e has ended, or has made progress.
func (s *suspects) leave(e *execution) bool {
	if !s.last[e] {
		return false
	}
	delete(s.last, e)
	return len(s.last) == 0
}

// below returns how many recoveries the suspects have that a claim leaves out, because they would have to wait; zero:
// it leaves out none. more says in how long those with one more recovery may begin.
func (s *suspects) below(now time.Time) (recoveries int, more time.Duration) {
	if len(s.last) == 0 {
		return 0, 0
	}
	recoveries = store.SuspectRecoveries
	for recoveries <= store.SuspectRecoveries+maxRecoveries && now.Sub(s.since) >= s.patienceOf(recoveries) {
		recoveries++
	}
	return recoveries, s.patienceOf(recoveries) - now.Sub(s.since)
}

// inOrder sorts executions of a claim: suspects that died less often begin first.
func inOrder(es []*execution) {
	slices.SortStableFunc(es, func(a, b *execution) int {
		return cmp.Compare(max(a.Recoveries, store.SuspectRecoveries-1),
			max(b.Recoveries, store.SuspectRecoveries-1))
	})
}

// beginSuspect reports whether the suspect e may begin.
func (s *Session) beginSuspect(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.executing[e.RunID] != e { // it has stopped meanwhile, and would never leave
		return true
	}
	if !s.suspects.admit(e, time.Now()) {
		return false
	}
	s.wakeSuspects()
	return true
}

// endSuspect lets the next suspects begin if e was the last of its group: it has ended, or has made progress.
func (s *Session) endSuspect(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSuspectLocked(e)
}

func (s *Session) endSuspectLocked(e *execution) {
	if s.suspects.leave(e) {
		s.wakeSuspects()
		s.hintAllLocked() // claims have left out other suspects until now
	}
}

// wakeSuspects lets the claim loop claim whenever suspects with more recoveries may begin beside those under way. The
// caller holds the session's mutex.
func (s *Session) wakeSuspects() {
	if s.suspects.timer != nil {
		s.suspects.timer.Stop()
		s.suspects.timer = nil
	}
	if _, more := s.suspects.below(time.Now()); more > 0 {
		s.suspects.timer = time.AfterFunc(more, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hintAllLocked()
			s.wakeSuspects()
		})
	}
}
