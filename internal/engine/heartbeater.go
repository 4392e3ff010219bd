package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A heartbeater keeps a session's row and leases fresh, on a connection of its own: an exhausted pool must not make a
// worker look dead. That the server has the connection is evidence, too, that the worker lives; so the heartbeater takes
// another as soon as it is lost. If no heartbeat is answered for two thirds of StaleAfter, or there is no such connection for
// two thirds of Grace, it fences the session: it stops all executions, because others may have their runs.
type heartbeater struct {
	s *Session

	// Only the goroutine of begin, run and end uses these.
	conn    *pgx.Conn     // nil while there is none
	number  int64         // the number of the last heartbeat or registration: one that arrives late changes nothing
	backend store.Backend // of conn; zero if it is not certain to be the worker's own

	mu         sync.Mutex  // of fenceTimer
	fenceTimer *time.Timer // calls fenceIfOverdue when others may take the worker for dead
}

func newHeartbeater(s *Session) *heartbeater { return &heartbeater{s: s} }

// begin connects and registers the worker, waiting for a database that is away.
func (h *heartbeater) begin(ctx context.Context) error {
	for {
		started := time.Now()
		err := h.register(ctx)
		if err == nil {
			cfg := h.s.cfg
			h.s.standing.maxSilence = cfg.StaleAfter * 2 / 3
			if !cfg.NoGrace {
				h.s.standing.grace = h.pingInterval() * 2
			}
			h.fenceTimer = time.AfterFunc(h.s.standing.maxSilence, h.fenceIfOverdue)
			h.alive(started)
			return nil
		}
		h.close()
		if ctx.Err() != nil || !store.Unavailable(err) {
			return err
		}
		h.s.databaseTrouble(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

// register connects and registers the worker. It returns an error if this program cannot work with the schema any more. A
// migration that makes it so looks for registered workers, which then stand in its way: so what comes first, the migration
// or the worker, is seen by the other.
func (h *heartbeater) register(ctx context.Context) error {
	conn, err := h.connection(ctx)
	if err != nil {
		return err
	}
	h.number++
	reg := h.s.cfg.Registration(h.s.ID())
	reg.Number, reg.Backend = h.number, h.backend
	if err := h.s.store.RegisterWorker(ctx, conn, reg); err != nil {
		return err
	}
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), registryTimeout) // once registered, it goes on until it drains
	defer cancel()
	_, err = migrations.Check(check, conn)
	if errors.Is(err, migrations.ErrNewer) {
		return errors.Join(err, h.s.store.StoppedWorker(ctx, conn, reg.ID))
	}
	return err
}

// fenceIfOverdue stops all executions, once, if the worker may be taken for dead by now.
func (h *heartbeater) fenceIfOverdue() {
	why := h.s.standing.presumedDead(time.Now())
	switch {
	case why == "":
		h.setFence()
	case !h.s.isFenced():
		h.fence(why)
	}
}

func (h *heartbeater) setFence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.s.standing.ends()
	h.fenceTimer.Reset(max(0, time.Until(until)))
}

// alive notes a heartbeat that was sent then, and was answered.
func (h *heartbeater) alive(sent time.Time) {
	h.s.standing.answered(sent, h.backend != store.Backend{})
	h.setFence()
	if h.s.standing.presumedDead(time.Now()) != "" { // the answer is old
		return
	}
	h.s.mu.Lock()
	was := h.s.fenced
	h.s.fenced = false
	h.s.mu.Unlock()
	if was {
		goroutine.Signal(h.s.freed)
	}
}

// fence stops all executions: the worker has been silent for so long that others may take its runs. Those that nobody has
// taken when the database answers again are yielded, else they would wait until their leases end.
func (h *heartbeater) fence(why string) {
	h.s.mu.Lock()
	h.s.fenced = true
	n := len(h.s.executing)
	h.s.mu.Unlock()
	if log := h.s.logger(h.s.ID()).With("because", why); n == 0 {
		log.Warn("kagzi: others may take this worker for dead: claiming no runs until the database answers")
	} else {
		log.Warn("kagzi: others may take this worker for dead: giving up the runs under way; those that nobody takes meanwhile are given back when the database answers", "runs", n)
	}
	h.s.stopAll(stopShutdown, ErrLeaseLost)
}

// run sends heartbeats until stop is closed: at each interval, when one is asked for, and when its connection is lost.
func (h *heartbeater) run(stop chan struct{}) {
	interval := h.s.cfg.Heartbeat
	for next := time.Now().Add(interval); ; {
		begun := time.Now()
		if lost := h.wait(stop, next); lost && time.Since(begun) < interval/10 {
			// One that ends connections as fast as they begin is not to be met with a storm of them.
			h.pause(stop, min(outage.Pause, interval))
		}
		select {
		case <-stop:
			return
		default:
		}
		h.heartbeatUntil(stop)
		next = time.Now().Add(interval)
	}
}

func (h *heartbeater) pause(stop chan struct{}, d time.Duration) {
	select {
	case <-stop:
	case <-time.After(d):
	}
}

// heartbeatUntil sends a heartbeat until all of it is answered or stop is closed: it cannot wait for the next. It takes another
// connection, unless the server has answered over this one, with an error.
func (h *heartbeater) heartbeatUntil(stop chan struct{}) {
	for {
		err := h.heartbeat()
		if err == nil {
			h.s.outage.End()
			return
		}
		h.s.databaseTrouble(err)
		if !store.Answered(err) {
			h.close()
		}
		select {
		case <-stop:
			return
		case <-time.After(min(outage.Pause, h.s.cfg.Heartbeat)):
		}
	}
}

