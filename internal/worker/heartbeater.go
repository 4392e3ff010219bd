package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A heartbeater keeps a session's row and leases fresh, over a connection of its own: an exhausted pool must not make a
// worker look dead. The connection itself is evidence that the worker lives, so the heartbeater replaces it as soon as
// it is lost. If no heartbeat is answered for two thirds of StaleAfter, or the connection is missing for two thirds of
// Grace, the heartbeater fences the session: it stops all executions, because other workers may hold their runs. See
// doc_leases.go.
type heartbeater struct {
	*standing.Worker
	cfg     Presence
	claimer *claimer
	roster  *roster
	news    *news
	tally   *tally
	report  func() *store.Hung // what the watchdog reports
	drain   func()             // begins the drain, once

	// Only the goroutine of begin, run and end uses these.
	conn    *pgx.Conn // nil while there is none
	opening *opening  // of the next conn; nil if none is under way
	// of the last heartbeat or registration. One that arrives after a higher number changes nothing.
	number  int64
	backend store.Backend // of conn; zero unless it certainly serves this worker alone
	unknown bool          // the worker has a new ID, which may not be registered yet

	mu sync.Mutex // guards fenceTimer
	// calls fenceIfOverdue when others may take the worker for dead. Set by begin, reset by setFence.
	fenceTimer *time.Timer
}

