package outage

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

const (
	// failureLasts is how long a failure counts as current. A failing operation is repeated more often than that.
	failureLasts = time.Minute

	// reminder is the interval at which a failure that lasts is logged again.
	reminder = 5 * time.Minute

	// lockMatters is how long a lock may block an operation before it is logged.
	lockMatters = 5 * time.Second
)

// A Failure is an operation that fails again and again although the database answers.
type Failure struct {
	What  string // such as "claim runs"
	Err   error  // the last one
	Since time.Time

	last   time.Time // when it last failed
	logged time.Time // when it was last logged; zero: never
	times  int       // number of failures since Since
}

// matters reports whether the failure should be logged and reported. Failures because of a lock are usually short.
func (f *Failure) matters() bool {
	switch pg.Classify(f.Err) {
	case pg.ClassLocked, pg.ClassConflict:
		return f.last.Sub(f.Since) >= lockMatters
	}
	return true
}

// Failures are the operations that fail although the database answers: rights are missing, a table is locked, or the
// data is too large. The zero value logs those of a worker. Failures are safe for concurrent use.
type Failures struct {
	Begins, Ends string // log lines; "" means those of a worker

	mu   sync.Mutex          // guards open
	open map[string]*Failure // by What
}

// Note records that the operation what has failed with err. It logs that once, and again from time to time while it
// lasts.
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
		log.Error(cmp.Or(t.Begins, "kagzi: the database refuses an operation of the worker; it is tried again"), "what",
			what, "error", err, "times", f.times)
	}
}

// Over records that the operation what has succeeded.
func (t *Failures) Over(log *slog.Logger, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.open[what]; f != nil {
		delete(t.open, what)
		if !f.logged.IsZero() {
			log.Info(cmp.Or(t.Ends, "kagzi: the database no longer refuses the operation"), "what", what, "after",
				time.Since(f.Since).Round(time.Millisecond).String(), "times", f.times)
		}
	}
}

// Now returns the current failures.
func (t *Failures) Now() []Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Failure
	for _, f := range t.open {
		if f.matters() && time.Since(f.last) <= failureLasts {
			out = append(out, *f)
		}
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What))
	})
	return out
}

// Operation returns the operation that failed with an error of the store: the words before the first colon.
func Operation(err error) string {
	what, _, _ := strings.Cut(err.Error(), ":")
	return what
}
