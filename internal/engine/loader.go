package engine

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

const (
	// sharedBytes bounds the answer of one query for many histories, and sharedEach the part of one run. A larger
	// history is read alone.
	sharedBytes = 32 << 20
	sharedEach  = 1 << 20

	// sharedTimeout bounds a query for many histories. When it is over, they are read in smaller parts, with
	// partTimeout.
	sharedTimeout = 2 * time.Second
	partTimeout   = time.Second
	parts         = 32

	// aloneTimeout bounds the first query for one history. It doubles with each failure, up to longestLoad.
	aloneTimeout = 20 * time.Second
	longestLoad  = time.Minute

	// mostLarge bounds the bytes of the histories in memory that were read alone. A larger history takes all of it. An
	// execution that waits longer than shareWait for its share yields its run.
	mostLarge = 256 << 20
	shareWait = 10 * time.Second

	// mostAlone and mostTroubled bound the runs that wait for a lane, because they hold slots. mostTroubled is for
	// runs that could not be read before; mostAlone is for the others. Session.suspects bounds crash-loop suspects.
	mostAlone    = 16
	mostTroubled = 4

	// mostHard bounds the remembered runs that are too large or too slow for the shared queries.
	mostHard = 10_000
)

// A loader reads the histories of claimed runs, beside the claims, and then lets the executions begin. A history that
// is large, slow or unreadable delays no other run. A loader is safe for concurrent use. See doc_claims.go.
type loader struct {
	env      *environment
	longest  time.Duration                // the longest timeout of a query for one history
	drains   <-chan struct{}              // closed when the session drains
	loaded   func(*execution)             // called with an execution whose history is read
	shared   *batch.Batcher[*execution]   // reads many histories in one query
	parted   *batch.Batcher[[]*execution] // reads in parts the histories that failed together, while shared goes on
	alone    *lane                        // reads histories that are too large or too slow for shared
	troubled *lane                        // reads histories that could not be read before
	suspects *lane                        // reads those of crash-loop suspects, one at a time
	inboxes  *batch.Batcher[*execution]   // reads inboxes of runs under way, one after the other
	large    memory                       // bytes of histories that were read alone
	conns    chan struct{}                // slots of queries that may take long: others need the pool, too

	mu   sync.Mutex         // guards hard
	hard map[uuid.UUID]bool // runs that are too large or too slow for shared. Added by readHard, removed by unmark.
}

func newLoader(env *environment, drains <-chan struct{}, loaded func(*execution)) *loader {
	most := int64(mostLarge)
	if env.hooks != nil {
		most = cmp.Or(env.hooks.MostLarge, most)
	}
	l := &loader{
		env: env, longest: longestLoad, drains: drains, loaded: loaded,
		large: memory{most: most, freed: make(chan struct{})}, hard: map[uuid.UUID]bool{},
	}
	l.shared = batch.New(batch.Config[*execution]{Flush: func(es []*execution) { l.readTogether(es, sharedTimeout) }})
	l.parted = batch.New(batch.Config[[]*execution]{MaxItems: 1, Flush: func(groups [][]*execution) {
		for _, es := range groups {
			l.readParts(es)
		}
	}})
	l.inboxes = batch.New(batch.Config[*execution]{MaxItems: 1, Flush: func(es []*execution) {
		for _, e := range es {
			_ = l.slowly(func() error {
				l.fetchAlone(e)
				return nil
			})
		}
	}})
	l.alone, l.troubled, l.suspects = newLane(l, mostAlone, 2), newLane(l, mostTroubled, 1), newLane(l, math.MaxInt, 1)
	l.conns = make(chan struct{}, max(1, min(4, int(env.store.Pool().Config().MaxConns)/2)))
	return l
}

// end cancels the queries for histories and waits for the readers.
func (l *loader) end() {
	l.env.stopReads()
	l.shared.Wait()
	l.parted.Wait()
	l.alone.reading.Wait()
	l.troubled.reading.Wait()
	l.suspects.reading.Wait()
	l.inboxes.Wait()
}

// add queues the read of e's history. Afterwards e begins or yields its run.
func (l *loader) add(e *execution) {
	l.mu.Lock()
	hard := l.hard[e.RunID]
	l.mu.Unlock()
	switch {
	case e.LoadFailures > 0:
		l.troubled.add(e)
	case e.CrashLoopSuspect():
		l.suspects.add(e)
	case hard:
		l.alone.add(e)
	default:
		l.shared.Add(e)
	}
}

