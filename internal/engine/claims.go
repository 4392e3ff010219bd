package engine

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

const (
	// mostClaimed bounds the runs of one claim.
	mostClaimed = 1000

	// mostInputAhead bounds the bytes of each input of a claim that takes runs ahead of free slots: there may be many. A larger
	// one is read with the history, once its run has a slot.
	mostInputAhead = 64 << 10
)

// claimLoop claims runs while slots are free, until ctx ends or the worker is asked to drain. See docs/architecture.md,
// Claim.
func (s *Session) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		n, more := s.capacity()
		if !more {
			return
		}
		if n == 0 {
			s.endLingering()
			select {
			case <-ctx.Done():
			case <-s.freed:
			}
			continue
		}
		pause, poll := s.claim(ctx, n)
		for pause > 0 {
			timer.Reset(s.pauseFor(pause))
			pause = 0
			select {
			case <-ctx.Done():
			case <-s.wake:
			case <-timer.C:
				if poll {
					pause = s.polled()
				}
			}
		}
	}
}

// pauseFor sets the time of the next claim: after the pause, or when a run is due that was suspended since the last claim. It
// returns the time until then.
func (s *Session) pauseFor(pause time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextClaim = s.beforeSuspendedLocked(time.Now().Add(pause))
	return time.Until(s.nextClaim)
}

// beforeSuspendedLocked returns t, or when the first run is due that was suspended since the last claim, if that is sooner.
func (s *Session) beforeSuspendedLocked(t time.Time) time.Time {
	if !s.suspendedUntil.IsZero() && s.suspendedUntil.Before(t) {
		return s.suspendedUntil
	}
	return t
}

// longestLedPoll is the longest PollInterval of a worker that lets the leading coordinator poll for it. That coordinator says
// of a queue that nothing is due for ten seconds, so a worker with a longer interval could learn too late of the next run.
const longestLedPoll = 8 * time.Second

// hearLead notes that the leading coordinator has looked for work of this queue, and found nothing that is due soon. It does
// so every few seconds. Then the worker does not poll. If it has not heard that for PollInterval, it polls.
func (s *Session) hearLead(l hints.Lead) {
	if !l.Queues || s.cfg.PollInterval > longestLedPoll || slices.Contains(l.Busy, s.cfg.Queue) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = time.Now()
}

// polled returns the rest of the pause until the next claim if the leading coordinator has polled for this worker meanwhile. It
// may not have seen the runs that the worker has suspended since.
func (s *Session) polled() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.beforeSuspendedLocked(s.idle.Add(s.cfg.PollInterval))))
}

// capacity returns how many runs may be claimed now. more is false once nothing will be claimed any more.
func (s *Session) capacity() (n int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced {
		return 0, !s.draining
	}
	s.slots.measure(time.Now())
	return min(s.slots.wanted(), s.most), !s.draining
}

// claim takes up to n runs, begins to execute them, and returns the pause before the next claim. It is zero if more runs
// may be due. poll says that the next claim would only look whether notifications were lost.
func (s *Session) claim(ctx context.Context, n int) (pause time.Duration, poll bool) {
	s.claims++
	types := slices.Clone(s.cfg.Types)
	rand.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	s.mu.Lock()
	noSuspects, ahead := s.crashLoopSuspect, n > s.slots.free
	s.claiming, s.calm = true, false
	s.suspendedUntil = time.Time{} // this claim finds these runs
	select {
	case <-s.wake: // this claim serves the hint
	default:
	}
	s.mu.Unlock()
	defer s.claimedAll()
	sent := time.Now()
	req := store.ClaimRequest{
		Queue: s.cfg.Queue, Types: types, Limit: n, Worker: s.ID(), Lease: uuid.New(), LeaseTimeout: s.cfg.LeaseTimeout,
		LowFirst: s.claims%16 == 0, NoSuspects: noSuspects, Ahead: s.cfg.PollInterval,
	}
	full, back := s.looks.prepare(&req, s.now(), s.cfg.PollInterval)
	if ahead {
		req.MostInput = mostInputAhead
	}
	if back != nil {
		s.unfinished.Go(func() { s.lookBack(ctx, req, back) })
	}
	answer := make(chan store.Claim, 1)
	s.unfinished.Go(func() { answer <- s.claimRuns(ctx, req) })
	var claim store.Claim
	select {
	case claim = <-answer:
	case <-ctx.Done(): // the drain does not wait for the answer
		s.unfinished.Go(func() {
			s.resolve(ctx, req, sent)
			if late := <-answer; len(late.Runs) > 0 {
				s.resolve(ctx, req, sent)
			}
		})
		return 0, false
	}
	if full && (claim.Reached != nil || claim.Now.IsZero()) { // not after a lost answer
		s.looks.ended(time.Since(sent))
	}
	if claim.Now.IsZero() {
		s.most = max(1, n/2) // the inputs may have been too much for the time
		return outage.Pause + rand.N(outage.Pause), false
	}
	if len(claim.Runs) > 0 {
		s.most = min(2*s.most, mostClaimed)
	}
	s.looks.goOn(claim.Reached)
	s.setClock(claim.Now, claim.Asked)
	s.failpoint("after claim", uuid.Nil)
	if len(claim.Runs) > 0 {
		s.begin(req.Worker, claim.Runs)
	}
	s.mu.Lock()
	s.calm = len(claim.Runs) < n && claim.Reached != nil && len(s.wake) == 0 // once these runs have their slots
	s.mu.Unlock()
	if len(claim.Runs) == n || claim.Reached == nil { // the answer was lost, and with it when the next run is due
		return 0, false
	}
	pause = req.Ahead
	if !claim.Next.IsZero() {
		// The estimate lags behind the database's clock, so the run is due by then. A random part of a millisecond keeps the
		// workers of a fleet from claiming at once for one run.
		pause = min(pause, max(claim.Next.Sub(s.now()), 0)+rand.N(time.Millisecond))
	}
	return pause, full && pause == s.cfg.PollInterval
}

