package kagzi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// databasePause is how long to wait before trying again what failed because the database was away.
const databasePause = 250 * time.Millisecond

// A session is one Worker.Run: the claim loop and what it has claimed.
type session struct {
	w          *Worker
	store      *store.Store
	types      []store.Handled
	background context.Context // for calls to the database, which have deadlines of their own
	noWait     context.Context // has ended: who publishes with it does not wait for the notification to be sent
	clock      clock
	writer     *batch.Batcher[*item]
	patient    *batch.Batcher[*item] // for what somebody's open transaction keeps from being written
	txSlots    chan struct{}         // transactional steps under way
	wake       chan struct{}         // look at the queue now
	freed      chan struct{}         // a slot is free, or an execution has left
	looks      chan struct{}         // look at executions' rows now
	beats      chan struct{}         // send a heartbeat now
	hooks      *testhook.Hooks       // of package kagzitest; nil otherwise
	claims     int
	most       int // runs of the next claim

	mu         sync.Mutex
	id         uuid.UUID // of the worker's row
	executing  map[uuid.UUID]*execution
	ended      int // how often all executions were ended; the last time:
	endReason  endReason
	endCause   error
	slots      int                // free ones
	suspect    bool               // an execution that may kill the worker is under way
	fenced     bool               // no heartbeat for too long: nothing is claimed
	nextLook   time.Time          // of the claim loop, unless it is woken
	draining   bool               // nothing is claimed any more
	poolClosed bool               // by the application
	claiming   bool               // what is claimed is not in executing yet
	moved      map[uuid.UUID]bool // executions whose rows are to be looked at
	early      map[uuid.UUID]bool // runs that moved while claiming; uuid.Nil for any

	completed, failed atomic.Int64
	closing           atomic.Bool // writes that cannot be made are given up
	outage            outage
	troubled          atomic.Pointer[time.Time] // when the database last failed the session, or the session began
}

func newSession(w *Worker) *session {
	s := &session{
		w: w, store: w.client.store, types: w.handled(), background: context.Background(), id: uuid.New(),
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), looks: make(chan struct{}, 1), beats: make(chan struct{}, 1),
		most: mostClaimed, executing: map[uuid.UUID]*execution{}, slots: w.cfg.MaxConcurrent, moved: map[uuid.UUID]bool{}, early: map[uuid.UUID]bool{},
	}
	var cancel context.CancelFunc
	s.noWait, cancel = context.WithCancel(s.background)
	cancel()
	s.outage.name(s.logger(s.id))
	s.troubled.Store(new(time.Now()))
	s.writer = batch.New(batch.Config[*item]{Flush: s.flush, Size: (*item).size})
	s.patient = batch.New(batch.Config[*item]{Flush: s.flush, Size: (*item).size})
	s.txSlots = make(chan struct{}, max(1, int(s.store.Pool().Config().MaxConns)-leastConns))
	return s
}

// run works until ctx ends, and then drains.
func (s *session) run(ctx context.Context) error {
	c := s.w.client
	beat := newHeart(s)
	if err := beat.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return ours(err)
	}
	c.cfg.Logger.Info("kagzi: worker started", "worker", s.workerID(), "namespace", c.cfg.Namespace, "queue", s.w.cfg.Queue, "workflows", s.w.serves())
	release := c.hub.acquire()
	stopWork := c.hub.onWork(s.w.cfg.Queue, func() { signal(s.wake) })
	c.mu.Lock()
	c.sessions[s] = struct{}{}
	c.mu.Unlock()
	if s.hooks != nil {
		s.hooks.Begun(hooked{s})
	}

	var loops sync.WaitGroup
	stop := make(chan struct{})
	loops.Go(func() { beat.run(stop) })
	loops.Go(func() { s.lookLoop(stop) })
	if !s.w.cfg.NoCoordinator {
		house, leave := context.WithCancel(s.background) // until the worker has drained
		defer leave()
		k := newCoordinator(c, s.w.cfg.Coordinator, &s.outage)
		k.hosted = true
		loops.Go(func() { k.run(house) })
		loops.Go(func() {
			<-stop
			leave()
		})
	}
	s.claimLoop(ctx)
	s.drain(beat)

	c.mu.Lock()
	delete(c.sessions, s)
	c.mu.Unlock()
	close(stop)
	loops.Wait()
	stopWork()
	release()
	beat.end()
	published := make(chan struct{})
	go func() {
		defer close(published)
		c.publisher.Wait()
	}()
	select {
	case <-published:
	case <-time.After(time.Second): // the process goes on starting runs: its hints never cease
	}
	c.cfg.Logger.Info("kagzi: worker stopped", "worker", s.workerID(), "queue", s.w.cfg.Queue, "completed", s.completed.Load(), "failed", s.failed.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poolClosed {
		return errors.New("kagzi: the pool was closed while the worker was running: close it once Run has returned")
	}
	return nil
}

