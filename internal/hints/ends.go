package hints

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

const (
	// maxQueried is the largest number of runs in one query: it may return the result of each.
	maxQueried = 1000

	// sharedTimeout is how long a query about more than one run may take. The result of one run may take longer by
	// itself. Then the waiters for the others wait this long each time that the runs are halved.
	sharedTimeout = 2 * time.Second

	// refusalTolerance is for how long the database must have refused queries before the waiters get the error: a
	// migration or a lock may end before.
	refusalTolerance = 2 * time.Second
)

// A query holds the state of the queries for the ends of runs while there are waiters. Only run's goroutine uses it,
// apart from isolated.
type query struct {
	*results
	outage *outage.Outage
	// of runs in the next query: halved when a query gets no answer, doubled when it does
	limit int
	since time.Time // when the database began to refuse queries; zero if the last one was answered
	// of the longest query of the last fetchAll, apart from those that failed because of one run
	took    time.Duration
	batcher *batch.Batcher[uuid.UUID] // queries for isolated runs

	isolatedMu sync.Mutex                 // guards isolated: the batcher's goroutines use it, too
	isolated   map[uuid.UUID]*isolatedRun // that had waiters at the last fetchAll
}

// An isolatedRun is a run whose end could not be read although the ends of others could. From then on it has queries of
// its own, at the same time as those for the others, so that the others need not wait for it.
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
		case pg.Classify(err) == pg.ClassLate && !store.MayBeRowError(err):
			// no answer came: n may be too many for one query
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

// takeShared returns those of ids that are queried together. It adds the isolated ones whose pause is over to the
// batcher.
func (q *query) takeShared(ids []uuid.UUID) []uuid.UUID {
	q.isolatedMu.Lock()
	defer q.isolatedMu.Unlock()
	if len(q.isolated) == 0 {
		return ids
	}
	q.forgetIsolated()
	return slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		x := q.isolated[id]
		if x == nil {
			return false
		}
		if !x.querying && !time.Now().Before(x.next) {
			x.querying = true
			q.batcher.Add(id)
		}
		return true
	})
}

// forgetIsolated forgets the isolated runs without waiters. Its caller holds isolatedMu.
func (q *query) forgetIsolated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.isolated, func(id uuid.UUID, _ *isolatedRun) bool { return q.waiting[id] == nil })
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
	ended, missing, err := q.hints.store.Runs.Ended(context.Background(), ids, most)
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
	if pg.Closed(err) || lasts && (!pg.Unavailable(err) || pg.Answered(err)) {
		q.deliverError([]uuid.UUID{id}, last, err)
	}
}

// failed handles the error of a query that did not fail because of a single run: it may succeed later, or the waiters
// get the error.
func (q *query) failed(ids []uuid.UUID, last uint64, err error) {
	deliver := pg.Closed(err)
	switch {
	case deliver:
	case pg.Unavailable(err):
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
