package kagzi

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/store"
)

const (
	// troubleLasts is for how long a failure counts as still there. What fails is repeated more often than that.
	troubleLasts = time.Minute

	// troubleReminder is how often a failure that goes on is logged.
	troubleReminder = 5 * time.Minute

	// lockMatters is for how long somebody's lock may be in the way before people are told.
	lockMatters = 5 * time.Second

	// longestPause is the longest pause before something is repeated that fails although the database answers.
	longestPause = 15 * time.Second
)

// A trouble is something that the database answers with an error again and again.
type trouble struct {
	what   string
	err    error
	since  time.Time
	last   time.Time
	logged time.Time
	times  int
}

// matters reports whether people should be told. Locks pass, as a rule.
func (f *trouble) matters() bool {
	switch store.Classify(f.err) {
	case store.ClassLocked, store.ClassConflict:
		return f.last.Sub(f.since) >= lockMatters
	}
	return true
}

// troubles are what fails although the database answers: rights are missing, a table is locked, or what is to be read
// or written is too much. An outage is another thing: see outage. It is safe for concurrent use.
type troubles struct {
	begins, ends string // what is logged; "" for a worker's

	mu   sync.Mutex
	open map[string]*trouble // by what
}

// note says that what has failed. It is logged once, and again from time to time while it lasts.
func (t *troubles) note(log *slog.Logger, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	f := t.open[what]
	if f == nil || now.Sub(f.last) > troubleLasts {
		if t.open == nil {
			t.open = map[string]*trouble{}
		}
		maps.DeleteFunc(t.open, func(_ string, f *trouble) bool { return now.Sub(f.last) > troubleLasts })
		f = &trouble{what: what, since: now}
		t.open[what] = f
	}
	f.err, f.last = err, now
	f.times++
	if f.matters() && now.Sub(f.logged) >= troubleReminder {
		f.logged = now
		log.Error(cmp.Or(t.begins, "kagzi: the database refuses what the worker asks; it is tried again"), "what", what, "error", err, "times", f.times)
	}
}

// over says that what succeeds again.
func (t *troubles) over(log *slog.Logger, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.open[what]; f != nil {
		delete(t.open, what)
		if !f.logged.IsZero() {
			log.Info(cmp.Or(t.ends, "kagzi: the database does again what it refused"), "what", what, "after", time.Since(f.since).Round(time.Millisecond), "times", f.times)
		}
	}
}

// now lists what fails.
func (t *troubles) now() []trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []trouble
	for _, f := range t.open {
		if f.matters() && time.Since(f.last) <= troubleLasts {
			out = append(out, *f)
		}
	}
	slices.SortFunc(out, func(a, b trouble) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.what, b.what)) })
	return out
}

// operation is what failed with an error of the store's: the words before its first colon.
func operation(err error) string {
	what, _, _ := strings.Cut(err.Error(), ":")
	return what
}

// troublePause is how long to wait before what has failed that many times is repeated.
func troublePause(failures int) time.Duration {
	pause := databasePause << min(failures, 10)
	return time.Duration(float64(min(pause, longestPause)) * (0.75 + rand.Float64()/2))
}

// sessionTroubles adds to the report what the workers of this client cannot do although the database answers.
func (e *examination) sessionTroubles() {
	var all []string
	e.c.mu.Lock()
	sessions := slices.Collect(maps.Keys(e.c.sessions))
	e.c.mu.Unlock()
	for _, s := range sessions {
		for _, f := range s.troubles.now() {
			all = append(all, fmt.Sprintf("cannot %s for %s: %s", f.what, duration.About(time.Since(f.since)), reason(f.err)))
		}
	}
	if all != nil {
		e.note("work", Degraded, "A worker of this process %s. It tries again.", few(all))
	}
}

// pauseAfter is how long to wait before what has failed with err, after so many failures before, is asked again: the same
// while the database does not answer, ever longer while it answers with an error.
func (s *session) pauseAfter(err error, failures int) time.Duration {
	if store.Away(err) {
		return databasePause
	}
	return troublePause(failures)
}
