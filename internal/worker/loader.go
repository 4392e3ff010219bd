package worker

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/standing"
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
	// runs that could not be read before; mostAlone is for the others. claimer.suspects bounds crash-loop suspects.
	mostAlone    = 16
	mostTroubled = 4

	// mostHard bounds the remembered runs that are too large or too slow for the shared queries.
	mostHard = 10_000
)

// A loader reads the histories of claimed runs, beside the claims, and then lets the executions begin. A history that
// is large, slow or unreadable delays no other run. A loader is safe for concurrent use. See
// internal/worker/doc_claims.go.
type loader struct {
	worker   *standing.Worker
	longest  time.Duration           // the longest timeout of a query for one history
	drains   <-chan struct{}         // closed when the session drains
	loaded   func(*held)             // called with an execution whose history is read
	shared   *batch.Batcher[*held]   // reads many histories in one query
	parted   *batch.Batcher[[]*held] // reads in parts the histories that failed together, while shared goes on
	alone    *lane                   // reads histories that are too large or too slow for shared
	troubled *lane                   // reads histories that could not be read before
	suspects *lane                   // reads those of crash-loop suspects, one at a time
	inboxes  *batch.Batcher[*held]   // reads inboxes of runs under way, one after the other
	large    memory                  // bytes of histories that were read alone
	conns    chan struct{}           // slots of queries that may take long: others need the pool, too

	mu   sync.Mutex         // guards hard
	hard map[uuid.UUID]bool // runs that are too large or too slow for shared. Added by readHard, removed by unmark.
}

func newLoader(worker *standing.Worker, drains <-chan struct{}, longest time.Duration,
	loaded func(*held),
) *loader {
	most := int64(mostLarge)
	if worker.Hooks != nil {
		most = cmp.Or(worker.Hooks.MostLarge, most)
	}
	l := &loader{
		worker: worker, longest: longest, drains: drains, loaded: loaded,
		large: memory{most: most, freed: make(chan struct{})}, hard: map[uuid.UUID]bool{},
	}
	l.shared = batch.New(batch.Config[*held]{Flush: func(hs []*held) { l.readTogether(hs, sharedTimeout) }})
	l.parted = batch.New(batch.Config[[]*held]{MaxItems: 1, Flush: func(groups [][]*held) {
		for _, hs := range groups {
			l.readParts(hs)
		}
	}})
	l.inboxes = batch.New(batch.Config[*held]{MaxItems: 1, Flush: func(hs []*held) {
		for _, h := range hs {
			_ = l.slowly(func() error {
				l.fetchAlone(h)
				return nil
			})
		}
	}})
	l.alone, l.troubled, l.suspects = newLane(l, mostAlone, 2), newLane(l, mostTroubled, 1), newLane(l, math.MaxInt, 1)
	l.conns = make(chan struct{}, max(1, min(4, int(worker.Store.Pool().Config().MaxConns)/2)))
	return l
}

// end cancels the queries for histories and waits for the readers.
func (l *loader) end() {
	l.worker.StopReads()
	l.shared.Wait()
	l.parted.Wait()
	l.alone.reading.Wait()
	l.troubled.reading.Wait()
	l.suspects.reading.Wait()
	l.inboxes.Wait()
}

// add queues the read of h's history. Afterwards h begins or yields its run.
func (l *loader) add(h *held) {
	l.mu.Lock()
	hard := l.hard[h.RunID]
	l.mu.Unlock()
	switch {
	case h.LoadFailures > 0:
		l.troubled.add(h)
	case h.CrashLoopSuspect():
		l.suspects.add(h)
	case hard:
		l.alone.add(h)
	default:
		l.shared.Add(h)
	}
}

// readTogether reads many histories in one query. If the query fails because of a history, or some are too large for
// it, those are read in parts and in the end alone. No other run waits for that.
func (l *loader) readTogether(hs []*held, timeout time.Duration) {
	for failures := 0; ; failures++ {
		hs = stillLoading(hs)
		if len(hs) == 0 {
			return
		}
		each := min(sharedBytes/int64(len(hs)), sharedEach)
		loaded, err := l.worker.Store.Histories.Load(l.worker.Reads, request(hs, each, timeout))
		if err == nil {
			l.worker.Away.End()
			l.worker.Failing.Over(l.worker.Logger(l.worker.ID()), readingHistory)
			l.readRest(l.beginRead(hs, loaded), each)
			return
		}
		if l.worker.Readable() {
			l.split(hs)
			return
		}
		if !l.wait(err, hs, failures) {
			return
		}
	}
}

