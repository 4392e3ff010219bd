package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A journal has what the runs of a round reported. Times are those of this machine's clock, which all its processes
// share.
type journal struct {
	began, woke []atomic.Int64 // by the run's number: the first report's time, in nanoseconds since 1970

	nBegan, nEnded atomic.Int64

	mu      sync.Mutex
	reached chan struct{} // closed and replaced whenever nBegan or nEnded has reached a wanted number
	wanted  atomic.Int64  // zero: no benchmark waits
}

func newJournal(runs int) *journal {
	return &journal{began: make([]atomic.Int64, runs), woke: make([]atomic.Int64, runs), reached: make(chan struct{})}
}

// report is the report of a task in this process.
func (j *journal) report(e event, n int) { j.reportAt(e, n, time.Now()) }

func (j *journal) reportAt(e event, n int, at time.Time) {
	var count int64
	switch e {
	case began:
		if !j.began[n].CompareAndSwap(0, at.UnixNano()) {
			return
		}
		count = j.nBegan.Add(1)
	case woke:
		j.woke[n].CompareAndSwap(0, at.UnixNano())
		return
	case ended:
		count = j.nEnded.Add(1)
	}
	if count == j.wanted.Load() {
		j.mu.Lock()
		defer j.mu.Unlock()
		close(j.reached)
		j.reached = make(chan struct{})
	}
}

// wait returns once count, a counter of j, is at least n. Only one goroutine may wait at once.
func (j *journal) wait(ctx context.Context, count *atomic.Int64, n int) error {
	j.mu.Lock()
	reached := j.reached
	j.mu.Unlock()
	j.wanted.Store(int64(n))
	defer j.wanted.Store(0)
	for count.Load() < int64(n) {
		select {
		case <-reached:
			j.mu.Lock()
			reached = j.reached
			j.mu.Unlock()
		case <-ctx.Done():
			return fmt.Errorf("%d of %d runs after all this time: %w", count.Load(), n, ctx.Err())
		}
	}
	return nil
}

// firstBegan returns when the first run began.
func (j *journal) firstBegan() time.Time {
	var first int64
	for i := range j.began {
		if at := j.began[i].Load(); at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return time.Unix(0, first)
}

// quantiles returns the 50th, 95th and 99th percentile of durations in milliseconds, or three NaN if there are none.
func quantiles(d []time.Duration) []float64 {
	if len(d) == 0 {
		return []float64{nan, nan, nan}
	}
	slices.Sort(d)
	at := func(p float64) float64 { return d[min(int(p*float64(len(d))), len(d)-1)].Seconds() * 1000 }
	return []float64{at(0.50), at(0.95), at(0.99)}
}
