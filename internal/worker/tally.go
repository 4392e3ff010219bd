package worker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A tally counts what a session does, for the worker's row in the registry.
type tally struct {
	completed, failed, steps atomic.Int64 // since the session began

	// Only the heartbeater uses these.
	// what earlier rows of the session have: it registers again after it was declared dead. Set by moved.
	before   store.Counts
	reported store.Counts // what the rows have, without before; set by acknowledged
	samples  []sample     // of the last minute, and the last one before, oldest first. Added by begin and report.
}

// A sample is what a session had counted at a time.
type sample struct {
	at     time.Time
	counts store.Counts
}

const (
	// rateOver is the time over which rates are measured. A worker that is younger has those of its life, but at least
	// of leastRateOver: its first runs say little.
	rateOver      = time.Minute
	leastRateOver = 5 * time.Second

	// sampleGap is the time between two samples, at least.
	sampleGap = 5 * time.Second
)

// total returns what the session has counted.
func (t *tally) total() store.Counts {
	return store.Counts{Completed: t.completed.Load(), Failed: t.failed.Load(), Steps: t.steps.Load()}
}

// stepped counts the ends of steps.
func (t *tally) stepped(steps int) { t.steps.Add(int64(steps)) }

// ended counts the end of a run.
func (t *tally) ended(status string) {
	switch status {
	case store.Completed:
		t.completed.Add(1)
	case store.Failed:
		t.failed.Add(1)
	}
}

// begin notes that the rates are those since now, until a minute has passed.
func (t *tally) begin(now time.Time) { t.samples = append(t.samples[:0], sample{now, t.total()}) }

// counts returns what the session has counted since the registration of its current row.
func (t *tally) counts() store.Counts { return minus(t.total(), t.before) }

// report returns the counts and rates for a heartbeat.
func (t *tally) report(now time.Time) (store.Counts, store.Rates) {
	current := sample{now, t.total()}
	if len(t.samples) == 0 {
		t.samples = append(t.samples, current)
	}
	for len(t.samples) > 1 && now.Sub(t.samples[1].at) >= rateOver {
		t.samples = slices.Delete(t.samples, 0, 1)
	}
	oldest := t.samples[0]
	if now.Sub(t.samples[len(t.samples)-1].at) >= sampleGap {
		t.samples = append(t.samples, current)
	}
	d, seconds := minus(current.counts, oldest.counts), max(leastRateOver, now.Sub(oldest.at)).Seconds()
	rate := func(n int64) float64 { return float64(n) / seconds }
	return minus(current.counts, t.before), store.Rates{
		Completed: rate(d.Completed), Failed: rate(d.Failed),
		Steps: rate(d.Steps),
	}
}

// acknowledged notes that the session's row has these counts.
func (t *tally) acknowledged(c store.Counts) { t.reported = c }

// moved notes that the session has a new row. That one counts what the earlier ones lack.
func (t *tally) moved() {
	t.before = plus(t.before, t.reported)
	t.reported = store.Counts{}
}

func plus(a, b store.Counts) store.Counts {
	return store.Counts{Completed: a.Completed + b.Completed, Failed: a.Failed + b.Failed, Steps: a.Steps + b.Steps}
}

func minus(a, b store.Counts) store.Counts {
	return store.Counts{Completed: a.Completed - b.Completed, Failed: a.Failed - b.Failed, Steps: a.Steps - b.Steps}
}
