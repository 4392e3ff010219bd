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

// results lets any number of callers wait for the ends of runs, with one query for all of them. Its goroutine runs while
// somebody waits.
type results struct {
	hints *Hints
	ready func(context.Context) error // returns an error if this program does not work with the schema

	mu         sync.Mutex // guards the fields below
	waiting    map[uuid.UUID][]waiter
	lastNumber uint64        // the number of the last waiter
	wake       chan struct{} // of capacity one: makes the goroutine query at once; nil while there is none
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

// The pauses between queries while no hint comes: short at first, for short runs, then longer and longer.
const (
	firstPause            = 5 * time.Millisecond
	longestPause          = 250 * time.Millisecond
	longestPauseListening = 2 * time.Second        // while notifications arrive
	listenAfter           = 300 * time.Millisecond // of waiting, the listener is started
)

// Result waits for the end of the run, whichever process executes it. It returns store.ErrRunNotFound if there is no such
// run, the error of ctx if that ends first, and the database's error if it refuses the queries for longer than
// refusalTolerance.
func (h *Hints) Result(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	return h.results.wait(ctx, id)
}

// LastWaiter returns the number of the last waiter for a result so far, for Deliver.
func (h *Hints) LastWaiter() uint64 { return h.results.last() }

// Deliver passes the end of a run to those in this process who wait for it, up to the waiter numbered last. Those who came
// after this end was written may wait for a later one, of a run that was resumed.
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
	r.lastNumber++
	r.waiting[id] = append(r.waiting[id], waiter{r.lastNumber, ch})
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

// awaitReady checks the schema. It waits while the database is away.
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
	return r.lastNumber
}

// deliver passes e to those who wait for its run, up to the waiter numbered last: the last one when the query for e began.
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

// refresh makes the goroutine query at once if somebody waits for one of ids; nil means any run.
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

// pending returns the runs that somebody waits for. If there are none, its caller, which is the goroutine, must end.
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

// run queries for the ends of runs until nobody waits.
func (r *results) run(wake chan struct{}) {
	begun, pause := time.Now(), firstPause
	q := newQuery(r)
	defer q.batcher.Wait()
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
		q.fetchAll(ids)
		longest := longestPause
		if release != nil && r.hints.listener.listening() {
			longest = longestPauseListening
		}
		// Slow queries are sent less often.
		pause = min(2*pause, longest)
		timer.Reset(max(pause, 10*q.took))
		if release == nil && time.Since(begun) > listenAfter {
			release = r.hints.Listen()
		}
		select {
		case <-wake:
			pause = firstPause
		case <-timer.C:
		}
	}
}

const (
	// maxQueried is the largest number of runs in one query: it may return the result of each.
	maxQueried = 1000

	// sharedTimeout is how long a query about more than one run may take. The result of one run may take longer by itself.
	// Then the waiters for the others wait this long each time that the runs are halved.
	sharedTimeout = 2 * time.Second

	// refusalTolerance is for how long the database must have refused queries before the waiters get the error: a migration
	// or somebody's lock may end before.
	refusalTolerance = 2 * time.Second
)

// A query holds the state of the queries for the ends of runs while somebody waits. Only run's goroutine uses it, apart from
// isolated.
type query struct {
	*results
	outage  *outage.Outage
	limit   int                       // of runs in the next query: halved when a query gets no answer, doubled when it does
	since   time.Time                 // when the database began to refuse queries; zero if the last one was answered
	took    time.Duration             // of the longest query of the last fetchAll, apart from those that failed because of one run
	batcher *batch.Batcher[uuid.UUID] // queries for isolated runs

	isolatedMu sync.Mutex                 // guards isolated: the batcher's goroutines use it, too
	isolated   map[uuid.UUID]*isolatedRun // that somebody waited for at the last fetchAll
}

// An isolatedRun is a run whose end could not be read although the ends of others could. From then on it has queries of its
// own, at the same time as those for the others, so that the others need not wait for it.
type isolatedRun struct {
	since    time.Time // the first failure
	failures int       // so far
	next     time.Time // the next query
	querying bool      // it is in the batcher: takeShared sets it, isolate clears it
}

