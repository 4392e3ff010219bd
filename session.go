package kagzi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
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

// mostClaimed is how many runs one claim takes at the most.
const mostClaimed = 1000

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

// ---- claiming ----

// claimLoop takes runs while there are slots, until ctx ends or the worker is told to drain.
func (s *session) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		free, more := s.capacity()
		if !more {
			return
		}
		if free == 0 {
			select {
			case <-ctx.Done():
			case <-s.freed:
			}
			continue
		}
		pause := s.claim(ctx, free)
		if pause == 0 {
			continue
		}
		s.mu.Lock()
		s.nextLook = time.Now().Add(pause)
		s.mu.Unlock()
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// capacity returns how many runs may be claimed now, and whether any will be.
func (s *session) capacity() (free int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced {
		return 0, !s.draining
	}
	return min(s.slots, s.most), !s.draining
}

// claim takes up to n runs, begins to execute them, and returns how long to wait before the next look: zero if
// there may be more.
func (s *session) claim(ctx context.Context, n int) time.Duration {
	s.claims++
	types := slices.Clone(s.types)
	rand.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	s.mu.Lock()
	suspect := s.suspect
	s.claiming = true
	s.mu.Unlock()
	defer s.claimedAll()
	req := store.ClaimRequest{
		Queue: s.w.cfg.Queue, Types: types, Limit: n, Worker: s.workerID(), Lease: uuid.New(), Visibility: s.w.cfg.VisibilityTimeout,
		LowFirst: s.claims%16 == 0, NoSuspects: suspect,
	}
	claim, err := s.store.Claim(s.background, req)
	if err != nil {
		claim, err = s.claimed(ctx, req, err)
	}
	if err != nil || claim.Now.IsZero() { // the claim was lost, and took nothing
		s.most = max(1, n/2) // it may have been too much for the time
		return databasePause + rand.N(databasePause)
	}
	s.most = min(2*s.most, mostClaimed)
	s.outage.end()
	s.setClock(claim.Now)
	s.failpoint("after claim", uuid.Nil)
	if len(claim.Runs) > 0 {
		s.begin(ctx, req.Worker, claim.Runs)
	}
	if len(claim.Runs) == n {
		return 0
	}
	pause := s.w.cfg.PollInterval
	if !claim.Next.IsZero() {
		// A few milliseconds apart, so that the workers of a fleet do not all come for one run.
		pause = min(pause, max(claim.Next.Sub(s.now()), 0)+rand.N(2*time.Millisecond)+time.Millisecond)
	}
	return pause
}

// claimedAll says that what was claimed is being executed. Rows that moved since the claim are looked at now: what was
// read of them may be older.
func (s *session) claimedAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claiming = false
	early := slices.Collect(maps.Keys(s.early))
	if s.early[uuid.Nil] {
		early = slices.Collect(maps.Keys(s.executing))
	}
	clear(s.early)
	for _, id := range early {
		if s.executing[id] != nil {
			s.moved[id] = true
		}
	}
	if len(s.moved) > 0 {
		signal(s.looks)
	}
}

// claimed finds out what a claim took whose answer was lost.
func (s *session) claimed(ctx context.Context, req store.ClaimRequest, failure error) (store.Claim, error) {
	s.databaseTrouble(failure)
	for {
		look, cancel := s.background, func() {}
		if ctx.Err() != nil { // one short look more: what is not found stays claimed until its lease ends
			look, cancel = context.WithTimeout(s.background, 2*time.Second)
		}
		claim, err := s.store.ClaimedUnder(look, req)
		cancel()
		if err == nil {
			return claim, nil
		}
		s.databaseTrouble(err)
		if !store.Away(err) || !s.patientWith(ctx) {
			return claim, err
		}
	}
}

// patientWith waits a little for a database that is away; it returns false if the session cannot go on waiting.
func (s *session) patientWith(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(databasePause):
		return !s.isFenced()
	}
}

// begin starts to execute the runs just claimed. Their histories are read in one query; a run that was never
// started and never woken has none.
func (s *session) begin(ctx context.Context, worker uuid.UUID, runs []*store.ClaimedRun) {
	s.mu.Lock()
	s.slots -= len(runs)
	s.mu.Unlock()
	var old, woken []uuid.UUID
	for _, r := range runs {
		if !r.Fresh || r.Wakeups > 0 {
			old = append(old, r.RunID)
		}
		if r.Wakeups > 0 {
			woken = append(woken, r.RunID)
		}
	}
	var histories map[uuid.UUID][]*store.StepRow
	var news map[uuid.UUID]*store.News
	for len(old) > 0 {
		var err error
		if histories, news, err = s.store.Load(s.background, old, woken); err == nil {
			break
		}
		s.databaseTrouble(err)
		if !s.patientWith(ctx) {
			break
		}
	}
	for _, r := range runs {
		looked := !r.Fresh || r.Wakeups > 0
		e := newExecution(s, r, histories[r.RunID], looked)
		if n := news[r.RunID]; n != nil {
			e.deliver(n)
		}
		s.mu.Lock()
		old := s.executing[r.RunID]
		s.executing[r.RunID], e.begun = e, s.ended
		s.mu.Unlock()
		if old != nil { // its lease ended, and this worker took the run again
			old.supersede()
		}
		switch {
		case looked && histories == nil: // the worker ends, or has been silent for too long
			e.refuse(endShutdown, ErrShutdown)
		case worker != s.workerID(): // declared dead meanwhile: nobody would free what that worker holds
			e.refuse(endShutdown, ErrLeaseLost)
		default:
			s.dispatch(e)
		}
	}
}

