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

// A query holds the state of the queries for ends, answers and values while there are waiters. Only run's goroutine
// uses it, apart from isolated.
type query struct {
	*results
	outage *outage.Outage
	// of runs in the next query: halved when a query gets no answer, doubled when it does
	limit int
	since time.Time // when the database began to refuse queries; zero if the last one was answered
	// of the longest query of the last fetchAll, apart from those that failed because of one run
	took    time.Duration
	batcher *batch.Batcher[awaited] // queries for isolated ones

	isolatedMu sync.Mutex             // guards isolated: the batcher's goroutines use it, too
	isolated   map[awaited]*isolation // that had waiters at the last fetchAll
}

// An isolation is of something awaited that could not be read although others could. From then on it has queries of its
// own, at the same time as those for the others, so that the others need not wait for it.
type isolation struct {
	since    time.Time // the first failure
	failures int       // so far
	next     time.Time // the next query
	querying bool      // it is in the batcher: takeShared sets it, isolate clears it
}

func newQuery(r *results) *query {
	q := &query{results: r, limit: maxQueried, isolated: map[awaited]*isolation{}}
	q.outage = outage.New(r.hints.log, r.hints.Reconnect)
	q.batcher = batch.New(batch.Config[awaited]{MaxItems: 1, Flush: q.fetchIsolated})
	return q
}

// fetchAll delivers the ends of those of all that have ended, and errors that a longer wait would not help.
func (q *query) fetchAll(all []awaited) {
	q.took = 0
	for all = q.takeShared(all); len(all) > 0; {
		n, last, begun := min(len(all), q.limit), q.last(), time.Now()
		err := store.Isolate(all[:n], q.fetchShared, q.isolate)
		switch {
		case err == nil:
			q.outage.End()
			q.since, q.limit = time.Time{}, min(2*q.limit, maxQueried)
			all = all[n:]
		case pg.Classify(err) == pg.ClassLate && !store.MayBeRowError(err):
			// no answer came: n may be too many for one query
			q.outage.Begin(err)
			q.limit = max(1, n/2)
			if n == 1 {
				q.isolate(all[0], err)
				all = all[1:]
			}
		default:
			q.took = max(q.took, time.Since(begun))
			q.failed(all, last, err)
			return
		}
	}
}

// takeShared returns those of all that are queried together. It adds the isolated ones whose pause is over to the
// batcher.
func (q *query) takeShared(all []awaited) []awaited {
	q.isolatedMu.Lock()
	defer q.isolatedMu.Unlock()
	if len(q.isolated) == 0 {
		return all
	}
	q.forgetIsolated()
	return slices.DeleteFunc(all, func(of awaited) bool {
		x := q.isolated[of]
		if x == nil {
			return false
		}
		if !x.querying && !time.Now().Before(x.next) {
			x.querying = true
			q.batcher.Add(of)
		}
		return true
	})
}

// forgetIsolated forgets the isolated runs without waiters. Its caller holds isolatedMu.
func (q *query) forgetIsolated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.isolated, func(of awaited, _ *isolation) bool { return q.waiting[of] == nil })
}

func (q *query) fetchShared(all []awaited) error {
	begun := time.Now()
	err := q.fetch(all, cmp.Or(q.hints.QueryTimeout, sharedTimeout))
	if err == nil {
		q.took = max(q.took, time.Since(begun))
	}
	return err
}

func (q *query) fetchIsolated(all []awaited) {
	for _, of := range all {
		if err := q.fetch(all, 0); err != nil {
			q.isolate(of, err)
			continue
		}
		q.isolatedMu.Lock()
		delete(q.isolated, of)
		q.isolatedMu.Unlock()
	}
}

// fetch delivers what has come of all.
func (q *query) fetch(all []awaited, most time.Duration) (err error) {
	var runs []uuid.UUID
	var requests []store.RequestKey
	var values []store.ValueKey
	for _, of := range all {
		switch {
		case of.request != "":
			requests = append(requests, store.RequestKey{RunID: of.run, ID: of.request})
		case of.value != "":
			values = append(values, store.ValueKey{RunID: of.run, Name: of.value, Known: of.known})
		default:
			runs = append(runs, of.run)
		}
	}
	if len(runs) > 0 {
		err = q.fetchEnds(runs, most)
	}
	if err == nil && len(requests) > 0 {
		err = q.fetchAnswers(requests, most)
	}
	if err == nil && len(values) > 0 {
		err = q.fetchValues(values, most)
	}
	return err
}

func (q *query) fetchEnds(runs []uuid.UUID, most time.Duration) error {
	last := q.last()
	ended, missing, err := q.hints.store.Runs.Ended(context.Background(), runs, most)
	if err != nil {
		return err
	}
	for _, e := range ended {
		q.deliver(ending{of: awaited{run: e.RunID}, end: e}, last)
	}
	for _, id := range missing {
		q.deliver(ending{of: awaited{run: id}, err: store.ErrRunNotFound}, last)
	}
	return nil
}

func (q *query) fetchAnswers(requests []store.RequestKey, most time.Duration) error {
	last := q.last()
	decided, err := q.hints.store.Messages.Answers(context.Background(), requests, most)
	if err != nil {
		return err
	}
	for _, a := range decided {
		e := ending{of: awaited{run: a.RunID, request: a.ID}, answer: a}
		if a.State == store.AnswerNoRun {
			e.err = store.ErrRunNotFound
		}
		q.deliver(e, last)
	}
	return nil
}

func (q *query) fetchValues(values []store.ValueKey, most time.Duration) error {
	last := q.last()
	found, err := q.hints.store.Runs.Values(context.Background(), values, most)
	if err != nil {
		return err
	}
	for _, v := range found {
		e := ending{of: awaited{run: v.RunID, value: v.Name, known: v.Known}, value: v}
		if v.NoRun {
			e.err = store.ErrRunNotFound
		}
		q.deliver(e, last)
	}
	return nil
}

// isolate makes queries of its own for the run after a pause. It delivers the error if it lasts, unless it says that no
// answer came in time.
func (q *query) isolate(of awaited, err error) {
	last := q.last()
	q.isolatedMu.Lock()
	x := q.isolated[of]
	if x == nil {
		x = &isolation{since: time.Now()}
		q.isolated[of] = x
	}
	x.next, x.querying = time.Now().Add(outage.Backoff(x.failures)), false
	x.failures++
	lasts := time.Since(x.since) >= refusalTolerance
	q.isolatedMu.Unlock()
	if pg.Closed(err) || lasts && (!pg.Unavailable(err) || pg.Answered(err)) {
		q.deliverError([]awaited{of}, last, err)
	}
}

// failed handles the error of a query that did not fail because of a single run: it may succeed later, or the waiters
// get the error.
func (q *query) failed(all []awaited, last uint64, err error) {
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
		q.deliverError(all, last, err)
	}
}

// deliverError delivers err to those who wait for them.
func (q *query) deliverError(all []awaited, last uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalTolerance)
	defer cancel()
	err = q.hints.store.ExplainRights(ctx, err)
	for _, of := range all {
		q.deliver(ending{of: of, err: err}, last)
	}
}