// held lists what the session believes to hold.
func (s *session) held() []store.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Held, 0, len(s.executing))
	for _, e := range s.executing {
		out = append(out, e.held())
	}
	return out
}

func (s *session) workerID() uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// logger says with each line which worker speaks.
func (s *session) logger(id uuid.UUID) *slog.Logger { return s.w.client.cfg.Logger.With("worker", id) }

func (s *session) isFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenced
}

// ---- the end ----

// drain lets what is under way finish, then gives it back.
func (s *session) drain(beat *heart) {
	s.mu.Lock()
	s.draining = true
	n := len(s.executing)
	s.mu.Unlock()
	log := s.logger(s.workerID())
	log.Info("kagzi: draining", "runs", n, "for_at_most", s.w.cfg.DrainTimeout)
	// What this worker has suspended becomes due without it: others must look when.
	s.w.client.publisher.Work(s.background, s.store.Namespace(), s.w.cfg.Queue)
	beat.draining()
	deadline := time.NewTimer(s.w.cfg.DrainTimeout)
	defer deadline.Stop()
	if s.emptied(deadline.C) {
		return
	}
	log.Warn("kagzi: drain timeout: giving back what is under way", "runs", len(s.held()))
	s.endAll(endShutdown, ErrShutdown)
	last := time.NewTimer(exitGrace + time.Second + s.w.cfg.DrainTimeout/10)
	defer last.Stop()
	if s.emptied(last.C) {
		return
	}
	s.closing.Store(true) // the database is away: the leases end by themselves
	s.writer.Wait()
	s.patient.Wait()
}

// emptied waits until nothing is being executed; it returns false if the timer comes first.
func (s *session) emptied(timer <-chan time.Time) bool {
	for {
		s.mu.Lock()
		n := len(s.executing)
		s.mu.Unlock()
		if n == 0 {
			s.closing.Store(true) // what is left, nobody waits for
			s.writer.Wait()
			s.patient.Wait()
			return true
		}
		select {
		case <-s.freed:
		case <-timer:
			return false
		}
	}
}

func (s *session) endAll(reason endReason, cause error) {
	s.mu.Lock()
	s.ended++
	s.endReason, s.endCause = reason, cause
	all := make([]*execution, 0, len(s.executing))
	for _, e := range s.executing {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		e.end(reason, cause)
	}
}

// ---- what executions ask of the session ----

func (s *session) now() time.Time { return s.clock.now() }

// setClock notes what the database's clock said just now. If somebody has set it forward, what waits for a time looks
// again: the deadlines here, waits by themselves, and the claim loop, whose next look may be long past.
func (s *session) setClock(now time.Time) {
	if !s.clock.set(now) {
		return
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	for _, e := range all {
		e.resetDeadline()
	}
	signal(s.wake)
}

func (s *session) failpoint(point string, run uuid.UUID) {
	if s.w.failpoint != nil {
		s.w.failpoint(point, run)
	}
}

// beginTx begins a transaction for a step, leaving the pool the connections that the engine needs.
func (s *session) beginTx(ctx context.Context) (pgx.Tx, error) {
	select {
	case s.txSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	tx, err := s.store.Pool().Begin(ctx)
	if err != nil {
		<-s.txSlots
		return nil, err
	}
	return tx, nil
}

// endTx ends a step's transaction; if it was committed only the slot is freed.
func (s *session) endTx(tx pgx.Tx) {
	rollback(tx)
	<-s.txSlots
}

// databaseTrouble notes that the database does not answer. If the application has closed the pool it never will: the
// worker ends.
func (s *session) databaseTrouble(err error) {
	if !store.Closed(err) {
		s.outage.begin(err)
		s.troubled.Store(new(time.Now()))
		return
	}
	s.mu.Lock()
	s.draining, s.poolClosed = true, true
	s.mu.Unlock()
	s.closing.Store(true)
	s.endAll(endLost, ErrShutdown)
	signal(s.wake)
	signal(s.freed)
}