const readingHistory = "read history" // the operation's name in the store's errors

// readRest reads the histories that were larger than each bytes.
func (l *loader) readRest(large []*held, each int64) {
	if each < sharedEach && len(large) > 0 {
		l.split(large)
		return
	}
	for _, h := range large {
		l.readHard(h)
	}
}

// split queues executions to be read in parts, behind those that wait for that already: readable histories come before
// another try of a failed query. A single execution is read alone.
func (l *loader) split(hs []*held) {
	if len(hs) == 1 {
		l.readHard(hs[0])
	} else {
		l.parted.Add(hs)
	}
}

func (l *loader) readParts(hs []*held) {
	n := (len(hs) + parts - 1) / parts
	for part := range slices.Chunk(hs, n) {
		_ = l.slowly(func() error {
			l.readTogether(part, partTimeout)
			return nil
		})
	}
}

// readHard queues h's history to be read alone, and remembers to do so until unmark.
func (l *loader) readHard(h *held) {
	l.mu.Lock()
	if len(l.hard) >= mostHard {
		clear(l.hard)
	}
	l.hard[h.RunID] = true
	l.mu.Unlock()
	l.alone.add(h)
}

// unmark lets the history of h's run be read together with others again.
func (l *loader) unmark(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hard, h.RunID)
}

// slowly calls f, a query that may take long, when one of the slots for such queries is free.
func (l *loader) slowly(f func() error) error {
	l.conns <- struct{}{}
	defer func() { <-l.conns }()
	return f()
}

// beginRead begins the executions whose histories were read, and returns the others.
func (l *loader) beginRead(hs []*held, loaded store.Loaded) (rest []*held) {
	for _, h := range hs {
		if id := h.RunID; loaded.More[id] {
			rest = append(rest, h)
		} else {
			l.begin(h, loaded)
		}
	}
	return rest
}

func request(hs []*held, each int64, timeout time.Duration) store.LoadRequest {
	req := store.LoadRequest{Most: each, Timeout: timeout}
	for _, h := range hs {
		req.Runs = append(req.Runs, h.RunID)
		if h.Wakeups > 0 {
			req.Woken = append(req.Woken, h.RunID)
		}
		if h.Input == nil {
			req.Inputs = append(req.Inputs, h.RunID)
		}
	}
	return req
}

// fetch queues a read of h's inbox, unless one is pending.
func (l *loader) fetch(h *held) {
	if h.wantFetch() {
		l.inboxes.Add(h)
	}
}

func (l *loader) fetchAlone(h *held) {
	h.fetched()
	if h.stopped() || l.worker.Reads.Err() != nil {
		return
	}
	inboxes, err := l.worker.Store.Messages.Inbox(context.Background(), []uuid.UUID{h.RunID})
	h.Deliver(inboxes[h.RunID], err)
}

// wait pauses before the next try to read histories. If the worker drains meanwhile, it yields their runs and returns
// false.
func (l *loader) wait(err error, hs []*held, failures int) bool {
	if l.worker.Reads.Err() == nil {
		l.worker.Trouble(err)
	}
	timer := time.NewTimer(outage.PauseAfter(err, failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.worker.Reads.Done():
	case <-l.drains:
	}
	for _, h := range hs {
		h.Stop(standing.ErrShutdown)
	}
	return false
}

// stillLoading returns the executions that have not stopped meanwhile.
func stillLoading(hs []*held) []*held {
	kept := hs[:0:0]
	for _, h := range hs {
		if !h.stopped() {
			kept = append(kept, h)
		}
	}
	return kept
}

// begin gives h its history, its inbox, and its input if the claim left that out. Then h may begin, unless it has
// stopped.
func (l *loader) begin(h *held, loaded store.Loaded) {
	if h.load(loaded) {
		l.loaded(h)
	}
}