// readTogether reads many histories in one query. If the query fails because of a history, or some are too large for
// it, those are read in parts and in the end alone. No other run waits for that.
func (l *loader) readTogether(es []*execution, timeout time.Duration) {
	for failures := 0; ; failures++ {
		es = stillLoading(es)
		if len(es) == 0 {
			return
		}
		each := min(sharedBytes/int64(len(es)), sharedEach)
		loaded, err := l.env.store.Histories.Load(l.env.reads, request(es, each, timeout))
		if err == nil {
			l.env.outage.End()
			l.env.failures.Over(l.env.logger(l.env.ID()), readingHistory)
			l.readRest(l.beginRead(es, loaded), each)
			return
		}
		if l.env.readable() {
			l.split(es)
			return
		}
		if !l.wait(err, es, failures) {
			return
		}
	}
}

const readingHistory = "read history" // the operation's name in the store's errors

// readRest reads the histories that were larger than each bytes.
func (l *loader) readRest(large []*execution, each int64) {
	if each < sharedEach && len(large) > 0 {
		l.split(large)
		return
	}
	for _, e := range large {
		l.readHard(e)
	}
}

// split queues executions to be read in parts, behind those that wait for that already: readable histories come before
// another try of a failed query. A single execution is read alone.
func (l *loader) split(es []*execution) {
	if len(es) == 1 {
		l.readHard(es[0])
	} else {
		l.parted.Add(es)
	}
}

func (l *loader) readParts(es []*execution) {
	n := (len(es) + parts - 1) / parts
	for part := range slices.Chunk(es, n) {
		_ = l.slowly(func() error {
			l.readTogether(part, partTimeout)
			return nil
		})
	}
}

// readHard queues e's history to be read alone, and remembers to do so until unmark.
func (l *loader) readHard(e *execution) {
	l.mu.Lock()
	if len(l.hard) >= mostHard {
		clear(l.hard)
	}
	l.hard[e.RunID] = true
	l.mu.Unlock()
	l.alone.add(e)
}

// unmark lets the history of e's run be read together with others again.
func (l *loader) unmark(e *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hard, e.RunID)
}

// slowly calls f, a query that may take long, when one of the slots for such queries is free.
func (l *loader) slowly(f func() error) error {
	l.conns <- struct{}{}
	defer func() { <-l.conns }()
	return f()
}

// beginRead begins the executions whose histories were read, and returns the others.
func (l *loader) beginRead(es []*execution, loaded store.Loaded) (rest []*execution) {
	for _, e := range es {
		if id := e.RunID; loaded.More[id] {
			rest = append(rest, e)
		} else {
			l.begin(e, loaded)
		}
	}
	return rest
}

func request(es []*execution, each int64, timeout time.Duration) store.LoadRequest {
	req := store.LoadRequest{Most: each, Timeout: timeout}
	for _, e := range es {
		req.Runs = append(req.Runs, e.RunID)
		if e.Wakeups > 0 {
			req.Woken = append(req.Woken, e.RunID)
		}
		if e.Input == nil {
			req.Inputs = append(req.Inputs, e.RunID)
		}
	}
	return req
}

// fetch queues a read of e's inbox, unless one is pending.
func (l *loader) fetch(e *execution) {
	if e.wantFetch() {
		l.inboxes.Add(e)
	}
}

func (l *loader) fetchAlone(e *execution) {
	e.fetched()
	if e.stopped() || l.env.reads.Err() != nil {
		return
	}
	_ = e.readInbox() // after a failure the next heartbeat asks again
}

// wait pauses before the next try to read histories. If the worker drains meanwhile, it yields their runs and returns
// false.
func (l *loader) wait(err error, es []*execution, failures int) bool {
	if l.env.reads.Err() == nil {
		l.env.databaseTrouble(err)
	}
	timer := time.NewTimer(outage.PauseAfter(err, failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.env.reads.Done():
	case <-l.drains:
	}
	for _, e := range es {
		e.stopUnbegun(stopShutdown, ErrShutdown)
	}
	return false
}

// stillLoading returns the executions that have not stopped meanwhile.
func stillLoading(es []*execution) []*execution {
	kept := es[:0:0]
	for _, e := range es {
		if !e.stopped() {
			kept = append(kept, e)
		}
	}
	return kept
}

// begin gives e its history, its inbox, and its input if the claim left that out. Then e may begin, unless it has
// stopped.
func (l *loader) begin(e *execution, loaded store.Loaded) {
	id := e.RunID
	if e.load(loaded.Steps[id], loaded.Inbox[id], loaded.Inputs[id]) {
		l.loaded(e)
	}
}
