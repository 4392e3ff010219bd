package replay

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// awaitedRuns are the runs for whose results the functions of a branch's steps wait.
type awaitedRuns struct {
	mu   sync.Mutex
	runs []*awaitedRun // the one that is awaited for longest first
}

// An awaitedRun is one wait for the result of a run.
type awaitedRun struct {
	id    uuid.UUID
	since time.Time
}

// begin notes a wait for the result of a run, until the caller calls ended.
func (w *awaitedRuns) begin(id uuid.UUID) (ended func()) {
	a := &awaitedRun{id, time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs = append(w.runs, a)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs = slices.DeleteFunc(w.runs, func(other *awaitedRun) bool { return other == a })
	}
}

// first returns the wait that has lasted for longest, nil if there is none.
func (w *awaitedRuns) first() *awaitedRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		return nil
	}
	return w.runs[0]
}
