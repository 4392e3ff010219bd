package engine

import (
	"maps"
	"time"

	"github.com/kagzi/kagzi/store"
)

// looks decides which claims are full looks: they search all due runs. The others begin where the last claim got to, so they do
// not read the dead entries before, which stay in the index while somebody holds an old snapshot. A full look finds the runs
// that those miss. Only the claim loop uses it. See docs/architecture.md, Claim.
type looks struct {
	reached map[store.Pair]time.Time // how far the last claims got
	took    time.Duration            // what the shorter of the last two full looks took: a single answer may have been late
	last    time.Duration            // what the last full look took
	at      time.Time                // when it ended
}

// restPerFull bounds the time of full looks to a tenth: after one of them, other claims come for nine times as long, but for
// no longer than a PollInterval.
const restPerFull = 9

// nextFull returns when the next full look is due.
func (l *looks) nextFull(pollInterval time.Duration) time.Time {
	return l.at.Add(min(restPerFull*l.took, pollInterval))
}

// ended notes that a claim sent at that time was answered.
func (l *looks) ended(full bool, sent time.Time, reached map[store.Pair]time.Time) {
	if full {
		l.at = time.Now()
		d := l.at.Sub(sent)
		l.took, l.last = min(l.last, d), d
	}
	if l.reached == nil {
		l.reached = map[store.Pair]time.Time{}
	}
	maps.Copy(l.reached, reached)
}