func newQuery(r *results) *query {
	q := &query{results: r, limit: maxQueried, isolated: map[uuid.UUID]*isolatedRun{}}
	q.outage = outage.New(r.hints.log, r.hints.Reconnect)
	q.batcher = batch.New(batch.Config[uuid.UUID]{MaxItems: 1, Flush: q.fetchIsolated})
	return q
}

// fetchAll delivers the ends of those of ids that have ended, and errors that a longer wait would not help.
func (q *query) fetchAll(ids []uuid.UUID) {
	q.took = 0
	for ids = q.takeShared(ids); len(ids) > 0; {
		n, last, begun := min(len(ids), q.limit), q.last(), time.Now()
		err := store.Isolate(ids[:n], q.fetchShared, q.isolate)
		switch {
		case err == nil:
			q.outage.End()
			q.since, q.limit = time.Time{}, min(2*q.limit, maxQueried)
			ids = ids[n:]
		case store.Classify(err) == store.ClassLate && !store.MayBeRowError(err): // no answer came: n may be too many for one query
			q.outage.Begin(err)
			q.limit = max(1, n/2)
			if n == 1 {
				q.isolate(ids[0], err)
				ids = ids[1:]
			}
		default:
			q.took = max(q.took, time.Since(begun))
			q.failed(ids, last, err)
			return
		}
	}
}

// takeShared returns those of ids that are queried together. It adds the isolated ones whose pause is over to the batcher.
func (q *query) takeShared(ids []uuid.UUID) []uuid.UUID {
	q.isolatedMu.Lock()
	defer q.isolatedMu.Unlock()
	if len(q.isolated) == 0 {
		return ids
	}
	waiting := map[uuid.UUID]*isolatedRun{}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		x := q.isolated[id]
		if x == nil {
			return false
		}
		waiting[id] = x
		if !x.querying && !time.Now().Before(x.next) {
			x.querying = true
			q.batcher.Add(id)
		}
		return true
	})
	q.isolated = waiting
	return ids
}

func (q *query) fetchShared(ids []uuid.UUID) error {
	begun := time.Now()
	err := q.fetch(ids, cmp.Or(q.hints.QueryTimeout, sharedTimeout))
	if err == nil {
		q.took = max(q.took, time.Since(begun))
	}
	return err
}

func (q *query) fetchIsolated(ids []uuid.UUID) {
	for _, id := range ids {
		if err := q.fetch(ids, 0); err != nil {
			q.isolate(id, err)
			continue
		}
		q.isolatedMu.Lock()
		delete(q.isolated, id)
		q.isolatedMu.Unlock()
	}
}

// fetch delivers the ends of those of ids that have ended.
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

// isolate makes queries of its own for the run after a pause. It delivers the error if it lasts, unless it says that no
// answer came in time.
func (q *query) isolate(id uuid.UUID, err error) {
	last := q.last()
	q.isolatedMu.Lock()
	x := q.isolated[id]
	if x == nil {
		x = &isolatedRun{since: time.Now()}
		q.isolated[id] = x
	}
	x.next, x.querying = time.Now().Add(outage.Backoff(x.failures)), false
	x.failures++
	lasts := time.Since(x.since) >= refusalTolerance
	q.isolatedMu.Unlock()
	if store.Closed(err) || lasts && (!store.Unavailable(err) || store.Answered(err)) {
		q.deliverError([]uuid.UUID{id}, last, err)
	}
}

// failed handles the error of a query that did not fail because of a single run: it may succeed later, or the waiters get
// the error.
func (q *query) failed(ids []uuid.UUID, last uint64, err error) {
	deliver := store.Closed(err)
	switch {
	case deliver:
	case store.Unavailable(err):
		q.outage.Begin(err)
	default:
		if q.since.IsZero() {
			q.since = time.Now()
		}
		deliver = time.Since(q.since) >= refusalTolerance
	}
	if deliver {
		q.deliverError(ids, last, err)
	}
}

// deliverError delivers err to those who wait for ids.
func (q *query) deliverError(ids []uuid.UUID, last uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalTolerance)
	defer cancel()
	err = q.hints.store.ExplainRights(ctx, err)
	for _, id := range ids {
		q.deliver(ending{Ended: store.Ended{RunID: id}, err: err}, last)
	}
}
