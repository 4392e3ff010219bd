package hints

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// results lets any number of callers wait for the ends of runs. Runs that are queried about the same time share a
// query. Its goroutine runs while there are waiters.
type results struct {
	hints *Hints
	ready func(context.Context) error // returns an error if this program does not work with the schema

	mu         sync.Mutex // guards the fields below
	waiting    map[uuid.UUID]*awaitedRun
	urgent     []uuid.UUID // of waiting: to query at once, because of a new waiter, or of a hint
	next       time.Time   // when the first of the others is queried if no hint comes
	lastNumber uint64      // the number of the last waiter
	// of capacity one: tells the goroutine that urgent has runs, or that waiting is empty; nil while there is none
	wake chan struct{}

	listening waitingListener
}

// An awaitedRun is a run with waiters.
type awaitedRun struct {
	waiters []waiter
	pause   time.Duration // the last pause between two queries for it
	next    time.Time     // when it is queried next if no hint comes
}

// A waiter is one call of Result. It does not get a result that was read before it came, because the run may have been
// resumed since.
type waiter struct {
	number uint64 // in the order in which waiters came
	ch     chan ending
}

type ending struct {
	store.Ended
	err error
}

// The pauses between two queries for a run while no hint comes: they triple, from short ones for short runs to the
// longest. While notifications arrive, a query finds something only if a notification was lost.
const (
	firstPause            = time.Millisecond
	longestPause          = 250 * time.Millisecond
	firstPauseListening   = 100 * time.Millisecond
	longestPauseListening = 2 * time.Second

	// youngest is how old a run is, by its ID, when it is queried first while notifications arrive. Most callers wait
	// for a run that they have just started. A query at once would find that it has not ended, and would compete with
	// the run for the processors.
	youngest = 10 * time.Millisecond
)

// Result waits for the end of the run, whichever process executes it. It returns store.ErrRunNotFound if there is no
// such run, the error of ctx if that ends first, and the database's error if it refuses the queries for longer than
// refusalTolerance.
func (h *Hints) Result(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	return h.results.wait(ctx, id)
}

// LastWaiter returns the number of the last waiter for a result so far, for Deliver.
func (h *Hints) LastWaiter() uint64 { return h.results.last() }

// Deliver passes the end of a run to those in this process who wait for it, up to the waiter numbered last. Those who
// came after this end was written may wait for a later one, of a run that was resumed.
func (h *Hints) Deliver(end store.Ended, last uint64) {
	h.results.deliver(ending{Ended: end}, last)
}

func (r *results) wait(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	if err := r.awaitReady(ctx); err != nil {
		return store.Ended{}, err
	}
	var pause time.Duration
	if r.hints.Listening() {
		pause = youth(id, time.Now())
	}
	ch := r.join(id, pause)
	select {
	case e := <-ch:
		return e.Ended, e.err
	case <-ctx.Done():
		r.leave(id, ch)
		return store.Ended{}, ctx.Err()
	}
}

