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

	// mostInputAhead bounds the bytes of each input of a claim that takes runs ahead of free slots: there may be many.
	// A larger one is read with the history, once its run has a slot.
	mostInputAhead = 64 << 10
)

// claimLoop claims runs while slots are free, until ctx ends or the worker is asked to drain. See docs/architecture.md,
// Claim.
func (s *Session) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if s.changed.Swap(false) {
			s.subscribe() // before the first claim from a new queue
		}
		q, n, pause := s.nextQueue()
		switch {
		case pause < 0:
			return
		case pause > 0:
			timer.Reset(pause)
			select {
			case <-ctx.Done():
			case <-s.wake:
			case <-timer.C:
			}
		case n == 0:
			s.endLingering()
			timer.Reset(claimAhead)
			select {
			case <-ctx.Done():
			case <-s.freed:
			case <-timer.C:
				s.handover.leave()
				select {
				case <-ctx.Done():
				case <-s.freed:
				}
			}
		default:
			s.claim(ctx, q, n)
			if s.handover.overdue() {
				s.handover.leave()
			}
		}
	}
}

// nextQueue returns the queue to claim from now, and how many runs; n is zero until a slot is free. If no claim is due,
// it returns how long none is. A negative pause says that nothing will be claimed any more.
func (s *Session) nextQueue() (q *queue, n int, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, pause := s.queues.due(time.Now())
	if len(due) == 0 {
		return nil, 0, pause
	}
	if s.draining {
		return nil, 0, -1
	}
	s.slots.measure(time.Now())
	wanted := s.slots.wanted()
	if s.fenced || wanted == 0 {
		return nil, 0, 0
	}
	for len(due) > 0 {
		q, n = due.choose(wanted)
		if q.keys.limited { // nothing ahead of free slots: a run would hold a slot of the queue while it waits
			n = min(n, s.slots.free)
		}
		if n > 0 {
			return q, n, 0
		}
		due = slices.DeleteFunc(due, func(other *queue) bool { return other == q })
	}
	return nil, 0, 0
}

// subscribe subscribes to notifications of the queues from which the session claims, and of no others.
func (s *Session) subscribe() {
	s.mu.Lock()
	queues := slices.Clone(s.queues)
	s.mu.Unlock()
	for _, q := range queues {
		s.mu.Lock()
		active, cancel := q.active(), q.unsubscribe
		s.mu.Unlock()
		switch {
		case active && cancel == nil:
			cancel = s.cfg.Hints.OnWork(q.name, func() { s.wantClaim(q) })
		case !active && cancel != nil:
			cancel()
			cancel = nil
		}
		s.mu.Lock()
		q.unsubscribe = cancel
		s.mu.Unlock()
	}
}

func (s *Session) wantClaim(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.wantClaim()
}

// longestLedPoll is the longest PollInterval of a worker that lets the leading coordinator poll for it. That
// coordinator says of a queue that nothing is due for ten seconds, so a worker with a longer interval could learn too
// late of the next run.
const longestLedPoll = 8 * time.Second

// hearLead notes that the leading coordinator has looked for work of a queue, and found nothing that is due soon. It
// does so every few seconds. Then the worker does not poll. If it has not heard that for PollInterval, it polls.
func (s *Session) hearLead(l hints.Lead) {
	if !l.Queues || s.cfg.PollInterval > longestLedPoll {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if !slices.Contains(l.Busy, q.name) {
			q.idle = time.Now()
		}
	}
}

// claim takes up to n runs from q, begins to execute them, and returns the pause before the next claim from q.
func (s *Session) claim(ctx context.Context, q *queue, n int) time.Duration {
	s.mu.Lock()
	s.claiming, s.claimed = true, time.Now()
	s.strays.sent = s.claimed
	s.mu.Unlock()
	defer s.claimedAll()
	worker := s.ID()
	runs, next := s.claimFrom(ctx, q, worker, n)
	if len(runs) > 0 {
		s.begin(q, worker, runs)
	}
	s.mu.Lock()
	s.served = s.queues.serve(q, len(runs), s.served)
	q.claimed(next)
	s.mu.Unlock()
	return next.pause
}