// begin connects and registers the worker. If the database is away, or a transaction has locked a row of the worker's
// consumers, begin tries again until ctx ends.
func (h *heartbeater) begin(ctx context.Context) error {
	for {
		sent, err := h.register(ctx)
		if err == nil {
			h.tally.begin(sent)
			maxSilence, grace := h.cfg.StaleAfter*2/3, time.Duration(0)
			if !h.cfg.NoGrace {
				grace = h.pingInterval() * 2
			}
			h.Standing.Watch(maxSilence, grace)
			h.fenceTimer = time.AfterFunc(maxSilence, h.fenceIfOverdue)
			h.alive(sent)
			return nil
		}
		h.abandonOpening()
		h.close()
		if ctx.Err() != nil || !pg.Unavailable(err) && !pg.Locked(err) {
			return err
		}
		h.Trouble(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

// register connects and registers the worker. It returns an error if a migration has made the schema unusable for this
// program. Such a migration refuses to run while an older worker is registered. So whichever comes second, migration or
// worker, sees the first. sent is when the worker's row was sent.
func (h *heartbeater) register(ctx context.Context) (sent time.Time, err error) {
	var conn *pgx.Conn
	if h.cfg.Heartbeats == nil {
		if conn, err = h.connection(ctx); err != nil {
			return sent, err
		}
	}
	sent = time.Now()
	db := h.dbOf(conn)
	reg, err := h.registerRow(ctx, db, h.ID())
	if err != nil {
		return sent, err
	}
	if err := h.Store.Consumers.Register(ctx, h.cfg.Consumers); err != nil {
		return sent, err
	}
	// a registered worker ends by a drain
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestOpening)
	defer cancel()
	_, err = migrations.Check(check, db)
	if errors.Is(err, migrations.ErrNewer) {
		return sent, errors.Join(err, h.Store.Workers.Stopped(ctx, db, reg.ID, store.Counts{}))
	}
	return sent, err
}

// registerRow writes the worker's row.
func (h *heartbeater) registerRow(ctx context.Context, db pg.DB, id uuid.UUID) (store.Worker, error) {
	h.number++
	reg := h.cfg.Registration(id)
	reg.Number, reg.Backend = h.number, h.backend
	reg.Queues, reg.LeftQueues = h.claimer.queuesToRegister()
	err := h.Store.Workers.Register(ctx, db, reg)
	if err == nil {
		h.claimer.queuesRegistered(reg.Queues)
	}
	return reg, err
}

// fenceIfOverdue fences the session if others may take the worker for dead by now, and resets the timer if not.
func (h *heartbeater) fenceIfOverdue() {
	why := h.Standing.PresumedDead(time.Now())
	switch {
	case why == "":
		h.setFence()
	case !h.claimer.isFenced():
		h.fence(why)
	}
}

func (h *heartbeater) setFence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.Standing.Ends()
	h.fenceTimer.Reset(max(0, time.Until(until)))
}

// alive records that a heartbeat sent at that time was answered. It lifts the fence, unless the answer came too late.
func (h *heartbeater) alive(sent time.Time) {
	h.Standing.Answered(sent, h.backend != store.Backend{})
	h.setFence()
	if h.Standing.PresumedDead(time.Now()) != "" { // the answer came too late
		return
	}
	h.claimer.lift()
}

// fence stops all executions: the worker has been silent for so long that others may take its runs. When the database
// answers again, the session yields the runs that no other worker has taken. Otherwise they would wait until their
// leases end.
func (h *heartbeater) fence(why string) {
	h.claimer.fence()
	n, _ := h.roster.count()
	if log := h.Logger(h.ID()).With("because", why); n == 0 {
		log.Warn("kagzi: others may take this worker for dead: claiming no runs until the database answers")
	} else {
		log.Warn("kagzi: others may take this worker for dead: giving up the runs under way; those that nobody takes "+
			"meanwhile are given back when the database answers", "runs", n)
	}
	h.roster.stopAll(standing.ErrLeaseLost)
}

// run sends heartbeats until stop is closed: at each interval, when one is asked for, and when its connection is lost.
func (h *heartbeater) run(stop chan struct{}) {
	interval := h.cfg.Heartbeat
	for {
		next := h.Standing.LastSent().Add(interval)
		begun := time.Now()
		if lost := h.wait(stop, next); lost && time.Since(begun) < interval/10 {
			// A server or proxy may end each connection at once. Do not open them in a storm.
			h.pause(stop, min(outage.Pause, interval))
		}
		select {
		case <-stop:
			return
		default:
		}
		h.heartbeatUntil(stop)
	}
}

func (h *heartbeater) pause(stop chan struct{}, d time.Duration) {
	select {
	case <-stop:
	case <-time.After(d):
	}
}

// heartbeatUntil repeats a heartbeat until all of it succeeds or stop is closed: it cannot wait for the next interval.
// After an error that is not the server's answer, it opens another connection.
func (h *heartbeater) heartbeatUntil(stop chan struct{}) {
	for {
		err := h.heartbeat()
		if err == nil {
			h.Away.End()
			return
		}
		h.Trouble(err)
		if !pg.Answered(err) {
			h.close()
		}
		select {
		case <-stop:
			return
		case <-time.After(min(outage.Pause, h.cfg.Heartbeat)):
		}
	}
}

// heartbeat updates the worker's row, then reads the state of the runs that it holds, then extends their leases. What
// follows the update has time of its own, because it is no evidence that the worker lives.
func (h *heartbeater) heartbeat() error {
	conn, err := h.connectionSoon()
	if err != nil {
		h.connectionLost(err)
		conn = nil // A connection of the pool will do: the heartbeat says that there is no connection as evidence.
	}
	answer, err := h.update(conn)
	dead := errors.Is(err, store.ErrWorkerOffline)
	if err != nil && !dead {
		return err
	}
	if answer.Drain {
		h.drain()
	}
	if dead {
		return h.reregister(h.dbOf(conn))
	}
	held := h.roster.held()
	if len(held) == 0 {
		return nil
	}
	var states []store.HeldRunState
	if err := h.ask(conn, func(ctx context.Context, db pg.DB) (err error) {
		states, err = h.Store.Leases.HeldStates(ctx, db, held, h.RefusesOne)
		return err
	}); err != nil {
		return err
	}
	if woken := h.news.apply(states); woken != nil { // nil would mean all
		h.news.Refresh(woken)
	}
	late := h.late(states)
	if len(late) == 0 {
		return nil
	}
	return h.ask(conn, func(ctx context.Context, db pg.DB) error { return h.extend(ctx, db, late) })
}

// update updates the worker's row. The answer counts at once.
func (h *heartbeater) update(conn *pgx.Conn) (answer store.HeartbeatAnswer, err error) {
	var sent store.Heartbeat
	send := func(ctx context.Context, db pg.DB) (err error) {
		sent = h.newHeartbeat()
		answer, err = h.Store.Workers.Heartbeat(ctx, db, sent)
		return err
	}
	err = h.ask(conn, send)
	if err == nil && h.backend != (store.Backend{}) && !answer.Own {
		h.backend = store.Backend{} // a pooler shares the backend among clients
		err = h.ask(conn, send)
	}
	if err == nil {
		h.alive(answer.Asked)
		h.tally.acknowledged(sent.Counts)
		h.claimer.queuesRegistered(sent.Queues)
		h.claimer.setClock(answer.Now, answer.Asked)
	}
	return answer, err
}

func (h *heartbeater) newHeartbeat() store.Heartbeat {
	h.number++
	queues, left := h.claimer.queuesToRegister()
	counts, rates := h.tally.report(time.Now())
	return store.Heartbeat{
		Number: h.number, Worker: h.ID(), Queues: queues, LeftQueues: left, Active: h.claimer.busy(),
		Counts: counts, Rates: rates, Hung: h.report(), Backend: h.backend,
	}
}

// reregister gives up all runs, because the worker was declared dead, and registers the worker under a new ID.
func (h *heartbeater) reregister(db pg.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), longestOpening)
	defer cancel()
	id := uuid.New()
	if h.unknown { // the earlier try has failed
		id = h.ID()
	}
	// no claims before the registration: no coordinator would release their runs if the worker died
	old, draining := h.claimer.rename(id)
	n, _ := h.roster.count()
	h.tally.moved()
	h.roster.stopAll(standing.ErrLeaseLost) // dispatch does not begin runs that a claim brings after this
	if !h.unknown {
		h.Away.SetLogger(h.Logger(id))
		log := h.Logger(old).With("new_worker", id, "runs", n)
		if reason := h.Store.Workers.WhyLost(ctx, db, old); reason != "" {
			log = log.With("reason", reason)
		}
		log.Warn("kagzi: this worker was declared dead: giving up its runs and registering again")
	}
	h.unknown = true
	// While the worker counted as dead, a migration may have run.
	if _, err := migrations.Check(ctx, db); err != nil {
		return err
	}
	started := time.Now()
	if _, err := h.registerRow(ctx, db, id); err != nil {
		return err
	}
	h.unknown = false
	if draining {
		if err := h.Store.Workers.Draining(ctx, db, h.ID()); err != nil {
			return err
		}
	}
	h.alive(started)
	h.claimer.hintAll()
	return nil
}