// dispatch executes e, unless there is a reason not to.
func (s *session) dispatch(e *execution) {
	h := s.w.handlers[e.run.Type][e.run.Version]
	crashLoop := e.crashLooped()
	e.verdict = e.condemned()
	_, registered := placesOf(e.history)
	e.replays = e.verdict != nil && registered
	s.mu.Lock()
	alone := !e.run.Suspect() || !s.suspect
	if alone && e.run.Suspect() {
		s.suspect, e.alone = true, true
	}
	fenced := s.fenced
	s.mu.Unlock()
	switch {
	case fenced:
		e.refuse(endShutdown, ErrLeaseLost)
	case e.verdict != nil && !registered:
		e.refuse(endUndone, nil)
	case crashLoop:
		e.refuse(endFailed, kinded{KindCrashLoop, fmt.Errorf("the run was taken over from a dead worker %d times without progress: it may be killing them", e.run.Recoveries)})
	case !alone:
		e.setBack() // one that may kill the worker at a time
	case h == nil:
		e.refuse(endShutdown, ErrShutdown) // the claim asked for what there is a handler for
	default:
		go e.execute(h)
	}
}

// cancelChildren cancels the children of a run that is about to end, and reports whether the run is still held.
func (s *session) cancelChildren(e *execution) bool {
	return e.insist(func() error {
		ended, err := s.store.CancelChildren(s.background, e.held())
		if err == nil {
			_ = s.w.client.announceEnds(s.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
}

// replace puts another execution of the same run, under the same lease, in the place of one.
func (s *session) replace(old, by *execution) (ok bool, reason endReason, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.executing[old.run.RunID] != old {
		return false, underWay, nil
	}
	s.executing[old.run.RunID], by.begun = by, old.begun
	if by.begun != s.ended {
		return true, s.endReason, s.endCause
	}
	return true, underWay, nil
}

// offer says how many runs of a version of typ the session has room for, and makes it look.
func (s *session) offer(queue, typ string, version int) int {
	handlers := s.w.handlers[typ]
	if queue != s.w.cfg.Queue || typ != "" && (handlers == nil || version != 0 && handlers[version] == nil) {
		return 0
	}
	s.mu.Lock()
	free := s.slots
	if s.draining || s.fenced {
		free = 0
	}
	s.mu.Unlock()
	if free > 0 {
		signal(s.wake)
	}
	return free
}

func (s *session) freeSlot() {
	s.mu.Lock()
	s.slots++
	s.mu.Unlock()
	signal(s.freed)
}

// leave forgets an execution whose end is written, and tells who waits for it.
func (s *session) leave(e *execution, o store.Outcome) {
	s.mu.Lock()
	if s.executing[e.run.RunID] == e {
		delete(s.executing, e.run.RunID)
	}
	if e.alone {
		s.suspect = false
		signal(s.wake) // another suspect may be due: the claims so far left it out
	}
	s.mu.Unlock()
	signal(s.freed)
}

// ---- looking at what is being executed ----

// look notes that the rows of ids moved; nil means any. It does not block. If it is the worker's own, somebody has asked
// it to drain or has declared it dead: the next heartbeat says.
func (s *session) look(ids []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ids == nil || slices.Contains(ids, s.id) {
		signal(s.beats)
	}
	if ids == nil {
		for id := range s.executing {
			s.moved[id] = true
		}
		if s.claiming {
			s.early[uuid.Nil] = true
		}
	}
	for _, id := range ids {
		if s.executing[id] != nil {
			s.moved[id] = true
		}
		if s.claiming {
			s.early[id] = true
		}
	}
	if len(s.moved) > 0 {
		signal(s.looks)
	}
}

// lookLoop reads the rows that moved.
func (s *session) lookLoop(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.looks:
		}
		s.mu.Lock()
		var held []store.Held
		for id := range s.moved {
			if e := s.executing[id]; e != nil {
				held = append(held, e.held())
			}
		}
		clear(s.moved)
		s.mu.Unlock()
		if len(held) == 0 {
			continue
		}
		states, err := s.store.ExtendLeases(s.background, s.store.Pool(), held, 0)
		if err != nil {
			s.databaseTrouble(err) // the heartbeat looks, too
			continue
		}
		s.fetch(s.apply(states))
	}
}

// fetch gives executions what reached their runs.
func (s *session) fetch(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	news, err := s.store.News(s.background, ids)
	if err != nil {
		s.databaseTrouble(err) // the heartbeat looks, too
		return
	}
	for id, n := range news {
		s.mu.Lock()
		e := s.executing[id]
		s.mu.Unlock()
		if e != nil {
			e.deliver(n)
		}
	}
}

// apply tells executions what their rows say, and returns those that something reached.
func (s *session) apply(states []store.HeldState) (woken []uuid.UUID) {
	for _, st := range states {
		s.mu.Lock()
		e := s.executing[st.RunID]
		s.mu.Unlock()
		switch {
		case e == nil || e.run.Lease != st.Lease:
		case st.Holds:
			if st.Cancel {
				e.cancelRequested()
			}
			if e.missed(st.Wakeups) {
				woken = append(woken, st.RunID)
			}
		case st.Status == store.Cancelled:
			e.end(endCancelled, errCancelled)
		default:
			e.end(endLost, ErrLeaseLost)
		}
	}
	return woken
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
