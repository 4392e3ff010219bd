package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A heartbeater keeps a session's row and leases fresh, on a connection of its own: an exhausted pool must not make a
// worker look dead. That the server has the connection is evidence, too, that the worker lives; so the heartbeater takes
// another as soon as it is lost. If it cannot beat for two thirds of StaleAfter, or has no such connection for two thirds
// of Grace, it ends all executions: others may have them.
type heartbeater struct {
	s       *Session
	conn    *pgx.Conn     // nil while there is none
	said    int64         // numbers what the worker says of itself: what comes late changes nothing
	backend store.Backend // of conn; zero if it is not certain to be the worker's own

	mu    sync.Mutex
	fence *time.Timer
}

func newHeartbeater(s *Session) *heartbeater { return &heartbeater{s: s} }

// begin connects and registers the worker, waiting for a database that is away.
func (h *heartbeater) begin(ctx context.Context) error {
	for {
		started := time.Now()
		err := h.register(ctx)
		if err == nil {
			cfg := h.s.cfg
			h.s.standing.patience = cfg.StaleAfter * 2 / 3
			if !cfg.NoGrace {
				h.s.standing.grace = h.third() * 2
			}
			h.fence = time.AfterFunc(h.s.standing.patience, h.judge)
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
	h.said++
	reg := h.s.cfg.Registration(h.s.ID())
	reg.Number, reg.Backend = h.said, h.backend
	if err := h.s.store.RegisterWorker(ctx, conn, reg); err != nil {
		return err
	}
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout) // once registered, it goes on until it drains
	defer cancel()
	_, err = migrations.Check(check, conn)
	if errors.Is(err, migrations.ErrNewer) {
		return errors.Join(err, h.s.store.StoppedWorker(ctx, conn, reg.ID))
	}
	return err
}

// connection returns the heart's connection, opening one if need be.
func (h *heartbeater) connection(ctx context.Context) (*pgx.Conn, error) {
	if h.conn != nil && !h.conn.IsClosed() {
		return h.conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(h.s.cfg.StaleAfter/6, 500*time.Millisecond), time.Second))
	defer cancel()
	h.backend = store.Backend{}
	conn, err := store.Connect(ctx, h.s.store.Pool(), func(cfg *pgx.ConnConfig) {
		// The wait for the next beat is interrupted on this connection. A request to cancel, which a pool may be set to
		// send instead, would meet the beat.
		cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
	})
	if err != nil {
		return nil, err
	}
	h.conn = conn
	if h.backend, err = h.s.store.BackendOf(ctx, conn); err != nil {
		h.close()
		return nil, err
	}
	return conn, nil
}

// leastGrace is as short as Grace may be: in less time a worker cannot replace a connection.
const LeastGrace = 1500 * time.Millisecond

// third is how often the connection is tried while runs are under way, and for how long the answer is waited for. In the
// last third of Grace the connection can be replaced.
func (h *heartbeater) third() time.Duration { return h.s.cfg.Grace / 3 }

// judge ends all executions, once, if the worker may be taken for dead by now.
func (h *heartbeater) judge() {
	why := h.s.standing.mayNot(time.Now())
	switch {
	case why == "":
		h.setFence()
	case !h.s.isFenced():
		h.cut(why)
	}
}

func (h *heartbeater) setFence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.s.standing.ends()
	h.fence.Reset(max(0, time.Until(until)))
}

// missed notes that the connection was lost: when it was last heard of, or within the last third of Grace if nobody has
// tried it for long. It does not if the server is to blame: who declares the worker dead must be the server that had the
// connection, and takes writes.
func (h *heartbeater) missed(err error) {
	if serverDown(err) {
		h.s.standing.excuse()
	} else {
		h.s.standing.miss(time.Now().Add(-h.third()))
	}
	h.setFence()
}

// serverDown reports whether nobody listens at any of the server's addresses, or it says that it is starting, stopping or
// read-only.
func serverDown(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *pgconn.PgError:
		return e.Code == "57P03" || e.Code == "25006"
	case interface{ Unwrap() []error }:
		return len(e.Unwrap()) > 0 && !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !serverDown(err) })
	case interface{ Unwrap() error }:
		return serverDown(e.Unwrap())
	}
	return err == syscall.ECONNREFUSED || err == pgconn.ErrReadOnlyConnection || err == pgconn.ErrStandbyConnection // see target_session_attrs
}

