package worker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// New returns a session of a worker with cfg. It starts nothing.
func New(cfg Config) *Session {
	s := &Session{
		cfg: cfg, stopClaims: func() {},
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), refreshes: make(chan struct{}, 1),
		executing: map[uuid.UUID]*held{}, lingering: map[*held]bool{}, abandoned: map[*held]bool{},
		slots: slots{longest: longestAhead}, suspects: suspects{patience: firstPatience},
		subscriptions: map[string]func(){},
		stale:         map[uuid.UUID]bool{}, staleEarly: map[uuid.UUID]bool{}, reserved: map[uuid.UUID]bool{},
		drains: make(chan struct{}), strays: strays{age: store.LateClaims, wake: make(chan struct{}, 1)},
	}
	s.Worker = standing.New(cfg.Store, cfg.Logger, cfg.Hints.Reconnect, s.poolIsClosed)
	s.Hints, s.Hooks = cfg.Hints, cfg.Hooks
	s.limits = limits.New(s.Worker)
	s.env = cfg.Env.With(s.Worker, s.limits)
	if cfg.Hooks != nil {
		s.suspects.patience = cmp.Or(cfg.Hooks.SuspectPatience, firstPatience)
	}
	s.claims = newPolicy(&cfg)
	s.freedKeys = &freedKeys{
		store: cfg.Store, hints: cfg.Hints, trouble: s.Trouble, drains: s.drains, mu: &s.mu, claims: s.claims,
	}
	s.changeQueues(cfg.Queues)
	s.writes = newFlusher(s.Worker, &cfg, s, &s.tally)
	s.loads = newLoader(s.Worker, s.drains, s.dispatch)
	if cfg.FixedLease { // the lease is not extended, and must outlast the query
		s.loads.longest = min(s.loads.longest, cfg.LeaseTimeout/2)
	}
	return s
}

// newPolicy returns a policy of claims without queues.
func newPolicy(cfg *Config) *claims.Policy {
	return claims.New(claims.Config{
		Types: cfg.Types, Slots: cfg.MaxConcurrent, PollInterval: cfg.PollInterval, FailurePause: outage.Pause,
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
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
		"workflows", s.cfg.Registration(s.ID()).Handlers)
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
		loops.Go(func() { s.cfg.Beside(beside) })
		loops.Go(func() {
			<-stop
			cancel()
		})
	}
	s.unfinished.Go(s.strayLoop)
	s.claimLoop(ctx)
	s.drain(hb)
	s.unfinished.Wait()
	s.writes.wait() // of runs whose insert ended after the drain
	s.writes.steps.Wait()
	s.freedKeys.wait()
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
	s.cfg.Logger.Info("kagzi: worker stopped", "worker", s.ID(), "queues", s.Queues(), "completed",
		s.tally.completed.Load(), "failed", s.tally.failed.Load())
	s.lock()
	defer s.unlock()
	if s.poolClosed {
		return errors.New("kagzi: the pool was closed while the worker was running: close it once Run has returned")
	}
	return nil
}