// lookBack finds the runs that the claim of req leaves out. The next claim begins where the first of them is.
func (s *Session) lookBack(ctx context.Context, req store.ClaimRequest, answer chan<- lookedBack) {
	begun := time.Now()
	missed, err := s.store.Missed(ctx, req)
	answer <- lookedBack{missed, time.Since(begun)}
	switch {
	case err != nil && ctx.Err() == nil:
		s.databaseTrouble(err)
	case len(missed) > 0:
		s.wantClaim()
	}
}

// claimedAll ends a claim: its runs are in executing. It refreshes runs whose rows changed meanwhile, because the claim
// may have read them before the change.
func (s *Session) claimedAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *Session) begin(worker uuid.UUID, runs []*store.ClaimedRun) {
	es := make([]*execution, 0, len(runs))
	for _, r := range runs {
		if e := s.adopt(worker, r); e != nil {
			es = append(es, e)
		}
	}
	s.mu.Lock()
	s.slots.waiting = append(s.slots.waiting, es...)
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	waiting := len(s.slots.waiting)
	s.mu.Unlock()
	if waiting > 0 && len(es) > 0 {
		s.endLingering()
		time.AfterFunc(longestAhead, func() { s.giveBack(es[len(es)-1].run.Term.Asked) })
	}
}

// adopt prepares the execution of a run that was claimed, or inserted as claimed, by worker. The execution waits for a slot.
// adopt returns nil if it has yielded the run. A run that was never started and never woken has no history. The histories of
// the others, and the inputs that the claim left out, are read beside the claims.
func (s *Session) adopt(worker uuid.UUID, r *store.ClaimedRun) *execution {
	loads := !r.Fresh || r.Wakeups > 0 || r.Input == nil
	e := newExecution(s.environment, s, r, loads)
	e.waiting, e.loading = true, loads
	s.mu.Lock()
	old := s.executing[r.RunID]
	s.executing[r.RunID] = e
	changed, reserved := s.reserved[r.RunID]
	delete(s.reserved, r.RunID)
	if changed {
		s.stale[r.RunID] = true
		goroutine.Signal(s.refreshes)
	}
	drains := reserved && s.draining // the session may have given up its other runs already
	declaredDead := worker != s.ID()
	s.mu.Unlock()
	if old != nil { // its lease ended, and this worker has claimed the run again
		old.supersede()
	}
	switch {
	case declaredDead: // since the claim: nobody releases runs that the old worker ID gets from now on
		e.stopUnbegun(stopShutdown, ErrLeaseLost)
		return nil
	case drains:
		e.stopUnbegun(stopShutdown, ErrShutdown)
		return nil
	}
	return e
}

// dispatch executes e, or ends it if there is a reason not to execute it.
func (s *Session) dispatch(e *execution) {
	h := s.cfg.Handlers[e.run.Type][e.run.Version]
	e.mu.Lock()
	why := e.isToEnd()
	e.mu.Unlock()
	s.mu.Lock()
	if !e.run.CrashLoopSuspect() { // it may have been taken for one, and has made progress
		s.endSuspectLocked(e)
	}
	fenced := s.fenced
	s.mu.Unlock()
	switch {
	case fenced:
		e.stopUnbegun(stopShutdown, ErrLeaseLost)
	case why != underWay:
		e.stopUnbegun(why, failure.ErrDeadline)
	case h == nil:
		e.stopUnbegun(stopShutdown, ErrShutdown) // the claim asks only for versions with a handler
	default:
		e.mu.Lock()
		e.begun = true
		e.mu.Unlock()
		go e.execute(h)
	}
}

// Offer makes the session claim once it has a free slot, and returns how many it has now. It returns zero for another queue,
// and for a workflow or version without a handler; "" and zero stand for any.
func (s *Session) Offer(queue, typ string, version int) int {
	handlers := s.cfg.Handlers[typ]
	if queue != s.cfg.Queue || typ != "" && (handlers == nil || version != 0 && handlers[version] == nil) {
		return 0
	}
	s.mu.Lock()
	free := s.slots.free
	if s.draining || s.fenced {
		free = 0
	}
	s.wantClaimLocked() // if there is no free slot, once there is one
	s.mu.Unlock()
	return free
}
