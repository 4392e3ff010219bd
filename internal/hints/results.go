package hints

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// results lets any number of callers wait for the ends of runs, for the answers to requests, and for values. Those that
// are queried about the same time share a query. Its goroutine runs while there are waiters.
type results struct {
	hints *Hints
	ready func(context.Context) error // returns an error if this program does not work with the schema

	mu         sync.Mutex // guards the fields below
	waiting    map[awaited]*awaiting
	whileOn    map[uuid.UUID]map[awaited]bool // those of waiting that need no end of the run, by the run
	urgent     []awaited                      // of waiting: to query at once, because of a new waiter, or of a hint
	next       time.Time                      // when the first of the others is queried if no hint comes
	lastNumber uint64                         // the number of the last waiter
	// of capacity one: tells the goroutine that urgent is not empty, or that waiting is empty; nil while there is none
	wake chan struct{}

	listening waitingListener
}

// An awaited is what a waiter waits for: the end of a run, the answer to a request, or another version of a value.
type awaited struct {
	run     uuid.UUID
	request string // the ID of its message; empty: none
	value   string // its name; empty: none
	known   int64  // the version of the value that the waiter knows
}

// isEnd reports whether it is the end of a run.
func (a awaited) isEnd() bool { return a.request == "" && a.value == "" }

func compareAwaited(a, b awaited) int {
	return cmp.Or(bytes.Compare(a.run[:], b.run[:]), cmp.Compare(a.request, b.request), cmp.Compare(a.value, b.value),
		cmp.Compare(a.known, b.known))
}

// An awaiting has the waiters for an awaited.
type awaiting struct {
	waiters []waiter
	pause   time.Duration // the last pause between two queries for it
	next    time.Time     // when it is queried next if no hint comes
}

// A waiter is one call of Result, Answer or Value. It does not get a result that was read before it came, because the
// run may have been resumed since.
type waiter struct {
	number uint64 // in the order in which waiters came
	ch     chan ending
}

// An ending is what waiters get.
type ending struct {
	of     awaited
	end    store.Ended  // of the run
	answer store.Answer // to the request
	value  store.Value
	err    error
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
	pause := time.Duration(0)
	if h.Listening() {
		pause = youth(id, time.Now())
	}
	e, err := h.results.wait(ctx, awaited{run: id}, pause)
	return e.end, err
}

// Answer waits until the request is open no longer, whichever process executes its run. fresh says that it was just
// sent. Otherwise Answer returns the errors of Result.
func (h *Hints) Answer(ctx context.Context, k store.RequestKey, fresh bool) (store.Answer, error) {
	pause := time.Duration(0)
	if fresh && h.Listening() {
		pause = youngest
	}
	e, err := h.results.wait(ctx, awaited{run: k.RunID, request: k.ID}, pause)
	return e.answer, err
}

// Value waits until the value has another version than is known, or will have none, whichever process executes its run.
// It returns the errors of Result.
func (h *Hints) Value(ctx context.Context, k store.ValueKey) (store.Value, error) {
	e, err := h.results.wait(ctx, awaited{run: k.RunID, value: k.Name, known: k.Known}, 0)
	return e.value, err
}

// LastWaiter returns the number of the last waiter for a result so far, for Deliver.
func (h *Hints) LastWaiter() uint64 { return h.results.last() }

// Deliver passes the end of a run to those in this process who wait for it, up to the waiter numbered last. Those who
// came after this end was written may wait for a later one, of a run that was resumed.
func (h *Hints) Deliver(end store.Ended, last uint64) {
	h.results.deliver(ending{of: awaited{run: end.RunID}, end: end}, last)
	h.results.refreshWhileOn([]uuid.UUID{end.RunID})
}

