package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
)

// A throughput keeps what happened in each of the last minutes. To count an hour reads every run of it, so minutes that are over are counted once, and then
// only the current one and the one before. With two million runs the count of those that ended takes a second, however few of them did lately: so it is a part, and
// its cost decides how often it is made.
type throughput struct {
	mu      sync.Mutex
	minutes map[int64]minute // by the minute since 1970
	counted int64            // the minute in which they were counted last; zero before the first time
}

// A minute is what happened in one of them.
type minute struct {
	At                         time.Time
	Started, Completed, Failed int
	Cancelled                  int
}

// A chart is the view model of the throughput.
type chart struct {
	Minutes []minute // the last hour, the oldest first
	Sum     minute
}

const shown = 60

// throughput counts the runs that were started and ended, by minute.
func (d *dashboard) throughput(ctx context.Context, _ query) (any, error) {
	stats, err := d.client.Stats(ctx) // for the time of the database, by which runs end
	if err != nil {
		return nil, err
	}
	t := &d.rates
	t.mu.Lock()
	defer t.mu.Unlock()
	now := stats.At.Unix() / 60
	from := max(t.counted-1, now-shown+1)
	since := time.Unix(from*60, 0).UTC()
	started, err := d.client.Counts(ctx, kagzi.RunFilter{Since: since}, kagzi.ByStarted(time.Minute))
	if err != nil {
		return nil, err
	}
	ended, err := d.client.Counts(ctx, kagzi.RunFilter{EndedSince: since}, kagzi.ByStatus, kagzi.ByEnded(time.Minute))
	if err != nil {
		return nil, err
	}
	t.put(from, now, started, ended)
	t.counted = now
	return t.chart(now), nil
}

// put replaces the minutes from the first to the last. The caller holds the lock.
func (t *throughput) put(first, last int64, started, ended []kagzi.RunCount) {
	if t.minutes == nil {
		t.minutes = map[int64]minute{}
	}
	for at := range t.minutes {
		if at >= first || at <= last-shown {
			delete(t.minutes, at)
		}
	}
	for _, c := range started {
		at := min(c.Started.Unix()/60, last) // the clock of who starts runs may be ahead
		m := t.minutes[at]
		m.Started += c.Runs
		t.minutes[at] = m
	}
	for _, c := range ended {
		at := min(c.Ended.Unix()/60, last)
		m := t.minutes[at]
		switch c.Status {
		case kagzi.StatusCompleted:
			m.Completed += c.Runs
		case kagzi.StatusFailed:
			m.Failed += c.Runs
		case kagzi.StatusCancelled:
			m.Cancelled += c.Runs
		}
		t.minutes[at] = m
	}
}

// chart returns the hour that ends with the minute. The caller holds the lock.
func (t *throughput) chart(last int64) chart {
	c := chart{Minutes: make([]minute, 0, shown)}
	for at := last - shown + 1; at <= last; at++ {
		m := t.minutes[at]
		m.At = time.Unix(at*60, 0).UTC()
		c.Minutes = append(c.Minutes, m)
		c.Sum.Started += m.Started
		c.Sum.Completed += m.Completed
		c.Sum.Failed += m.Failed
		c.Sum.Cancelled += m.Cancelled
	}
	return c
}

// Newest returns the minutes for a table, the newest first.
func (c chart) Newest() []minute {
	out := slices.Clone(c.Minutes)
	slices.Reverse(out)
	return out
}

// Quiet reports whether nothing has happened.
func (c chart) Quiet() bool { return c.Sum == minute{} }
