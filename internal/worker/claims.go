package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// claimLoop claims runs while slots are free, until ctx ends or the worker is asked to drain. See
// internal/worker/doc_claims.go.
func (s *Session) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if s.changed.Swap(false) {
			s.subscribe() // before the first claim from a new queue
		}
		plan, over := s.plan()
		switch {
		case over:
			return
		case plan.Claims:
			s.claim(ctx, &plan)
			s.freedKeys.leaveOverdue()
		case plan.Wait > 0:
			timer.Reset(plan.Wait)
			select {
			case <-ctx.Done():
			case <-s.wake:
			case <-timer.C:
			}
		default: // no slot is free
			s.endLingering()
			timer.Reset(claims.Ahead)
			select {
			case <-ctx.Done():
			case <-s.freed:
			case <-timer.C:
				s.freedKeys.leave()
				select {
				case <-ctx.Done():
				case <-s.freed:
				}
			}
		}
	}
}

// plan returns what the claim loop does next. If over is true, it ends: nothing will be claimed any more.
func (s *Session) plan() (plan claims.Plan, over bool) {
	s.lock()
	defer s.unlock()
	if s.draining {
		return claims.Plan{}, true
	}
	return s.claims.Plan(s.moment(), s.fenced), false
}

// moment returns the time for the policy of claims.
func (s *Session) moment() claims.Moment { return claims.Moment{Now: time.Now(), Database: s.Now()} }

// subscribe subscribes to notifications of the queues from which the session claims, and of no others.
func (s *Session) subscribe() {
	s.lock()
	active, left := s.claims.Names()
	s.unlock()
	for _, queue := range slices.Concat(active, left) {
		s.lock()
		active, cancel := s.claims.Active(queue), s.subscriptions[queue]
		s.unlock()
		switch {
		case active && cancel == nil:
			cancel = s.cfg.Hints.OnWork(queue, func() { s.hint(queue) })
		case !active && cancel != nil:
			cancel()
			cancel = nil
		}
		s.lock()
		if s.subscriptions[queue] = cancel; cancel == nil {
			delete(s.subscriptions, queue)
		}
		s.unlock()
	}
}

// hint makes the claim loop claim from the queue now, or once a slot is free.
func (s *Session) hint(queue string) {
	s.lock()
	defer s.unlock()
	s.claims.Hint(queue)
	goroutine.Signal(s.wake)
}

// hintAll makes the claim loop claim from all queues.
func (s *Session) hintAll() {
	s.lock()
	defer s.unlock()
	s.hintAllLocked()
}

func (s *Session) hintAllLocked() {
	s.claims.HintAll()
	goroutine.Signal(s.wake)
}

// suspendedLocked makes the claim loop claim from the queue once the run is due that was suspended until due. It
// reports whether the session claims from the queue.
func (s *Session) suspendedLocked(queue string, due time.Time) (claims bool) {
	claims, hinted := s.claims.Suspended(queue, due)
	if hinted {
		goroutine.Signal(s.wake)
	}
	return claims
}

// keyFreed makes the next claim look at the key of a run that has given up its slot, and at the limits of its queue. If
// the session claims nothing now, other workers are to look at them.
func (s *Session) keyFreed(r *store.ClaimedRun) {
	s.lock()
	defer s.unlock()
	s.keyFreedLocked(r)
}

func (s *Session) keyFreedLocked(r *store.ClaimedRun) {
	switch next, leave := s.claims.KeyFreed(r.Queue, r.Key, !s.draining && !s.fenced, time.Now()); {
	case next:
		goroutine.Signal(s.wake)
	case leave:
		s.freedKeys.leaveLocked()
	}
}

// hearLead notes that the leading coordinator has looked for work of the queues.
func (s *Session) hearLead(l hints.Lead) {
	if !l.Queues {
		return
	}
	s.lock()
	defer s.unlock()
	s.claims.Idle(l.Busy, time.Now())
}

// claim sends the plan's claim, begins to execute its runs, and returns the pause before the next claim from the queue.
func (s *Session) claim(ctx context.Context, plan *claims.Plan) time.Duration {
	req := &plan.Request
	s.lock()
	s.claiming, s.claimed = true, time.Now()
	s.strays.sent = s.claimed
	req.RecoveriesBelow, _ = s.suspects.below(s.claimed)
	s.unlock()
	defer s.claimedAll()
	req.Worker, req.Lease, req.LeaseTimeout = s.ID(), uuid.New(), s.cfg.LeaseTimeout
	if plan.Rewind {
		s.unfinished.Go(func() { s.rewind(ctx, *req) })
	}
	runs := s.claimPlanned(ctx, plan)
	if len(runs) > 0 {
		s.begin(req, runs)
	}
	s.lock()
	defer s.unlock()
	return s.claims.Ended(plan, len(runs), time.Now())
}

// claimPlanned sends the plan's claim, and tells the policy of claims the answer. The caller begins to execute the
// runs.
func (s *Session) claimPlanned(ctx context.Context, plan *claims.Plan) []*store.ClaimedRun {
	sent := time.Now()
	claim, answered := s.sendClaim(ctx, plan.Request)
	took := time.Since(sent)
	if !answered {
		s.lock()
		defer s.unlock()
		s.claims.Unanswered(plan, time.Now())
		return nil
	}
	if !claim.Now.IsZero() {
		s.setClock(claim.Now, claim.Asked)
		s.Failpoint("after claim", uuid.Nil)
	}
	s.lock()
	announce := s.claims.Answered(plan, &claim, took, s.moment())
	s.unlock()
	for _, queue := range announce {
		_ = s.cfg.Hints.Due(standing.NoWait, nil, store.DueRun{Queue: queue}) // fails only in a transaction
	}
	return claim.Runs
}

