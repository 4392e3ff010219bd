package engine

import (
	"maps"
	"time"

	"github.com/kagzi/kagzi/store"
)

// looks decides which claims are full looks: they search all due runs. The others begin where the last claim got to, so
// they do not read the dead entries before, which stay in the index while somebody holds an old snapshot. A full look
// finds the runs that those miss. Once full looks take long, a look back finds them instead: a query beside the claims,
// which do not wait for it. Only the claim loop uses it. See docs/architecture.md, Claim.
type looks struct {
	reached map[store.Pair]time.Time // how far the last claims got
	took    time.Duration            // what the shorter of the last two looks took: a single answer may have been late
	last    time.Duration            // what the last look took
	at      time.Time                // when it ended
	back    chan lookedBack          // receives what the look back under way finds; nil: none is under way
}

// A lookedBack is the answer of a look back.
type lookedBack struct {
	// for each type and priority, when the first run became due that the claims have missed
	missed map[store.Pair]time.Time
	took   time.Duration
}

const (
	// perLook bounds the time of the looks of all queues to a tenth: if there is one queue, the next look is due nine
	// times as long after one of them as that took. After a PollInterval it is due in any case.
	perLook = 10

	// longLook is how long a full look may take. Claims do not wait for a longer one.
	longLook = 20 * time.Millisecond

	// aheadBesideLooks is how far claims look ahead for the next due run while looks take long: leases that ended early
	// have left dead entries there, too.
	aheadBesideLooks = time.Second
)

// next returns when the next look is due.
func (l *looks) next(pollInterval time.Duration, queues int) time.Time {
	return l.at.Add(min((perLook*time.Duration(queues)-1)*l.took, pollInterval))
}

// due reports whether the next claim has to search more than the last ones: a look is due, or has found something.
func (l *looks) due(pollInterval time.Duration, queues int) bool {
	return time.Until(l.next(pollInterval, queues)) <= 0 || len(l.back) > 0
}

// ended notes that a look was answered, or failed.
func (l *looks) ended(took time.Duration) {
	l.at = time.Now()
	l.took, l.last = min(l.last, took), took
}

// goOn makes the next claim that is no full look begin where this one got to.
func (l *looks) goOn(reached map[store.Pair]time.Time) {
	if l.reached == nil {
		l.reached = map[store.Pair]time.Time{}
	}
	maps.Copy(l.reached, reached)
}

// prepare sets what the claim is to search, and reports whether that is everything. now is the estimate of the
// database's time. queues is how many the session has. If a look back is due, prepare returns where its answer goes.
func (l *looks) prepare(req *store.ClaimRequest, now time.Time, pollInterval time.Duration,
	queues int,
) (full bool, back chan<- lookedBack) {
	missed := l.lookedBack()
	untilNext := time.Until(l.next(pollInterval, queues))
	if l.took <= longLook {
		if untilNext > 0 {
			req.Since, req.Ahead = l.reached, min(untilNext, pollInterval)
		}
		return untilNext <= 0, nil
	}
	unsearched := l.addMissing(req.Pairs(), now.Add(-store.LateCommit))
	req.Since, req.Ahead = maps.Clone(l.reached), min(aheadBesideLooks, pollInterval)
	maps.Copy(req.Since, missed) // for this claim alone: if it takes too long, the next begins where others got to
	if l.back == nil && (untilNext <= 0 || unsearched) {
		l.back = make(chan lookedBack, 1)
		return false, l.back
	}
	return false, nil
}

// lookedBack returns what the last look back has found, once. One that has found something did not search everything,
// so the time that it took says nothing about the next.
func (l *looks) lookedBack() (missed map[store.Pair]time.Time) {
	select {
	case found := <-l.back:
		l.back = nil
		if len(found.missed) > 0 {
			l.at = time.Now()
			return found.missed
		}
		l.ended(found.took)
	default:
	}
	return nil
}

// addMissing makes the claims begin at now for each pair in which none has got anywhere. It reports whether there is
// one.
func (l *looks) addMissing(pairs []store.Pair, now time.Time) (added bool) {
	for _, p := range pairs {
		if _, ok := l.reached[p]; !ok {
			l.goOn(map[store.Pair]time.Time{p: now})
			added = true
		}
	}
	return added
}
