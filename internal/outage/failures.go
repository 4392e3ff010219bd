package outage

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

const (
	// failureLasts is for how long a failure counts as still there. What fails is repeated more often than that.
	failureLasts = time.Minute

	// reminder is how often a failure that goes on is logged.
	reminder = 5 * time.Minute

	// lockMatters is for how long somebody's lock may be in the way before people are told.
	lockMatters = 5 * time.Second
)

// A Failure is a kind of statement that the database answers with an error again and again.
type Failure struct {
	What  string // such as "claim runs"
	Err   error  // the last one
	Since time.Time

	last   time.Time
	logged time.Time
	times  int
}

// matters reports whether people should be told. Locks pass, as a rule.
func (f *Failure) matters() bool {
	switch store.Classify(f.Err) {
	case store.ClassLocked, store.ClassConflict:
		return f.last.Sub(f.Since) >= lockMatters
	}
	return true
}

// Failures are kinds of statements that fail although the database answers: rights are missing, a table is locked, or the
// data is too large. The zero value logs a worker's. Failures are safe for concurrent use.
type Failures struct {
	Begins, Ends string // the lines of the log; "" for a worker's

	mu   sync.Mutex
	open map[string]*Failure // by What
}

// Note says that what has failed with err. It is logged once, and again from time to time while it lasts.
func (t *Failures) Note(log *slog.Logger, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	f := t.open[what]
	if f == nil || now.Sub(f.last) > failureLasts {
		if t.open == nil {
			t.open = map[string]*Failure{}
		}
		maps.DeleteFunc(t.open, func(_ string, f *Failure) bool { return now.Sub(f.last) > failureLasts })
		f = &Failure{What: what, Since: now}
		t.open[what] = f
	}
	f.Err, f.last = err, now
	f.times++
	if f.matters() && now.Sub(f.logged) >= reminder {
		f.logged = now
		log.Error(cmp.Or(t.Begins, "kagzi: the database refuses what the worker asks; it is tried again"), "what", what, "error", err, "times", f.times)
	}
}

// Over says that what succeeds again.
func (t *Failures) Over(log *slog.Logger, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.open[what]; f != nil {
		delete(t.open, what)
		if !f.logged.IsZero() {
			log.Info(cmp.Or(t.Ends, "kagzi: the database does again what it refused"), "what", what, "after", time.Since(f.Since).Round(time.Millisecond), "times", f.times)
		}
	}
}

// Now lists what fails.
func (t *Failures) Now() []Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Failure
	for _, f := range t.open {
		if f.matters() && time.Since(f.last) <= failureLasts {
			out = append(out, *f)
		}
	}
	slices.SortFunc(out, func(a, b Failure) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return out
}

// Operation is what failed with an error of the store's: the words before its first colon.
func Operation(err error) string {
	what, _, _ := strings.Cut(err.Error(), ":")
	return what
}