// sendClaim returns the answer to the request. After the end of ctx it does not wait for one: answered is false, and
// the runs that the claim takes are given back.
func (s *Session) sendClaim(ctx context.Context, req store.ClaimRequest) (claim store.Claim, answered bool) {
	sent := time.Now()
	answer := make(chan store.Claim, 1)
	s.unfinished.Go(func() { answer <- s.claimRuns(ctx, req) })
	select {
	case claim = <-answer:
		return claim, true
	case <-ctx.Done(): // the drain does not wait for the answer
		s.unfinished.Go(func() {
			s.resolve(ctx, req, sent)
			if late := <-answer; len(late.Runs) > 0 {
				s.resolve(ctx, req, sent)
			}
		})
		return store.Claim{}, false
	}
}

// rewind finds the runs that the claim of req leaves out. The next claim begins where the first of them is.
func (s *Session) rewind(ctx context.Context, req store.ClaimRequest) {
	begun := time.Now()
	missed, err := s.Store.Claims.Missed(ctx, req)
	s.lock()
	s.claims.Rewound(req.Queue, missed, time.Since(begun))
	s.unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		s.Trouble(err)
	case len(missed) > 0:
		goroutine.Signal(s.wake)
	}
}

// claimedAll ends a claim: its runs are in executing. It refreshes runs whose rows changed meanwhile, because the claim
// may have read them before the change.
func (s *Session) claimedAll() {
	s.lock()
	defer s.unlock()
	s.claiming = false
	early := slices.Collect(maps.Keys(s.staleEarly))
	if s.staleEarly[uuid.Nil] {
		early = slices.Collect(maps.Keys(s.executing))
	}
	clear(s.staleEarly)
	for _, id := range early {
		if s.executing[id] != nil {
			s.stale[id] = true
		}
	}
	if len(s.stale) > 0 {
		goroutine.Signal(s.refreshes)
	}
}

// begin starts to execute the runs of a claim, or lets them wait for a slot.
func (s *Session) begin(req *store.ClaimRequest, runs []*store.ClaimedRun) {
	hs := make([]*held, 0, len(runs))
	for _, r := range runs {
		if h := s.adopt(req.Worker, r); h != nil {
			hs = append(hs, h)
		}
	}
	inOrder(hs)
	s.lock()
	s.slots.waiting = append(s.slots.waiting, hs...)
	s.claims.Wait(req.Queue, len(hs))
	s.unlock()
	s.startWaiting()
	s.lock()
	waiting := len(s.slots.waiting)
	s.unlock()
	if waiting > 0 && len(hs) > 0 {
		s.endLingering()
		time.AfterFunc(s.slots.longest, func() { s.giveBack(hs[len(hs)-1].Term.Asked) })
	}
}

// adopt makes the session hold a run that was claimed, or inserted as claimed, by worker. The run waits
// for a slot. adopt returns nil if it has yielded the run. A run that was never started and never woken has no history.
// The histories of the others, and the inputs that the claim left out, are read beside the claims.
func (s *Session) adopt(worker uuid.UUID, r *store.ClaimedRun) *held {
	h := hold(s, s.env, r, !r.Fresh || r.Wakeups > 0 || r.Input == nil)
	s.lock()
	old := s.executing[r.RunID]
	s.executing[r.RunID] = h
	changed, reserved := s.reserved[r.RunID]
	delete(s.reserved, r.RunID)
	if changed {
		s.stale[r.RunID] = true
		goroutine.Signal(s.refreshes)
	}
	drains := reserved && s.draining // the session may have given up its other runs already
	declaredDead := worker != s.ID()
	s.unlock()
	if old != nil { // its lease ended, and this worker has claimed the run again
		old.run.Abandon(standing.ErrLeaseLost)
	}
	switch {
	case declaredDead: // since the claim: no coordinator releases runs that the old worker ID gets from now on
		h.run.Stop(standing.ErrLeaseLost)
		return nil
	case drains:
		h.run.Stop(standing.ErrShutdown)
		return nil
	}
	return h
}

// dispatch executes h, or ends it if there is a reason not to execute it.
func (s *Session) dispatch(h *held) {
	handler := s.cfg.Handlers[h.Type][h.Version] // nil: the claim asks only for versions with a handler
	s.lock()
	if !h.CrashLoopSuspect() { // it may have been taken for one, and has made progress
		s.endSuspectLocked(h)
	}
	fenced, left := s.fenced, !s.claims.Active(h.Queue)
	s.unlock()
	switch {
	case fenced:
		h.run.Stop(standing.ErrLeaseLost)
	case left:
		h.run.Begin(nil)
	default:
		h.run.Begin(handler)
	}
}

// Offer makes the session claim once it has a free slot, and returns how many it has now. It returns zero for another
// queue, and for a workflow or version without a handler; "" and zero stand for any.
func (s *Session) Offer(queue, typ string, version int) int {
	handlers := s.cfg.Handlers[typ]
	if typ != "" && (handlers == nil || version != 0 && handlers[version] == nil) {
		return 0
	}
	s.lock()
	defer s.unlock()
	if !s.claims.Active(queue) {
		return 0
	}
	s.claims.Hint(queue) // if there is no free slot, once there is one
	goroutine.Signal(s.wake)
	if s.draining || s.fenced || !s.claims.IsRegistered(queue) {
		return 0
	}
	return s.claims.FreeSlots()
}