// alive notes a heartbeat that was sent then, and was answered.
func (h *heartbeater) alive(sent time.Time) {
	h.s.standing.answered(sent, h.backend != store.Backend{})
	h.setFence()
	if h.s.standing.mayNot(time.Now()) != "" { // the answer is old
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

// cut ends all executions: the worker has been silent for so long that others may take its runs. Those that nobody
// has taken when the database answers again are given back, else they would lie until their leases end.
func (h *heartbeater) cut(why string) {
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

// run beats until stop is closed: at each interval, when it is told to, and when its connection is lost.
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
		h.beatUntil(stop)
		next = time.Now().Add(interval)
	}
}

// wait returns at the time of the next beat, or before when one is asked for, when stop is closed, or when the connection
// is lost, which it reports: what the connection would bring is read all the time, and while runs are under way it is
// tried in between, for the server's end of it may be gone and nothing say so.
func (h *heartbeater) wait(stop chan struct{}, next time.Time) (lost bool) {
	ctx, cancel := context.WithDeadline(context.Background(), next)
	defer cancel()
	var told sync.WaitGroup
	defer told.Wait()
	defer cancel()
	told.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-stop:
		case <-h.s.heartbeats:
		}
	})
	for {
		if h.conn == nil || h.conn.IsClosed() {
			<-ctx.Done()
			return false
		}
		// Interrupted, it leaves the connection as it was. Nothing is listened for: only an error ends it.
		quiet, cancel := context.WithTimeout(ctx, h.third())
		err := h.conn.PgConn().WaitForNotification(quiet)
		over := quiet.Err() != nil
		cancel()
		if h.conn.IsClosed() || err != nil && !over {
			h.missed(err)
			h.close()
			return true
		}
		if over && !h.hears() {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// hears reports whether the server answers over the connection, if that is watched and anything depends on it.
func (h *heartbeater) hears() bool {
	h.s.mu.Lock()
	idle := len(h.s.executing) == 0
	h.s.mu.Unlock()
	if idle || h.backend == (store.Backend{}) || h.s.standing.grace == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.third())
	defer cancel()
	sent := time.Now()
	err := h.conn.Ping(ctx)
	if err != nil {
		h.missed(err)
		h.close()
		return false
	}
	h.s.standing.hear(sent)
	return true
}

// watch looks, while a beat takes long, whether the server has the connection over which it was sent: the beat may wait for
// the disk, and the path may be lost.
func (h *heartbeater) watch() (over func()) {
	backend := h.backend
	if backend == (store.Backend{}) || h.s.standing.grace == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(h.third()):
			}
			sent := time.Now()
			there, err := h.isThere(ctx, backend)
			switch {
			case ctx.Err() != nil:
				return
			case there:
				h.s.standing.hear(sent)
			case store.Classify(err) != store.ClassBusy:
				h.missed(err)
				return
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// isThere asks the server over another connection whether it has that one.
func (h *heartbeater) isThere(ctx context.Context, b store.Backend) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, h.third())
	defer cancel()
	conn, err := store.Connect(ctx, h.s.store.Pool())
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return h.s.store.HasBackend(ctx, conn, b)
}

func (h *heartbeater) pause(stop chan struct{}, d time.Duration) {
	select {
	case <-stop:
	case <-time.After(d):
	}
}

// beatUntil sends a heartbeat until all of it is answered or stop is closed: it cannot wait for the next. It takes another
// connection, unless the server has answered over this one, with an error.
func (h *heartbeater) beatUntil(stop chan struct{}) {
	for {
		err := h.beat()
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

// beat is one heartbeat: the worker's row, then what became of the runs it holds, then the leases of those it still holds.
func (h *heartbeater) beat() error {
	s := h.s
	ctx, cancel := context.WithTimeout(context.Background(), max(s.cfg.StaleAfter/6, 500*time.Millisecond))
	defer cancel()
	var db store.DB
	conn, err := h.connection(ctx)
	if db = conn; err != nil {
		h.missed(err)
		// One of the pool's will do: that there is no evidence of a connection goes with the beat.
		db = s.store.Pool()
	}
	defer h.watch()()
	held := s.held()
	pulse, err := s.store.Heartbeat(ctx, db, h.says(len(held)))
	if err == nil && h.backend != (store.Backend{}) && !pulse.Own {
		h.backend = store.Backend{} // a pooler shares it out
		pulse, err = s.store.Heartbeat(ctx, db, h.says(len(held)))
	}
	if errors.Is(err, store.ErrWorkerOffline) {
		if pulse.Drain {
			h.drain()
		}
		return h.reregister(ctx, db)
	}
	if err != nil {
		if conn != nil && conn.IsClosed() || serverDown(err) {
			h.missed(err)
		}
		return err
	}
	h.alive(pulse.Asked)
	s.setClock(pulse.Now, pulse.Asked)
	if pulse.Drain {
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

func (h *heartbeater) says(active int) store.Heartbeat {
	s := h.s
	h.said++
	return store.Heartbeat{Number: h.said, Worker: s.ID(), Active: active, Completed: s.completed.Load(), Failed: s.failed.Load(), Backend: h.backend}
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
	log.Warn("kagzi: this worker was declared dead: giving up its runs and registering anew")
	// Taken for dead, the worker did not stand in the way of a migration.
	if _, err := migrations.Check(ctx, db); err != nil {
		return err
	}
	started := time.Now()
	h.said++
	reg := s.cfg.Registration(id)
	reg.Number, reg.Backend = h.said, h.backend
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
func (h *heartbeater) draining() { h.note(h.s.store.DrainingWorker) }

// end notes that the worker has ended, and closes the connection. It is called after run has returned.
func (h *heartbeater) end() {
	h.note(h.s.store.StoppedWorker)
	h.mu.Lock()
	h.fence.Stop()
	h.mu.Unlock()
	h.close()
}

// note writes to the registry, unless the database is away: that would only hold up the end of the worker, whom the
// others will find silent.
func (h *heartbeater) note(f func(context.Context, store.DB, uuid.UUID) error) {
	if h.s.outage.UnderWay() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := f(ctx, h.s.store.Pool(), h.s.ID()); err != nil {
		h.s.databaseTrouble(err)
	}
}

const noteTimeout = 2 * time.Second

func (h *heartbeater) close() {
	if h.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.conn.Close(ctx)
	h.conn, h.backend = nil, store.Backend{}
}
