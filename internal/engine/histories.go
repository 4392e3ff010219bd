package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// What was claimed is executed once its history is read. That happens beside the claims, and what is large, takes long
// or cannot be read holds up nobody else: see docs/architecture.md, Claim.
const (
	// sharedBytes bounds what one query for many histories brings, and sharedEach what it brings of one run. A history
	// that is larger is read alone.
	sharedBytes = 32 << 20
	sharedEach  = 1 << 20

	// sharedTimeout bounds a query for many histories. Nothing is lost when it is over: they are read in smaller parts,
	// with partTimeout.
	sharedTimeout = 2 * time.Second
	partTimeout   = time.Second
	parts         = 32

	// aloneTimeout bounds a query for one history, at first. It doubles with each failure, up to longestLoad.
	aloneTimeout = 20 * time.Second
	longestLoad  = time.Minute

	// probeTimeout bounds the question whether histories can be read at all.
	probeTimeout = 2 * time.Second

	// mostLarge is how many bytes the executions may hold whose histories were read alone. One that is larger has it for
	// itself. Who waits for its share for longer than shareWait gives its run back.
	mostLarge = 256 << 20
	shareWait = 10 * time.Second

	// mostAlone and mostTroubled bound the runs that wait to be read alone, because they hold slots: those that were not
	// read before, and those that are suspects or could not be read.
	mostAlone    = 16
	mostTroubled = 4

	// mostHard is how many runs are remembered to be too large or too slow for the shared queries.
	mostHard = 10_000

	// mostUnread is how often what reached a run under way cannot be read before the run is given back.
	mostUnread = 3

	// maxLoadFailures is how often a history cannot be read before its run is quarantined.
	MaxLoadFailures = 20
)

// A loader reads the histories of a session's runs. It is safe for concurrent use.
type loader struct {
	s        *Session
	ctx      context.Context // ends with the session
	stop     context.CancelFunc
	shared   *batch.Batcher[*execution]
	parted   *batch.Batcher[[]*execution] // reads in parts what failed together, while others are read
	alone    *lane
	troubled *lane
	news     *batch.Batcher[*execution] // reads what reached runs under way, of one after the other
	large    memory
	conns    chan struct{} // held by queries that may take long: others need the pool, too

	mu   sync.Mutex
	hard map[uuid.UUID]bool // runs that are too large or too slow for the shared queries: they are not tried there again
}

func newLoader(s *Session) *loader {
	most := int64(mostLarge)
	if s.cfg.Hooks != nil {
		most = cmp.Or(s.cfg.Hooks.MostLarge, most)
	}
	l := &loader{s: s, large: memory{most: most, freed: make(chan struct{})}, hard: map[uuid.UUID]bool{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.shared = batch.New(batch.Config[*execution]{Flush: func(es []*execution) { l.readTogether(es, sharedTimeout) }})
	l.parted = batch.New(batch.Config[[]*execution]{MaxItems: 1, Flush: func(groups [][]*execution) {
		for _, es := range groups {
			l.readParts(es)
		}
	}})
	l.news = batch.New(batch.Config[*execution]{MaxItems: 1, Flush: func(es []*execution) {
		for _, e := range es {
			_ = l.slowly(func() error {
				l.fetchAlone(e)
				return nil
			})
		}
	}})
	l.alone, l.troubled = newLane(l, mostAlone, 2), newLane(l, mostTroubled, 1)
	l.conns = make(chan struct{}, max(1, min(4, int(s.store.Pool().Config().MaxConns)/2)))
	return l
}

// end returns once nothing is being read.
func (l *loader) end() {
	l.stop()
	l.shared.Wait()
	l.parted.Wait()
	l.alone.reading.Wait()
	l.troubled.reading.Wait()
	l.news.Wait()
}

// add has the history of e read, and e executed or given back then.
func (l *loader) add(e *execution) {
	l.mu.Lock()
	hard := l.hard[e.run.RunID]
	l.mu.Unlock()
	switch {
	case e.run.CrashLoopSuspect() || e.run.LoadFailures > 0:
		l.troubled.add(e)
	case hard:
		l.alone.add(e)
	default:
		l.shared.Add(e)
	}
}

// waitsForHistory is what a run waits for whose history could not be read, or not at once.
const waitsForHistory = "history"

// loadPause is how long a run waits whose history could not be read that many times.
func loadPause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 20), 5*time.Minute)
	return time.Duration(float64(pause) * (0.75 + rand.Float64()/2))
}

// ---- many at once ----

// readTogether reads many histories in one query. Those that are too large for that, or among which one is that cannot be
// read in time, are read in parts, and in the end alone: others do not wait for that.
func (l *loader) readTogether(es []*execution, timeout time.Duration) {
	for failures := 0; ; failures++ {
		es = stillLoading(es)
		if len(es) == 0 {
			return
		}
		each := min(sharedBytes/int64(len(es)), sharedEach)
		loaded, err := l.s.store.Load(l.ctx, request(es, each, timeout))
		if err == nil {
			l.s.outage.End()
			l.s.failures.Over(l.s.logger(l.s.ID()), readingHistory)
			l.readRest(l.settle(es, loaded), each)
			return
		}
		if l.readable() {
			l.split(es)
			return
		}
		if !l.wait(err, es, failures) {
			return
		}
	}
}

const readingHistory = "read history" // as the store names it in its errors

// readRest goes on with those that have more than each bytes.
func (l *loader) readRest(large []*execution, each int64) {
	if each < sharedEach && len(large) > 0 {
		l.split(large)
		return
	}
	for _, e := range large {
		l.readHard(e)
	}
}