// claimFrom takes up to n due runs of q for the worker. The caller begins to execute them, and then calls claimed.
func (s *Session) claimFrom(ctx context.Context, q *queue, worker uuid.UUID,
	n int,
) (runs []*store.ClaimedRun, next nextClaim) {
	req, full := s.prepareClaim(ctx, q, worker, n)
	sent := time.Now()
	claim, answered := s.sendClaim(ctx, req)
	if !answered {
		s.notLooked(&req)
		return nil, nextClaim{}
	}
	return claim.Runs, s.learn(q, req, full, claim, sent)
}

// prepareClaim returns the request for up to n runs, and whether it is a full look. If a look back is due, prepareClaim
// begins it.
func (s *Session) prepareClaim(ctx context.Context, q *queue, worker uuid.UUID,
	n int,
) (req store.ClaimRequest, full bool) {
	q.claims++
	types := slices.Clone(s.cfg.Types)
	rand.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	s.mu.Lock()
	free := s.slots.free
	below, _ := s.suspects.below(time.Now())
	woken := q.wanted
	if woken || q.handed {
		q.keys.backoff = 0
	}
	queues, suspended := len(s.queues), q.suspendedUntil
	only := q.onlyHanded() && !q.looks.due(s.cfg.PollInterval, queues)
	q.begins()
	s.mu.Unlock()
	req = store.ClaimRequest{
		Queue: q.name, Types: types, Limit: n, Worker: worker, Lease: uuid.New(), LeaseTimeout: s.cfg.LeaseTimeout,
		LowFirst: q.claims%16 == 0, RecoveriesBelow: below, Ahead: s.cfg.PollInterval,
	}
	var back chan<- lookedBack
	if !only {
		full, back = q.looks.prepare(&req, s.now(), s.cfg.PollInterval, queues)
	}
	s.mu.Lock()
	q.keys.prepare(&req, s.handover.take(q.name), full || back != nil, woken, only, free, s.now(), s.cfg.PollInterval)
	if req.Keys != nil && req.Keys.Only {
		q.suspendedUntil = q.earlier(suspended)
	}
	s.mu.Unlock()
	if req.Limit > free {
		req.MostInput = mostInputAhead
	}
	if back != nil {
		s.unfinished.Go(func() { s.lookBack(ctx, q, req, back) })
	}
	return req, full
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

// learn takes from the answer what later claims from q need to know, and returns when to claim again.
func (s *Session) learn(q *queue, req store.ClaimRequest, full bool, claim store.Claim, sent time.Time) nextClaim {
	n := len(claim.Runs)
	lost := claim.Reached == nil && !claim.Keys.Only // the answer, and with it when the next run is due
	if lost {
		s.notLooked(&req)
	}
	if full && (claim.Reached != nil || claim.Now.IsZero()) { // not after a lost answer
		q.looks.ended(time.Since(sent))
	}
	if claim.Now.IsZero() {
		q.most = max(1, req.Limit/2) // the inputs may have been too much for the time
		return nextClaim{pause: outage.Pause + rand.N(outage.Pause)}
	}
	if n > 0 {
		q.most = min(2*q.most, mostClaimed)
	}
	q.looks.goOn(claim.Reached)
	s.setClock(claim.Now, claim.Asked)
	s.failpoint("after claim", uuid.Nil)
	if lost {
		return nextClaim{}
	}
	pause := req.Ahead
	if !claim.Next.IsZero() {
		// The estimate lags behind the database's clock, so the run is due by then. A random part of a millisecond
		// keeps the workers of a fleet from claiming at once for one run.
		pause = min(pause, max(claim.Next.Sub(s.now()), 0)+rand.N(time.Millisecond))
	}
	s.mu.Lock()
	polls := full && pause == s.cfg.PollInterval
	if claim.Keys.Only { // it knows no more than the claim before it
		pause, polls = max(time.Until(q.nextClaim), 0), q.polls
	}
	next := q.keys.learn(&req, &claim, s.now(), pause)
	polls = polls && next == pause
	s.mu.Unlock()
	s.lookedAtKeys(&req, &claim.Keys)
	if n == req.Limit {
		return nextClaim{}
	}
	return nextClaim{pause: next, calm: next > 0, polls: polls}
}

// notLooked hands keys to the next claim that this one may not have looked at.
func (s *Session) notLooked(req *store.ClaimRequest) {
	if req.Keys != nil {
		s.handover.add(req.Queue, req.Keys.Handed...)
	}
}

// lookedAtKeys hands on the keys that others had locked. It wakes the workers of queues in which keys have become due
// that the claim did not take. Those of its own queue have heard of it before if the line was longer than the claim.
func (s *Session) lookedAtKeys(req *store.ClaimRequest, a *store.Keys) {
	s.handover.add(req.Queue, a.Busy...)
	for _, name := range a.Announce {
		if name != req.Queue || a.Looked < req.Keys.Keyed {
			_ = s.cfg.Hints.Due(s.noWait, nil, store.DueRun{Queue: name}) // fails only in a transaction
		}
	}
}

// handOn makes the next claim look at the key of a run that has given up its slot, and at the limits of its queue. If
// the session claims nothing now, other workers are to look at them.
func (s *Session) handOn(r *store.ClaimedRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOnLocked(r)
}

func (s *Session) handOnLocked(r *store.ClaimedRun) {
	q := s.queues.named(r.Queue)
	if r.Key == (store.Key{}) && (q == nil || !q.keys.limited) {
		return
	}
	s.handover.add(r.Queue, r.Key)
	if s.draining || s.fenced || q == nil || !q.active() {
		s.handover.leave()
	} else {
		q.wantKeys()
	}
}

// lookBack finds the runs that the claim of req leaves out. The next claim begins where the first of them is.
func (s *Session) lookBack(ctx context.Context, q *queue, req store.ClaimRequest, answer chan<- lookedBack) {
	begun := time.Now()
	missed, err := s.store.Missed(ctx, req)
	answer <- lookedBack{missed, time.Since(begun)}
	switch {
	case err != nil && ctx.Err() == nil:
		s.databaseTrouble(err)
	case len(missed) > 0:
		s.wantClaim(q)
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

// begin starts to execute the runs of a claim from q, or lets them wait for a slot.
func (s *Session) begin(q *queue, worker uuid.UUID, runs []*store.ClaimedRun) {
	es := make([]*execution, 0, len(runs))
	for _, r := range runs {
		if e := s.adopt(q, worker, r); e != nil {
			es = append(es, e)
		}
	}
	inOrder(es)
	s.mu.Lock()
	s.slots.waiting = append(s.slots.waiting, es...)
	q.taken += len(es)
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	waiting := len(s.slots.waiting)
	s.mu.Unlock()
	if waiting > 0 && len(es) > 0 {
		s.endLingering()
		time.AfterFunc(s.slots.longest, func() { s.giveBack(es[len(es)-1].Term.Asked) })
	}
}

// adopt prepares the execution of a run of q that was claimed, or inserted as claimed, by worker. The execution waits
// for a slot. adopt returns nil if it has yielded the run. A run that was never started and never woken has no history.
// The histories of the others, and the inputs that the claim left out, are read beside the claims.
func (s *Session) adopt(q *queue, worker uuid.UUID, r *store.ClaimedRun) *execution {
	loads := !r.Fresh || r.Wakeups > 0 || r.Input == nil
	e := newExecution(s.environment, s, r, loads)
	e.hold(q, loads)
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
	h := s.cfg.Handlers[e.Type][e.Version]
	why := e.isToEnd()
	s.mu.Lock()
	if !e.CrashLoopSuspect() { // it may have been taken for one, and has made progress
		s.endSuspectLocked(e)
	}
	fenced, left := s.fenced, !e.heldFrom().active()
	s.mu.Unlock()
	switch {
	case fenced:
		e.stopUnbegun(stopShutdown, ErrLeaseLost)
	case why != underWay:
		e.stopUnbegun(why, failure.ErrDeadline)
	case left:
		e.stopUnbegun(stopShutdown, ErrShutdown)
	case h == nil:
		e.stopUnbegun(stopShutdown, ErrShutdown) // the claim asks only for versions with a handler
	default:
		e.begin(h)
	}
}

// Offer makes the session claim once it has a free slot, and returns how many it has now. It returns zero for another
// queue, and for a workflow or version without a handler; "" and zero stand for any.
func (s *Session) Offer(queue, typ string, version int) int {
	handlers := s.cfg.Handlers[typ]
	if typ != "" && (handlers == nil || version != 0 && handlers[version] == nil) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues.named(queue)
	if q == nil || !q.active() {
		return 0
	}
	q.wantClaim() // if there is no free slot, once there is one
	if s.draining || s.fenced || !q.registered {
		return 0
	}
	return s.slots.free
}
