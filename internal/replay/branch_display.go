package replay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/store"
)

// visibleAfter is how long an attempt of a step runs before the table shows it as RUNNING.
const visibleAfter = time.Second

// A display shows, in the table, the attempt of a step that has run for visibleAfter. Each branch has one for all of
// its steps: it executes one at a time, and few attempts take that long. The watchdog finds the attempt here, too.
type display struct {
	by shower // writes the attempt. Set by begin.

	mu      sync.Mutex
	timer   *time.Timer // calls fire. Made by the first begin; nil before.
	due     time.Time   // when the attempt is to be shown; zero: none is under way, or it is shown
	attempt attemptUnderWay
}

// An attemptUnderWay is an attempt of a step, as the table shows it.
type attemptUnderWay struct {
	id            string
	number, first int
	position      int64
	input         []byte
	ctx           context.Context // of its function
}

// A shower writes attempts for people: it is the recorder of the branch.
type shower interface{ show(a attemptUnderWay) }

// record returns a record which says that the attempt is under way.
func (a attemptUnderWay) record(newRecord func(id, kind, status string, attempt, first int) *store.Record,
) *store.Record {
	r := newRecord(a.id, store.KindFunction, store.Running, a.number, a.first)
	r.Position, r.Elapsed, r.Input = a.position, visibleAfter, a.input
	return r
}

// begin is called when an attempt begins, at that time. end is called when it is over.
func (d *display) begin(a attemptUnderWay, at time.Time, by shower) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempt, d.due, d.by = a, at.Add(visibleAfter), by
	if d.timer == nil {
		d.timer = time.AfterFunc(visibleAfter, d.fire)
	} else {
		d.timer.Reset(visibleAfter)
	}
}

// beginHidden is begin for an attempt that the table never shows.
func (d *display) beginHidden(a attemptUnderWay) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempt = a
}

// current returns the attempt under way, and whether its function is being executed, as inFunction says.
func (d *display) current(inFunction *atomic.Bool) (attemptUnderWay, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attempt, inFunction.Load()
}

func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.attempt, d.due = attemptUnderWay{}, time.Time{}
}

// fire shows the attempt if it is due. The timer may have fired for an attempt before it: end does not wait for a call
// of fire that has begun.
func (d *display) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due.IsZero() || time.Now().Before(d.due) {
		return
	}
	d.due = time.Time{}
	d.by.show(d.attempt)
}
