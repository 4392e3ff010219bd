package hints

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// results lets any number of callers wait for the ends of runs, with one query for all of them. Its
// goroutine lives while somebody waits.
type results struct {
	hints *Hints
	ready func(context.Context) error // says that the schema fits

	mu      sync.Mutex
	waiting map[uuid.UUID][]waiter
	asked   uint64        // waiters so far
	wake    chan struct{} // look now; nil while nobody waits
}

// A waiter is one call of Result. What was found out before it came is not for it: the run may have been resumed
// since.
type waiter struct {
	number uint64
	ch     chan ending
}

type ending struct {
	store.Ended
	err error
}

// How often the table is asked while nothing tells that a run ended: soon at first, for short runs, then ever
// less often.
const (
	firstLook    = 5 * time.Millisecond
	lastLook     = 250 * time.Millisecond
	lastLookHint = 2 * time.Second        // with a listener
	listenAfter  = 300 * time.Millisecond // of waiting
)

// Result waits for the end of the run, whoever executes it. It returns store.ErrRunNotFound if there is no such run, the
// cause if ctx ends before, and what the database answers if that is the same error again and again.
func (h *Hints) Result(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	return h.results.wait(ctx, id)
}

// LastWaiter returns the number of the last who has begun to wait for a result, for Deliver.
func (h *Hints) LastWaiter() uint64 { return h.results.last() }

// Deliver gives the end of a run to those in this process who wait for it, up to the waiter numbered last: whoever came
// later than this end was written may wait for another one, of a run that was resumed.
func (h *Hints) Deliver(end store.Ended, last uint64) {
	h.results.deliver(ending{Ended: end}, last)
}

func (r *results) wait(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	if err := r.awaitReady(ctx); err != nil {
		return store.Ended{}, err
	}
	ch := make(chan ending, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.waiting = map[uuid.UUID][]waiter{}
	}
	r.asked++
	r.waiting[id] = append(r.waiting[id], waiter{r.asked, ch})
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
		go r.run(r.wake)
	}
	goroutine.Signal(r.wake)
	r.mu.Unlock()
	select {
	case e := <-ch:
		return e.Ended, e.err
	case <-ctx.Done():
		r.leave(id, ch)
		return store.Ended{}, ctx.Err()
	}
}

// awaitReady checks the schema, waiting for a database that is away.
func (r *results) awaitReady(ctx context.Context) error {
	for {
		err := r.ready(ctx)
		if err == nil || ctx.Err() != nil || !store.Unavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

func (r *results) leave(id uuid.UUID, ch chan ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[id] = slices.DeleteFunc(r.waiting[id], func(w waiter) bool { return w.ch == ch })
	if len(r.waiting[id]) == 0 {
		delete(r.waiting, id)
	}
	if len(r.waiting) == 0 && r.wake != nil {
		goroutine.Signal(r.wake)
	}
}

// last returns the number of the last waiter so far.
func (r *results) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// deliver gives those who wait for e's run its end, up to the last waiter when it began to be found out.
func (r *results) deliver(e ending, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var later []waiter
	for _, w := range r.waiting[e.RunID] {
		if w.number <= last {
			w.ch <- e
		} else {
			later = append(later, w)
		}
	}
	if later != nil {
		r.waiting[e.RunID] = later
	} else {
		delete(r.waiting, e.RunID)
	}
	if len(r.waiting) == 0 && r.wake != nil {
		goroutine.Signal(r.wake)
	}
}

// refresh asks at once if somebody waits for one of ids; nil means any.
func (r *results) refresh(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake == nil {
		return
	}
	for _, id := range ids {
		if r.waiting[id] != nil {
			goroutine.Signal(r.wake)
			return
		}
	}
	if ids == nil {
		goroutine.Signal(r.wake)
	}
}

// pending returns the runs that are waited for. If there are none the caller, the goroutine, must end.
func (r *results) pending() []uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.wake = nil
		return nil
	}
	ids := make([]uuid.UUID, 0, len(r.waiting))
	for id := range r.waiting {
		ids = append(ids, id)
	}
	return ids
}

// run looks for ends until nobody waits.
func (r *results) run(wake chan struct{}) {
	begun, pause := time.Now(), firstLook
	q := newQuery(r)
	defer q.alone.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var release func()
	defer func() {
		if release != nil {
			release()
		}
	}()
	for {
		ids := r.pending()
		if ids == nil {
			return
		}
		q.ask(ids)
		longest := lastLook
		if release != nil && r.hints.listener.listening() {
			longest = lastLookHint
		}
		// A query that takes long is asked less often.
		pause = min(2*pause, longest)
		timer.Reset(max(pause, 10*q.took))
		if release == nil && time.Since(begun) > listenAfter {
			release = r.hints.Listen()
		}
		select {
		case <-wake:
			pause = firstLook
		case <-timer.C:
		}
	}
}

const (
	// mostAsked is how many runs one query is about at the most: it may bring the result of each.
	mostAsked = 1000

	// sharedTimeout is how long a query about more than one run may take. One of them may be too much by itself, and those who
	// wait for the others wait for it as often as they are halved.
	sharedTimeout = 2 * time.Second

	// refusalLasts is for how long the database must have refused to say before those who wait are told: a migration, or
	// somebody's lock, passes.
	refusalLasts = 2 * time.Second
)