// awaitReady checks the schema. It waits while the database is away.
func (r *results) awaitReady(ctx context.Context) error {
	for {
		err := r.ready(ctx)
		if err == nil || ctx.Err() != nil || !pg.Unavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

// join adds a waiter for the run, and has the run queried after the pause, or at once if others wait for it: the answer
// of a query that is under way is not for this waiter.
func (r *results) join(id uuid.UUID, pause time.Duration) <-chan ending {
	ch := make(chan ending, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[uuid.UUID]*awaitedRun{}
	}
	a := r.waiting[id]
	if a == nil {
		a = &awaitedRun{}
		r.waiting[id] = a
	} else {
		pause = 0
	}
	r.lastNumber++
	a.waiters, a.pause = append(a.waiters, waiter{r.lastNumber, ch}), 0
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
		r.listening.begin()
		go r.run(r.wake)
	}
	if pause == 0 {
		r.queryNow(id)
		return ch
	}
	a.next = time.Now().Add(pause)
	r.next = earlier(r.next, a.next)
	goroutine.Signal(r.wake)
	return ch
}

// youth returns how long it takes until the run is as old as youngest. It is zero if the run is, if its ID does not
// say, or if the ID comes from a process whose clock is ahead.
func youth(id uuid.UUID, now time.Time) time.Duration {
	if id.Version() != 7 {
		return 0
	}
	age := now.Sub(time.Unix(id.Time().UnixTime()))
	if age < 0 || age > youngest {
		return 0
	}
	return youngest - age
}

// queryNow makes the goroutine query for the run at once. Its caller holds mu.
func (r *results) queryNow(id uuid.UUID) {
	r.urgent = append(r.urgent, id)
	goroutine.Signal(r.wake)
}

func (r *results) leave(id uuid.UUID, ch <-chan ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.waiting[id]; a != nil {
		r.keep(id, slices.DeleteFunc(a.waiters, func(w waiter) bool { return w.ch == ch }))
	}
}

// keep replaces the waiters for the run. If no run has a waiter, it tells the goroutine to end. Its caller holds mu.
func (r *results) keep(id uuid.UUID, waiters []waiter) {
	if len(waiters) > 0 {
		r.waiting[id].waiters = waiters
		return
	}
	delete(r.waiting, id)
	if len(r.waiting) == 0 && r.wake != nil {
		goroutine.Signal(r.wake)
	}
}

// last returns the number of the last waiter so far.
func (r *results) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastNumber
}

// deliver passes e to those who wait for its run, up to the waiter numbered last: the last one when the query for e
// began.
func (r *results) deliver(e ending, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.waiting[e.RunID]
	if a == nil {
		return
	}
	var later []waiter
	for _, w := range a.waiters {
		if w.number <= last {
			w.ch <- e
		} else {
			later = append(later, w)
		}
	}
	r.keep(e.RunID, later)
}

// refresh makes the goroutine query at once for those of ids that have waiters; nil means all runs.
func (r *results) refresh(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ids == nil {
		ids = slices.Collect(maps.Keys(r.waiting))
	}
	for _, id := range ids {
		if r.waiting[id] != nil {
			r.queryNow(id)
		}
	}
}

// due returns the runs to query now: the urgent ones and, when the time has come, all whose pause is almost over. If
// more is false, there are no waiters, and its caller, which is the goroutine, must end.
func (r *results) due(now time.Time) (ids []uuid.UUID, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.wake, r.urgent, r.next = nil, nil, time.Time{}
		r.listening.end()
		return nil, false
	}
	ids, r.urgent = r.urgent, nil
	if !now.Before(r.next) {
		r.next = now.Add(longestPauseListening)
		for id, a := range r.waiting {
			if now.Before(a.next.Add(-a.pause / 4)) {
				r.next = earlier(r.next, a.next)
			} else {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids), true
}

// queried decides when those of ids that have not ended are queried again, after a query that took so long, and returns
// when the next run is.
func (r *results) queried(ids []uuid.UUID, took time.Duration) time.Time {
	first, longest := firstPause, longestPause
	if r.hints.Listening() {
		first, longest = firstPauseListening, longestPauseListening
	}
	longest = max(longest, 10*took) // slow queries are sent less often
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); len(ids) > 0; ids = ids[1:] {
		if a := r.waiting[ids[0]]; a != nil {
			a.pause = min(max(3*a.pause, first, took), longest)
			a.next = now.Add(a.pause)
			r.next = earlier(r.next, a.next)
		}
	}
	return r.next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// run queries for the ends of runs until there are no waiters.
func (r *results) run(wake <-chan struct{}) {
	q := newQuery(r)
	defer q.batcher.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ids, more := r.due(time.Now())
		if !more {
			return
		}
		q.fetchAll(ids)
		r.listening.waited()
		timer.Reset(time.Until(r.queried(ids, q.took)))
		select {
		case <-wake:
		case <-timer.C:
		}
	}
}
