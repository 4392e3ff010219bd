package top

import (
	"time"

	"github.com/kagzi/kagzi/admin"
)

// window is the time over which rates are measured: workers report with each heartbeat, which is every ten seconds by
// default.
const window = 30 * time.Second

// rates measures how many runs end in a second, by the counters of the workers.
type rates struct{ samples []sample }

type sample struct {
	at    time.Time
	ended map[string]counts // by worker
}

type counts struct{ completed, failed int64 }

func (r *rates) add(at time.Time, workers []admin.WorkerInfo) {
	s := sample{at, make(map[string]counts, len(workers))}
	for _, w := range workers {
		s.ended[w.ID] = counts{w.Completed, w.Failed}
	}
	r.samples = append(r.samples, s)
	for len(r.samples) > 2 && at.Sub(r.samples[1].at) >= window {
		r.samples = r.samples[1:]
	}
}

// of returns the runs that a worker completed in a second, and those that failed.
func (r *rates) of(worker string) (completed, failed float64) {
	if len(r.samples) < 2 {
		return 0, 0
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	now, before := last.ended[worker], first.ended[worker] // zero before for a worker that has started since
	return float64(now.completed-before.completed) / seconds, float64(now.failed-before.failed) / seconds
}