// A query asks for the ends of runs, again and again, while somebody waits.
type query struct {
	*results
	outage *outage.Outage
	most   int                       // runs of the next query
	since  time.Time                 // when the database began to refuse to answer; zero if the last query was answered
	took   time.Duration             // the longest query of the last look, but for those that failed because of one run
	alone  *batch.Batcher[uuid.UUID] // asks for the lone ones

	lonely sync.Mutex
	lones  map[uuid.UUID]*lone
}

// A lone is a run whose end could not be read, although the ends of others could. It is asked for by itself from then on,
// beside the others, so that these need not wait for it.
type lone struct {
	since time.Time // when that was found
	times int       // it failed
	next  time.Time // when it is asked for again
	asked bool      // now
}

func newQuery(r *results) *query {
	q := &query{results: r, most: mostAsked, lones: map[uuid.UUID]*lone{}}
	q.outage = outage.New(r.hints.log, r.hints.Reconnect)
	q.alone = batch.New(batch.Config[uuid.UUID]{MaxItems: 1, Flush: q.askAlone})
	return q
}

// ask gives those who wait for ids the ends that are there, or the error that they need not wait with any longer.
func (q *query) ask(ids []uuid.UUID) {
	q.took = 0
	for ids = q.shared(ids); len(ids) > 0; {
		n, last, begun := min(len(ids), q.most), q.last(), time.Now()
		err := store.Isolate(ids[:n], q.askTogether, q.failedAlone)
		switch {
		case err == nil:
			q.outage.End()
			q.since, q.most = time.Time{}, min(2*q.most, mostAsked)
			ids = ids[n:]
		case store.Classify(err) == store.ClassLate && !store.MayBeRowError(err): // no answer came: n may be too many for one query
			q.outage.Begin(err)
			q.most = max(1, n/2)
			if n == 1 {
				q.failedAlone(ids[0], err)
				ids = ids[1:]
			}
		default:
			q.took = max(q.took, time.Since(begun))
			q.failed(ids, last, err)
			return
		}
	}
}

// shared returns those of ids that are asked for together, and has the lone ones asked for whose pause is over.
func (q *query) shared(ids []uuid.UUID) []uuid.UUID {
	q.lonely.Lock()
	defer q.lonely.Unlock()
	if len(q.lones) == 0 {
		return ids
	}
	waiting := map[uuid.UUID]*lone{}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		x := q.lones[id]
		if x == nil {
			return false
		}
		waiting[id] = x
		if !x.asked && !time.Now().Before(x.next) {
			x.asked = true
			q.alone.Add(id)
		}
		return true
	})
	q.lones = waiting
	return ids
}

func (q *query) askTogether(ids []uuid.UUID) error {
	begun := time.Now()
	err := q.fetch(ids, cmp.Or(q.hints.QueryTimeout, sharedTimeout))
	if err == nil {
		q.took = max(q.took, time.Since(begun))
	}
	return err
}

func (q *query) askAlone(ids []uuid.UUID) {
	for _, id := range ids {
		if err := q.fetch(ids, 0); err != nil {
			q.failedAlone(id, err)
			continue
		}
		q.lonely.Lock()
		delete(q.lones, id)
		q.lonely.Unlock()
	}
}

// fetch gives those who wait for ids the ends that are there.
func (q *query) fetch(ids []uuid.UUID, most time.Duration) error {
	last := q.last()
	ended, missing, err := q.hints.store.Ended(context.Background(), ids, most)
	if err != nil {
		return err
	}
	for _, e := range ended {
		q.deliver(ending{Ended: e}, last)
	}
	for _, id := range missing {
		q.deliver(ending{Ended: store.Ended{RunID: id}, err: store.ErrRunNotFound}, last)
	}
	return nil
}

// failedAlone has the run asked for by itself after a pause. Whoever waits for it is told the error if it lasts, unless it
// says that no answer came in time.
func (q *query) failedAlone(id uuid.UUID, err error) {
	last := q.last()
	q.lonely.Lock()
	x := q.lones[id]
	if x == nil {
		x = &lone{since: time.Now()}
		q.lones[id] = x
	}
	x.next, x.asked = time.Now().Add(outage.Backoff(x.times)), false
	x.times++
	lasts := time.Since(x.since) >= refusalLasts
	q.lonely.Unlock()
	if store.Closed(err) || lasts && (!store.Unavailable(err) || store.Answered(err)) {
		q.tell([]uuid.UUID{id}, last, err)
	}
}

// failed goes by what err says of a query that failed for no run of its own: the same may succeed later, or who waits is
// told.
func (q *query) failed(ids []uuid.UUID, last uint64, err error) {
	told := store.Closed(err)
	switch {
	case told:
	case store.Unavailable(err):
		q.outage.Begin(err)
	default:
		if q.since.IsZero() {
			q.since = time.Now()
		}
		told = time.Since(q.since) >= refusalLasts
	}
	if told {
		q.tell(ids, last, err)
	}
}

// tell gives those who wait for ids the error.
func (q *query) tell(ids []uuid.UUID, last uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalLasts)
	defer cancel()
	err = q.hints.store.ExplainRights(ctx, err)
	for _, id := range ids {
		q.deliver(ending{Ended: store.Ended{RunID: id}, err: err}, last)
	}
}
