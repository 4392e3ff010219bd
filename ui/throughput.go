package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A throughput keeps the counts of each of the last minutes. To count an hour reads every run of it, so minutes that
// are over are counted once, and then only the current one and the one before.
//
// No index has the ends of runs by time: each run that ends would write to it. With two million runs it takes a second
// to find those of the last minute. So most counts look only among the runs that were started lately, which takes a few
// hundredths of that, and every ten minutes one looks among all. Until then the minutes since the last one lack the
// ends of runs that have been active for more than an hour.
type throughput struct {
	admin   *admin.Client
	mu      sync.Mutex
	minutes map[int64]minute // by the minute since 1970
	counted int64            // the minute in which they were counted last; zero before the first time
	older   map[int64]minute // the ends that minutes lacks: those of runs that were started before amongRuns
	among   int64            // the minute in which older was counted last
}

const (
	// endsEvery is after how many minutes the ends of all runs are counted.
	endsEvery = 10
	// amongRuns is how much older than the first minute the runs are whose ends the other counts find. The count reads
	// those of a day in any case.
	amongRuns = time.Hour
)

// A minute has the counts of one of them.
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

// look counts the runs that were started and ended, by minute.
func (t *throughput) look(ctx context.Context, _ web.Query) (any, error) {
	stats, err := t.admin.Stats(ctx) // for the time of the database, by which runs end
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := stats.At.Unix() / 60
	from, all := max(t.counted-1, now-shown+1), now-t.among >= endsEvery
	if all {
		from = now - shown + 1
	}
	since := time.Unix(from*60, 0).UTC()
	started, err := t.admin.Runs.Count(ctx, kagzi.RunFilter{Since: since}, admin.ByStarted(time.Minute))
	if err != nil {
		return nil, err
	}
	ended, err := t.admin.Runs.Count(ctx, kagzi.RunFilter{EndedSince: since, Since: since.Add(-amongRuns)},
		admin.ByStatus,
		admin.ByEnded(time.Minute))
	if err != nil {
		return nil, err
	}
	if all {
		every, err := t.admin.Runs.Count(ctx, kagzi.RunFilter{EndedSince: since}, admin.ByStatus,
			admin.ByEnded(time.Minute))
		if err != nil {
			return nil, err
		}
		t.older, t.among = map[int64]minute{}, now
		add(t.older, every, now, 1)
		add(t.older, ended, now, -1)
	}
	t.put(from, now, started, ended)
	t.counted = now
	return t.chart(now), nil
}

// put replaces the minutes from the first to the last. The caller holds the lock.
func (t *throughput) put(first, last int64, started, ended []admin.RunCount) {
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
	add(t.minutes, ended, last, 1)
}

// add adds the ends, or takes them away if sign is -1.
func add(to map[int64]minute, ended []admin.RunCount, last int64, sign int) {
	for _, c := range ended {
		at := min(c.Ended.Unix()/60, last)
		m := to[at]
		switch n := sign * c.Runs; c.Status {
		case kagzi.StatusCompleted:
			m.Completed += n
		case kagzi.StatusFailed:
			m.Failed += n
		case kagzi.StatusCancelled:
			m.Cancelled += n
		}
		to[at] = m
	}
}

// chart returns the hour that ends with the minute. The caller holds the lock.
func (t *throughput) chart(last int64) chart {
	c := chart{Minutes: make([]minute, 0, shown)}
	for at := last - shown + 1; at <= last; at++ {
		m, older := t.minutes[at], t.older[at]
		m.At = time.Unix(at*60, 0).UTC()
		m.Completed, m.Failed, m.Cancelled = max(0, m.Completed+older.Completed), max(0, m.Failed+older.Failed),
			max(0, m.Cancelled+older.Cancelled)
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