// draining writes to the registry that the worker takes no more runs. A failure does no harm.
func (h *heartbeater) draining() { h.updateRegistry(h.Store.Workers.Draining) }

// end writes to the registry that the worker has stopped, and closes the connection. It is called after run has
// returned. If slots could not be handed on, the worker is to be declared dead: then a coordinator looks at all keys.
func (h *heartbeater) end() {
	if h.claimer.freedKeysLeft() {
		h.updateRegistry(func(ctx context.Context, db pg.DB, id uuid.UUID) error {
			return h.Store.Workers.Stopped(ctx, db, id, h.tally.counts()) // no run is left that could change them
		})
	}
	h.mu.Lock()
	h.fenceTimer.Stop()
	h.mu.Unlock()
	h.abandonOpening()
	h.close()
}

// updateRegistry calls f, unless the database is away: f would only delay the worker's end, and the failure detector
// will notice the worker's silence.
func (h *heartbeater) updateRegistry(f func(context.Context, pg.DB, uuid.UUID) error) {
	if h.Away.UnderWay() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registryTimeout)
	defer cancel()
	if err := f(ctx, h.Store.Pool(), h.ID()); err != nil {
		h.Trouble(err)
	}
}

// registryTimeout bounds the last changes of the worker's row: Run is not to wait for them for long.
const registryTimeout = 2 * time.Second

// late returns the runs whose leases are past half of their timeout, so a fast run never pays for an extension.
func (h *heartbeater) late(states []store.HeldRunState) (late []store.HeldRun) {
	if h.cfg.FixedLease {
		return nil
	}
	for _, st := range states {
		if st.Holds && st.Term.Ends.Sub(st.Term.Asked) < h.cfg.LeaseTimeout/2 {
			late = append(late, store.HeldRun{RunID: st.RunID, Lease: st.Lease})
		}
	}
	return late
}

// extend extends the leases of the runs. If one lease cannot be extended, its run goes on until it ends, and the others
// are extended.
func (h *heartbeater) extend(ctx context.Context, db pg.DB, late []store.HeldRun) error {
	all := true
	terms, err := h.Store.Leases.Extend(ctx, db, late, h.cfg.LeaseTimeout, func(held store.HeldRun, err error) {
		all = false
		h.RefusesOne(held, err)
	})
	for held, term := range terms {
		if run := h.roster.under(held); run != nil {
			run.SetTerm(term)
		}
	}
	if err == nil && all {
		h.Failing.Over(h.Logger(h.ID()), extending)
	}
	return err
}

const extending = "extend leases" // the operation's name in the store's errors
