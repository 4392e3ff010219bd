package worker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// suspects say which crash-loop suspects a session executes at once. Suspects that died equally often begin as a group
// if their IDs end in the same bits: one bit at first, twice as many with each recovery. So half of n suspects begin at
// once; of those that die again a quarter of n do, then a sixteenth, and then each alone. The session's mutex guards
// the fields. See doc_suspects.go.
type suspects struct {
	patience time.Duration      // of the suspects with the fewest recoveries: firstPatience, but for tests
	group    store.SuspectGroup // that began last
	// the runs of group that have neither ended nor made progress. Added by admit, removed by leave.
	last  map[*held]bool
	since time.Time // when the group began
	// calls hint when suspects with one more recovery may begin. Set by wakeLocked.
	timer *time.Timer

	mu     *sync.Mutex // the session's
	roster *roster
	hint   func() // makes the claim loop claim from all queues. It is called with the mutex held.
}

func newSuspects(mu *sync.Mutex, r *roster, hint func(), hooks *testhook.Hooks) suspects {
	s := suspects{patience: firstPatience, mu: mu, roster: r, hint: hint}
	if hooks != nil {
		s.patience = cmp.Or(hooks.SuspectPatience, firstPatience)
	}
	return s
}

// firstPatience is how long a suspect with the fewest recoveries waits for the group before it.
const firstPatience = 10 * time.Second

// patienceOf returns how long a suspect waits for the group before it. It doubles with each recovery: who died more
// often comes last, and a run that needs long gets the worker without such neighbours in the end.
func (s *suspects) patienceOf(recoveries int) time.Duration {
	return s.patience << min(recoveries-store.SuspectRecoveries, maxRecoveries)
}

// admit reports whether the suspect h may begin: with its group, or because the group before it is gone, or has been
// under way for long enough.
func (s *suspects) admit(h *held, now time.Time) bool {
	g := store.GroupOf(h.RunID, h.Recoveries)
	if g != s.group || len(s.last) == 0 {
		if len(s.last) > 0 && now.Sub(s.since) < s.patienceOf(g.Recoveries) {
			return false
		}
		s.group, s.last, s.since = g, map[*held]bool{}, now
	}
	s.last[h] = true
	return true
}

// leave reports whether the next group may begin because h has ended, or has made progress.
func (s *suspects) leave(h *held) bool {
	if !s.last[h] {
		return false
	}
	delete(s.last, h)
	return len(s.last) == 0
}

// taken returns which suspects a claim takes.
func (s *suspects) taken(now time.Time) store.Suspects {
	below, _ := s.below(now)
	return store.Suspects{Below: below, Joins: s.group}
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
func inOrder(hs []*held) {
	slices.SortStableFunc(hs, func(a, b *held) int {
		return cmp.Compare(max(a.Recoveries, store.SuspectRecoveries-1),
			max(b.Recoveries, store.SuspectRecoveries-1))
	})
}

// begin reports whether the suspect h may begin.
func (s *suspects) begin(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.roster.hasLocked(h) { // it has stopped meanwhile, and would never leave
		return true
	}
	if !s.admit(h, time.Now()) {
		return false
	}
	s.wakeLocked()
	return true
}

// endLocked lets the next suspects begin if h was the last of its group: it has ended, or has made progress.
func (s *suspects) endLocked(h *held) {
	if s.leave(h) {
		s.wakeLocked()
		s.hint() // claims have left out other suspects until now
	}
}

// endSuspect is endLocked for a caller without the mutex.
func (s *suspects) endSuspect(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(h)
}

// wakeLocked lets the claim loop claim whenever suspects with more recoveries may begin beside those under way.
func (s *suspects) wakeLocked() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if _, more := s.below(time.Now()); more > 0 {
		s.timer = time.AfterFunc(more, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hint()
			s.wakeLocked()
		})
	}
}