// wait waits for an ending, which is queried first after the pause.
func (r *results) wait(ctx context.Context, of awaited, pause time.Duration) (ending, error) {
	if err := r.awaitReady(ctx); err != nil {
		return ending{}, err
	}
	ch := r.join(of, pause)
	select {
	case e := <-ch:
		return e, e.err
	case <-ctx.Done():
		r.leave(of, ch)
		return ending{}, ctx.Err()
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

// join adds a waiter, and has what it waits for queried after the pause, or at once if others wait for it: the answer
// of a query that is under way is not for this waiter.
func (r *results) join(of awaited, pause time.Duration) <-chan ending {
	ch := make(chan ending, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting, r.whileOn = map[awaited]*awaiting{}, map[uuid.UUID]map[awaited]bool{}
	}
	a := r.waiting[of]
	if a == nil {
		a = &awaiting{}
		r.waiting[of] = a
		r.addWhileOn(of)
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
		r.queryNow(of)
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

// addWhileOn adds of to whileOn, unless it is an end. Its caller holds mu.
func (r *results) addWhileOn(of awaited) {
	if of.isEnd() {
		return
	}
	if r.whileOn[of.run] == nil {
		r.whileOn[of.run] = map[awaited]bool{}
	}
	r.whileOn[of.run][of] = true
}

// removeWhileOn is the inverse of addWhileOn.
func (r *results) removeWhileOn(of awaited) {
	delete(r.whileOn[of.run], of)
	if len(r.whileOn[of.run]) == 0 {
		delete(r.whileOn, of.run)
	}
}

// queryNow makes the goroutine query for it at once. Its caller holds mu.
func (r *results) queryNow(of awaited) {
	r.urgent = append(r.urgent, of)
	goroutine.Signal(r.wake)
}

func (r *results) leave(of awaited, ch <-chan ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.waiting[of]; a != nil {
		r.keep(of, slices.DeleteFunc(a.waiters, func(w waiter) bool { return w.ch == ch }))
	}
}

// keep replaces the waiters. If there are none for anything, it tells the goroutine to end. Its caller holds mu.
func (r *results) keep(of awaited, waiters []waiter) {
	if len(waiters) > 0 {
		r.waiting[of].waiters = waiters
		return
	}
	delete(r.waiting, of)
	r.removeWhileOn(of)
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

// deliver passes e to those who wait for it, up to the waiter numbered last: the last one when the query for e
// began.
func (r *results) deliver(e ending, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.waiting[e.of]
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
	r.keep(e.of, later)
}

// refresh makes the goroutine query at once for the ends of the runs, their requests and their values, as far as they
// have waiters; nil means all runs.
func (r *results) refresh(runs []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if runs == nil {
		for of := range r.waiting {
			r.queryNow(of)
		}
	}
	for _, run := range runs {
		if of := (awaited{run: run}); r.waiting[of] != nil {
			r.queryNow(of)
		}
		r.queryWhileOnNow(run)
	}
}

// refreshWhileOn is refresh without the ends of the runs.
func (r *results) refreshWhileOn(runs []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range runs {
		r.queryWhileOnNow(run)
	}
}

// queryWhileOnNow is queryNow for the requests and values of the run that have waiters.
func (r *results) queryWhileOnNow(run uuid.UUID) {
	for of := range r.whileOn[run] {
		r.queryNow(of)
	}
}

// due returns what to query now: the urgent ones and, when the time has come, all whose pause is almost over. If more
// is false, there are no waiters, and its caller, which is the goroutine, must end.
func (r *results) due(now time.Time) (all []awaited, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.wake, r.urgent, r.next = nil, nil, time.Time{}
		r.listening.end()
		return nil, false
	}
	all, r.urgent = r.urgent, nil
	if !now.Before(r.next) {
		r.next = now.Add(longestPauseListening)
		for of, a := range r.waiting {
			if now.Before(a.next.Add(-a.pause / 4)) {
				r.next = earlier(r.next, a.next)
			} else {
				all = append(all, of)
			}
		}
	}
	slices.SortFunc(all, compareAwaited)
	return slices.Compact(all), true
}

// queried decides when those of all that have not ended are queried again, after a query that took so long, and returns
// when the next one is.
func (r *results) queried(all []awaited, took time.Duration) time.Time {
	first, longest := firstPause, longestPause
	if r.hints.Listening() {
		first, longest = firstPauseListening, longestPauseListening
	}
	longest = max(longest, 10*took) // slow queries are sent less often
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); len(all) > 0; all = all[1:] {
		if a := r.waiting[all[0]]; a != nil {
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

// run queries for what is awaited until there are no waiters.
func (r *results) run(wake <-chan struct{}) {
	q := newQuery(r)
	defer q.batcher.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		all, more := r.due(time.Now())
		if !more {
			return
		}
		if h := r.hints; h.Listening() && h.demand.says() {
			h.Queue(context.Background(), waiting) // before the query: what comes later is announced
		}
		q.fetchAll(all)
		r.listening.waited()
		timer.Reset(min(time.Until(r.queried(all, q.took)), sayEvery))
		select {
		case <-wake:
		case <-timer.C:
		}
	}
}
