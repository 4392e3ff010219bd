package worker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A watchdog looks for code that hangs, for a session. See doc_hung.go.
type watchdog struct {
	*standing.Worker
	env    *replay.Env
	after  time.Duration // how long code must have gone on
	roster *roster
	room   func() (all, free, waiting int) // slots of the session

	mu *sync.Mutex // the session'w. It guards the fields below.
	// their runs were given up, and their code has not returned. Added by abandon, removed by lookForHung.
	abandoned map[*held]bool
	hung      *store.Hung // of the last pass, for the heartbeat; nil: none
}

// watch looks for code that hangs until stop is closed, and then once more: what goes on after the drain does not obey
// its context.
func (w *watchdog) watch(stop chan struct{}) {
	look := replay.Watch(w.env, w.after)
	ticker := time.NewTicker(max(w.after/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.lookForHung(look, false)
		case <-stop:
			w.lookForHung(look, true)
			return
		}
	}
}

// lookForHung makes a pass of the watchdog over the runs that the session holds or has given up. A heartbeat is sent at
// once if there is more or less to report than before.
func (w *watchdog) lookForHung(look func(map[*replay.Run]bool, int, bool) *store.Hung, last bool) {
	slots, free, _ := w.room()
	if free > 0 {
		slots = 0
	}
	held := w.roster.all()
	w.mu.Lock()
	abandoned := maps.Clone(w.abandoned)
	w.mu.Unlock()
	runs := make(map[*replay.Run]bool, len(held)+len(abandoned))
	for h := range abandoned {
		runs[&h.Run] = false
	}
	for _, h := range held {
		runs[&h.Run] = h.holdsSlot()
	}
	hung := look(runs, slots, last)
	w.mu.Lock()
	for h := range abandoned {
		if _, goesOn := runs[&h.Run]; !goesOn {
			delete(w.abandoned, h)
		}
	}
	w.mu.Unlock()
	if w.setHung(hung) {
		goroutine.Signal(w.Heartbeats)
	}
}

// abandon makes the watchdog go on watching the run, which is given up although its code has not returned.
func (w *watchdog) abandon(h *held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned[h] = true
}

// setHung replaces the report. It reports whether there is more or less of it than before.
func (w *watchdog) setHung(h *store.Hung) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.hung
	w.hung = h
	switch {
	case old == nil || h == nil:
		return old != h
	case old.Functions != h.Functions || old.Slots != h.Slots:
		return true
	}
	return !slices.Equal(old.Codes, h.Codes)
}

// report returns the report of the last pass; nil: nothing hangs.
func (w *watchdog) report() *store.Hung {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hung
}

// Hung returns how many functions hang.
func (w *watchdog) Hung() int {
	if h := w.report(); h != nil {
		return h.Functions
	}
	return 0
}
