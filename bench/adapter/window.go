package main

import (
	"math"
	"sync"
	"time"
)

// A window keeps the durations of the last half minute, in little memory: it counts them in classes that are half a
// percent wide.
type window struct {
	now func() time.Time

	mu      sync.Mutex
	seconds [30]second
}

type second struct {
	at      int64 // since 1970
	classes [classes]uint32
}

const (
	shortest = 10 * time.Microsecond
	width    = 1.005
	classes  = 3500 // up to six minutes
)

func newWindow(now func() time.Time) *window { return &window{now: now} }

func (w *window) add(d time.Duration) {
	class := 0
	if d > shortest {
		class = min(int(math.Log(float64(d)/float64(shortest))/math.Log(width)), classes-1)
	}
	at := w.now().Unix()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seconds[at%int64(len(w.seconds))]
	if s.at != at {
		*s = second{at: at}
	}
	s.classes[class]++
}

// quantiles returns quantiles in milliseconds; zero if there is no duration.
func (w *window) quantiles(of ...float64) []float64 {
	var sum [classes]uint64
	total := uint64(0)
	oldest := w.now().Unix() - int64(len(w.seconds))
	w.mu.Lock()
	for i := range w.seconds {
		if w.seconds[i].at <= oldest {
			continue
		}
		for class, n := range w.seconds[i].classes {
			sum[class] += uint64(n)
			total += uint64(n)
		}
	}
	w.mu.Unlock()
	out := make([]float64, len(of))
	for i, q := range of {
		seen := uint64(0)
		for class, n := range sum {
			if seen += n; n > 0 && float64(seen) >= q*float64(total) {
				out[i] = float64(shortest) * math.Pow(width, float64(class)+0.5) / float64(time.Millisecond)
				break
			}
		}
	}
	return out
}
