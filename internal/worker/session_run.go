package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// New returns a session of a worker with cfg. It starts nothing.
func New(cfg Config) *Session {
	s := &Session{cfg: cfg, stopClaims: func() {}}
	s.Worker = standing.New(cfg.Store, cfg.Logger, cfg.Hints.Reconnect, s.poolIsClosed)
	s.Worker.Hints, s.Worker.Hooks = cfg.Hints, cfg.Hooks
	s.limits = limits.New(s.Worker)
	env := cfg.Env.With(s.Worker, s.limits)
	s.roster = newRoster(&s.mu)
	g := newGate(&s.mu)
	s.loads = newLoader(s.Worker, g.drainBegins(), cfg.longestRead(longestLoad), func(h *held) { s.dispatch(h) })
	s.claimer = s.newClaimer(env, g)
	s.news = &news{s.Worker, s.roster, s.loads}
	s.watchdog = &watchdog{
		Worker: s.Worker, env: env, after: cfg.HungAfter, roster: s.roster, room: s.Slots, mu: &s.mu,
		abandoned: map[*held]bool{},
	}
	s.writes = newFlusher(s.Worker, cfg.Hints, cfg.Flushed, s, &s.tally)
	s.changeQueues(cfg.Queues)
	return s
}

// newClaimer returns the claimer of the session.
func (s *Session) newClaimer(env *replay.Env, g *gate) *claimer {
	cfg, freed := &s.cfg, make(chan struct{}, 1)
	policy, given := newPolicy(cfg, freed), cfg.gives(cfg.Types)
	o := &orphans{
		Worker: s.Worker, hints: cfg.Hints, roster: s.roster, gate: g, unfinished: &s.unfinished,
		within: cfg.claimTime(), strays: cfg.newStrays(given), mu: &s.mu,
	}
	var c *claimer
	c = &claimer{
		Worker: s.Worker, gate: g, hints: cfg.Hints, roster: s.roster, loads: s.loads, orphans: o,
		unfinished: &s.unfinished, mu: &s.mu,
		work: work{
			handlers: cfg.Handlers, types: cfg.Types, slots: cfg.MaxConcurrent, given: given,
			hold: func(r *store.ClaimedRun, loads bool) *held { return hold(s, s.writes, env, r, loads) },
		},
		freedKeys: &freedKeys{
			store: cfg.Store, hints: cfg.Hints, trouble: s.Trouble, drains: g.drainBegins(), mu: &s.mu, claims: policy,
		},
		sender: sender{Worker: s.Worker, gate: g, orphans: o, unfinished: &s.unfinished, within: cfg.claimTime()},
		wake:   make(chan struct{}, 1), claims: policy, slots: newSlots(&s.mu, policy, freed),
		queues:   queues{subscriptions: map[string]func(){}},
		suspects: newSuspects(&s.mu, s.roster, func() { c.hintAllLocked() }, cfg.Hooks),
	}
	o.belongTo(c)
	return c
}

// newHeartbeater returns a heartbeater of the session.
func newHeartbeater(s *Session) *heartbeater {
	return &heartbeater{
		Worker: s.Worker, cfg: s.cfg.Presence, claimer: s.claimer, roster: s.roster, news: s.news, tally: &s.tally,
		report: s.report, drain: s.askedToDrain,
	}
}

// newPolicy returns a policy of claims without queues. freed gets a value when another session frees a slot for it.
func newPolicy(cfg *Config, freed chan struct{}) *claims.Policy {
	return claims.New(claims.Config{
		Types: cfg.Types, Slots: cfg.MaxConcurrent, PollInterval: cfg.PollInterval, FailurePause: outage.Pause,
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Room: cfg.Room,
		Wake: func() { goroutine.Signal(freed) },
	})
}

// Run registers the worker, claims and executes runs until ctx ends or a drain is requested, and then drains. It
// returns an error if the worker cannot be registered, or if the application closed the pool meanwhile.
func (s *Session) Run(ctx context.Context) error {
	ctx, s.stopClaims = context.WithCancel(ctx)
	defer s.stopClaims()
	hb := newHeartbeater(s)
	if err := hb.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return failure.Prefixed(err)
	}
	s.cfg.Logger.Info("kagzi: worker started", "worker", s.ID(), "namespace", s.Store.Namespace(), "queues", s.Queues(),
		"workflows", s.cfg.handlers(s.ID()))
	release := s.cfg.Hints.Listen()
	stopLead := s.cfg.Hints.OnLead(s.hearLead)
	leaveHints := s.cfg.Hints.JoinWorker(s)
	if s.cfg.Hooks != nil && s.cfg.Hooks.Begun != nil {
		s.cfg.Hooks.Begun(testSession{s})
	}

	var loops sync.WaitGroup
	stop := make(chan struct{})
	loops.Go(func() { hb.run(stop) })
	loops.Go(func() { s.refreshLoop(stop) })
	loops.Go(func() { s.watch(stop) })
	if s.cfg.Beside != nil {
		beside, cancel := context.WithCancel(context.Background()) // until the worker has drained
		defer cancel()
		runs := s.cfg.Beside()
		loops.Go(func() { runs(beside) })
		loops.Go(func() {
			<-stop
			cancel()
		})
	}
	s.unfinished.Go(s.strayLoop)
	s.claimLoop(ctx)
	s.rest()
	s.drain(hb)
	s.unfinished.Wait()
	s.returnAll()
	s.writes.wait() // of runs whose insert ended after the drain
	s.writes.waitForSteps()
	s.freedKeysLeft()
	s.limits.Wait()

	leaveHints()
	close(stop)
	loops.Wait()
	s.endSubscriptions()
	stopLead()
	release()
	hb.end()
	published := make(chan struct{})
	go func() {
		defer close(published)
		s.cfg.Hints.Flush()
	}()
	select {
	case <-published:
	case <-time.After(time.Second): // the process may go on starting runs: then its hints never end
	}
	total := s.tally.total()
	s.cfg.Logger.Info("kagzi: worker stopped", "worker", s.ID(), "queues", s.Queues(), "completed", total.Completed,
		"failed", total.Failed)
	s.lock()
	defer s.unlock()
	if s.poolClosed {
		return errors.New("kagzi: the pool was closed while the worker was running: close it once Run has returned")
	}
	return nil
}