// heartbeat is one heartbeat: the worker's row, then what became of the runs it holds, then the leases of those it still holds.
func (h *heartbeater) heartbeat() error {
	s := h.s
	ctx, cancel := context.WithTimeout(context.Background(), max(s.cfg.StaleAfter/6, 500*time.Millisecond))
	defer cancel()
	var db store.DB
	conn, err := h.connection(ctx)
	if db = conn; err != nil {
		h.connectionLost(err)
		// One of the pool's will do: that there is no evidence of a connection goes with the heartbeat.
		db = s.store.Pool()
	}
	defer h.watchConnection()()
	held := s.held()
	answer, err := s.store.Heartbeat(ctx, db, h.newHeartbeat(len(held)))
	if err == nil && h.backend != (store.Backend{}) && !answer.Own {
		h.backend = store.Backend{} // a pooler shares it out
		answer, err = s.store.Heartbeat(ctx, db, h.newHeartbeat(len(held)))
	}
	if errors.Is(err, store.ErrWorkerOffline) {
		if answer.Drain {
			h.drain()
		}
		return h.reregister(ctx, db)
	}
	if err != nil {
		if conn != nil && conn.IsClosed() || serverDown(err) {
			h.connectionLost(err)
		}
		return err
	}
	h.alive(answer.Asked)
	s.setClock(answer.Now, answer.Asked)
	if answer.Drain {
		h.drain()
	}
	states, err := s.store.HeldStates(ctx, db, held, s.refusesOne)
	if err != nil {
		return err
	}
	if woken := s.apply(states); woken != nil { // nil would mean all
		s.Refresh(woken)
	}
	return s.extend(ctx, db, states)
}

func (h *heartbeater) newHeartbeat(active int) store.Heartbeat {
	s := h.s
	h.number++
	return store.Heartbeat{Number: h.number, Worker: s.ID(), Active: active, Completed: s.completed.Load(), Failed: s.failed.Load(), Backend: h.backend}
}

// drain lets the worker drain, as somebody has asked for.
func (h *heartbeater) drain() {
	s := h.s
	s.mu.Lock()
	was := s.draining
	s.draining = true
	s.mu.Unlock()
	if !was {
		s.cfg.Logger.Info("kagzi: worker was asked to drain", "worker", s.ID(), "queue", s.cfg.Queue)
		s.stopClaims()
	}
}

// reregister gives up everything, for the fleet took the worker for dead, and registers it under a new ID.
func (h *heartbeater) reregister(ctx context.Context, db store.DB) error {
	s := h.s
	id := uuid.New()
	s.mu.Lock()
	old, n, draining := s.ID(), len(s.executing), s.draining
	s.worker.Store(&id)
	s.fenced = true // what it claimed before it is registered, nobody would free after it
	s.mu.Unlock()
	s.stopAll(stopShutdown, ErrLeaseLost) // what a claim brings after this is not begun
	s.outage.SetLogger(s.logger(id))
	log := s.logger(old).With("new_worker", id, "runs", n)
	if reason := s.store.WhyLost(ctx, db, old); reason != "" {
		log = log.With("reason", reason)
	}
	log.Warn("kagzi: this worker was declared dead: giving up its runs and registering again")
	// Taken for dead, the worker did not stand in the way of a migration.
	if _, err := migrations.Check(ctx, db); err != nil {
		return err
	}
	started := time.Now()
	h.number++
	reg := s.cfg.Registration(id)
	reg.Number, reg.Backend = h.number, h.backend
	if err := s.store.RegisterWorker(ctx, db, reg); err != nil {
		return err
	}
	if draining {
		if err := s.store.DrainingWorker(ctx, db, s.ID()); err != nil {
			return err
		}
	}
	h.alive(started)
	goroutine.Signal(s.wake)
	return nil
}

// draining notes in the registry that the worker takes no more runs. That it is not noted does no harm.
func (h *heartbeater) draining() { h.updateRegistry(h.s.store.DrainingWorker) }

// end notes that the worker has ended, and closes the connection. It is called after run has returned.
func (h *heartbeater) end() {
	h.updateRegistry(h.s.store.StoppedWorker)
	h.mu.Lock()
	h.fenceTimer.Stop()
	h.mu.Unlock()
	h.close()
}

// note writes to the registry, unless the database is away: that would only hold up the end of the worker, whom the
// others will find silent.
func (h *heartbeater) updateRegistry(f func(context.Context, store.DB, uuid.UUID) error) {
	if h.s.outage.UnderWay() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registryTimeout)
	defer cancel()
	if err := f(ctx, h.s.store.Pool(), h.s.ID()); err != nil {
		h.s.databaseTrouble(err)
	}
}

const registryTimeout = 2 * time.Second

// extend gives the runs another timeout that are past half of theirs: a fast run never pays. One whose lease cannot be
// extended costs no other its own, and goes on until that is over.
func (s *Session) extend(ctx context.Context, db store.DB, states []store.HeldRunState) error {
	timeout := s.cfg.LeaseTimeout
	var late []store.HeldRun
	for _, st := range states {
		if st.Holds && st.Term.Ends.Sub(st.Term.Asked) < timeout/2 {
			late = append(late, store.HeldRun{RunID: st.RunID, Lease: st.Lease})
		}
	}
	if len(late) == 0 || s.cfg.FixedLease {
		return nil
	}
	all := true
	terms, err := s.store.ExtendLeases(ctx, db, late, timeout, func(held store.HeldRun, err error) {
		all = false
		s.refusesOne(held, err)
	})
	for held, term := range terms {
		s.mu.Lock()
		e := s.executing[held.RunID]
		s.mu.Unlock()
		if e != nil && e.run.Lease == held.Lease {
			e.setTerm(term)
		}
	}
	if err == nil && all {
		s.failures.Over(s.logger(s.ID()), extending)
	}
	return err
}

const extending = "extend leases" // as the store names it in its errors