// split has executions read in parts, behind those that wait for that already: what can be read is read before what
// failed is tried again. One is read alone.
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

// readHard has e's history read alone, now and until that was easy.
func (l *loader) readHard(e *execution) {
	l.mu.Lock()
	if len(l.hard) >= mostHard {
		clear(l.hard)
	}
	l.hard[e.run.RunID] = true
	l.mu.Unlock()
	l.alone.add(e)
}

// unmark lets the history of e's run be read with others again.
func (l *loader) unmark(e *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hard, e.run.RunID)
}

// slowly calls f, which asks the database something that may take long, once few enough others do.
func (l *loader) slowly(f func() error) error {
	l.conns <- struct{}{}
	defer func() { <-l.conns }()
	return f()
}

// settle lets those begin whose histories were read, and returns the others.
func (l *loader) settle(es []*execution, loaded store.Loaded) (rest []*execution) {
	for _, e := range es {
		if id := e.run.RunID; loaded.More[id] {
			rest = append(rest, e)
		} else {
			e.loaded(loaded)
		}
	}
	return rest
}

func request(es []*execution, each int64, timeout time.Duration) store.LoadRequest {
	req := store.LoadRequest{Most: each, Timeout: timeout}
	for _, e := range es {
		req.Runs = append(req.Runs, e.run.RunID)
		if e.run.Wakeups > 0 {
			req.Woken = append(req.Woken, e.run.RunID)
		}
		if e.run.Input == nil {
			req.Inputs = append(req.Inputs, e.run.RunID)
		}
	}
	return req
}

// ---- what reaches runs under way ----

// fetch has what reached e's run read, unless that is about to happen.
func (l *loader) fetch(e *execution) {
	e.mu.Lock()
	add := !e.fetching && !e.loading // what is being loaded has its news read with its history
	e.fetching = e.fetching || add
	e.mu.Unlock()
	if add {
		l.news.Add(e)
	}
}

func (l *loader) fetchAlone(e *execution) {
	e.mu.Lock()
	e.fetching = false
	e.mu.Unlock()
	if e.stopped() || l.ctx.Err() != nil {
		return
	}
	_ = l.readNews(e) // what could not be read, the heartbeat asks for again
}

// readNews reads what reached e's run. If that cannot be read, again and again, the run is given back.
func (l *loader) readNews(e *execution) error {
	news, err := l.s.store.Inbox(l.s.background, []uuid.UUID{e.run.RunID})
	if err == nil {
		e.mu.Lock()
		e.unread = 0
		e.mu.Unlock()
		if n := news[e.run.RunID]; n != nil {
			e.deliver(n)
		}
		return nil
	}
	l.s.databaseTrouble(err)
	if !l.readable() {
		return err
	}
	e.mu.Lock()
	e.unread++
	giveBack := e.unread >= mostUnread
	e.mu.Unlock()
	if giveBack {
		e.unreadable(err)
	}
	return err
}

// ---- failures ----

// readable reports whether histories can be read at all. If so, what could not be read is itself the reason.
func (l *loader) readable() bool {
	nobody := []uuid.UUID{uuid.Nil}
	_, err := l.s.store.Load(l.ctx, store.LoadRequest{Runs: nobody, Woken: nobody, Inputs: nobody, Most: 1, Timeout: probeTimeout})
	return err == nil
}

// wait waits before histories that could not be read are tried again. If the worker ends it gives the runs back instead,
// and returns false.
func (l *loader) wait(err error, es []*execution, failures int) bool {
	s := l.s
	if l.ctx.Err() == nil {
		s.databaseTrouble(err)
	}
	timer := time.NewTimer(outage.PauseAfter(err, failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
	case <-s.drains:
	}
	for _, e := range es {
		e.refuse(stopShutdown, ErrShutdown)
	}
	return false
}

// unreadable gives back a run whose history, or what reached it, cannot be read, for ever longer, and quarantines it in the
// end.
func (e *execution) unreadable(err error) {
	failures := e.run.LoadFailures + 1
	e.log().Warn("kagzi: what a run has recorded cannot be read", "error", err, "times", failures)
	if failures >= MaxLoadFailures {
		e.giveUp(failure.Quarantine(failure.KindUnreadable, fmt.Errorf("what the run has recorded could not be read %d times; make it readable, then Resume the run: %w", failures, err)))
		return
	}
	e.setBack(waitsForHistory, loadPause(failures), store.HistoryFailed)
}

// giveUp fails the run, whether or not its execution has begun.
func (e *execution) giveUp(err error) {
	e.mu.Lock()
	loading := e.loading
	e.mu.Unlock()
	if loading {
		e.refuse(stopFailed, err)
	} else {
		e.fail(err)
	}
}

// ---- executions ----

// stillLoading returns the executions that have not ended meanwhile.
func stillLoading(es []*execution) []*execution {
	kept := es[:0:0]
	for _, e := range es {
		if !e.stopped() {
			kept = append(kept, e)
		}
	}
	return kept
}

// loaded lets an execution begin whose history was read, with what reached its run, and its input if the claim left that out.
func (e *execution) loaded(l store.Loaded) {
	id := e.run.RunID
	if news := l.Inbox[id]; news != nil {
		e.deliver(news)
	}
	e.mu.Lock()
	if e.reason != underWay {
		e.mu.Unlock()
		return
	}
	e.remember(l.Steps[id])
	if e.run.Input == nil {
		e.run.Input = l.Inputs[id]
	}
	e.loading = false
	e.mu.Unlock()
	e.s.dispatch(e)
}
