package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A claimer claims runs for a session, and lets them begin.
type claimer struct {
	*standing.Worker
	*gate
	hints  *hints.Hints
	work   work
	roster *roster
	loads  *loader
	*orphans
	// claims and reservations under way, and the resolving of those without an answer
	unfinished *sync.WaitGroup

	wake      chan struct{} // the claim loop shall look which queue wants a claim
	freedKeys *freedKeys
	sender    sender // of the claims

	mu     *sync.Mutex    // the session's. It guards the fields below.
	claims *claims.Policy // what the claim loop claims next, and when
	queues
	slots
	suspects // the crash-loop suspects under way
}

// The queues of which a session is notified.
type queues struct {
	// the claim loop shall subscribe to notifications of other queues. Set by SetQueues, reset by the claim loop.
	changed atomic.Bool
	// by queue: ends the subscription to its notifications; nil: there is none. Set by subscribe. The session's mutex
	// guards it.
	subscriptions map[string]func()
}

// A work is what a session can execute, and how.
type work struct {
	handlers map[string]map[int]replay.Handler // by workflow and version
	types    []store.WorkflowVersions          // the workflows and versions of handlers
	slots    int
	given    store.LeasesGiven
	hold     func(r *store.ClaimedRun, loads bool) *held
}

// claimLoop claims runs while slots are free, until ctx ends or the worker is asked to drain. See
// internal/worker/doc_claims.go.
func (c *claimer) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if c.changed.Swap(false) {
			c.subscribe() // before the first claim from a new queue
		}
		c.startWaiting() // if a slot was borrowed for one that waits
		plan, over := c.plan()
		switch {
		case over:
			return
		case plan.Claims:
			c.claim(ctx, &plan)
			c.freedKeys.leaveOverdue()
		case plan.Wait > 0:
			timer.Reset(plan.Wait)
			select {
			case <-ctx.Done():
			case <-c.wake:
			case <-timer.C:
			}
		default: // no slot is free
			c.endLingering()
			timer.Reset(claims.Ahead)
			select {
			case <-ctx.Done():
			case <-c.freed:
			case <-timer.C:
				c.freedKeys.leave()
				select {
				case <-ctx.Done():
				case <-c.freed:
				}
			}
		}
	}
}

// plan returns what the claim loop does next. If over is true, it ends: nothing will be claimed any more.
func (c *claimer) plan() (plan claims.Plan, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return claims.Plan{}, true
	}
	return c.claims.Plan(c.moment(), c.fenced), false
}

// moment returns the time for the policy of claims.
func (c *claimer) moment() claims.Moment { return claims.Moment{Now: time.Now(), Database: c.Now()} }

// subscribe subscribes to notifications of the queues from which the session claims, and of no others.
func (c *claimer) subscribe() {
	active, left := c.names()
	for _, queue := range slices.Concat(active, left) {
		c.mu.Lock()
		active, cancel := c.claims.Active(queue), c.subscriptions[queue]
		c.mu.Unlock()
		switch {
		case active && cancel == nil:
			cancel = c.hints.OnWork(queue, func() { c.hint(queue) })
		case !active && cancel != nil:
			cancel()
			cancel = nil
		}
		c.mu.Lock()
		if c.subscriptions[queue] = cancel; cancel == nil {
			delete(c.subscriptions, queue)
		}
		c.mu.Unlock()
	}
}

// hint makes the claim loop claim from the queue now, or once a slot is free.
func (c *claimer) hint(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims.Hint(queue)
	goroutine.Signal(c.wake)
}

// hintAll makes the claim loop claim from all queues.
func (c *claimer) hintAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hintAllLocked()
}

func (c *claimer) hintAllLocked() {
	c.claims.HintAll()
	goroutine.Signal(c.wake)
}

// keyFreed makes the next claim look at the key of a run that has given up its slot, and at the limits of its queue. If
// the session claims nothing now, other workers are to look at them.
func (c *claimer) keyFreed(queue string, key store.FreedKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keyFreedLocked(queue, key)
}

func (c *claimer) keyFreedLocked(queue string, key store.FreedKey) {
	switch next, leave := c.claims.KeyFreed(queue, key, c.openLocked(), time.Now()); {
	case next:
		goroutine.Signal(c.wake)
	case leave:
		c.freedKeys.leaveLocked()
	}
}

// hearLead notes that the leading coordinator has looked for work of the queues.
func (c *claimer) hearLead(l hints.Lead) {
	if !l.Queues {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims.Idle(l.Busy, time.Now())
}

// claim sends the plan's claim, begins to execute its runs, and returns the pause before the next claim from the queue.
func (c *claimer) claim(ctx context.Context, plan *claims.Plan) time.Duration {
	req := &plan.Request
	c.mu.Lock()
	now := time.Now()
	c.roster.claimLocked(now)
	c.orphans.sentLocked(now)
	req.Suspects = c.suspects.taken(now)
	c.mu.Unlock()
	defer c.roster.claimedAll()
	req.Worker, req.Lease, req.LeaseTimeout = c.ID(), uuid.New(), c.work.given.LeaseTimeout
	if plan.Rewind {
		c.unfinished.Go(func() { c.rewind(ctx, *req) })
	}
	runs := c.claimPlanned(ctx, plan)
	if len(runs) > 0 {
		c.begin(req, runs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims.Ended(plan, len(runs), time.Now())
}

// claimPlanned sends the plan's claim, and tells the policy of claims the answer. The caller begins to execute the
// runs.
func (c *claimer) claimPlanned(ctx context.Context, plan *claims.Plan) []*store.ClaimedRun {
	sent := time.Now()
	claim, answered := c.sender.send(ctx, plan.Request)
	took := time.Since(sent)
	if !answered {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.claims.Unanswered(plan, time.Now())
		return nil
	}
	if !claim.Now.IsZero() {
		c.setClock(claim.Now, claim.Asked)
		c.Failpoint("after claim", uuid.Nil)
	}
	c.mu.Lock()
	announce := c.claims.Answered(plan, &claim, took, c.moment())
	c.mu.Unlock()
	for _, queue := range announce {
		_ = c.hints.Due(standing.NoWait, nil, store.DueRun{Queue: queue}) // fails only in a transaction
	}
	return claim.Runs
}

// rewind finds the runs that the claim of req leaves out. The next claim begins where the first of them is.
func (c *claimer) rewind(ctx context.Context, req store.ClaimRequest) {
	begun := time.Now()
	missed, err := c.Store.Claims.Missed(ctx, req)
	c.mu.Lock()
	c.claims.Rewound(req.Queue, missed, time.Since(begun))
	c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		c.Trouble(err)
	case len(missed) > 0:
		goroutine.Signal(c.wake)
	}
}

// setClock updates the estimate of the database's clock: an answer that has just arrived, to a statement sent at sent,
// said now. If the clock was set forward, all timers are computed again: setClock resets deadlines
// and wakes the claim loop, whose next claim may be overdue; waits notice it by themselves.
func (c *claimer) setClock(now, sent time.Time) {
	if !c.Clock.Set(now, sent, time.Now()) {
		return
	}
	for _, h := range c.roster.all() {
		h.ClockSet()
	}
	c.hintAll()
}

// begin starts to execute the runs of a claim, or lets them wait for a slot.
func (c *claimer) begin(req *store.ClaimRequest, runs []*store.ClaimedRun) {
	hs := make([]*held, 0, len(runs))
	for _, r := range runs {
		if h := c.adopt(req.Worker, r); h != nil {
			hs = append(hs, h)
		}
	}
	inOrder(hs)
	c.mu.Lock()
	c.waiting = append(c.waiting, hs...)
	c.claims.Wait(req.Queue, len(hs))
	c.mu.Unlock()
	c.startWaiting()
	c.mu.Lock()
	waiting, longest := len(c.waiting), cmp.Or(c.longest, c.claims.LongestWait())
	c.mu.Unlock()
	if waiting > 0 && len(hs) > 0 {
		c.endLingering()
		time.AfterFunc(longest, func() { c.giveBack(hs[len(hs)-1].Term.Asked) })
	}
}

// adopt makes the session hold a run that was claimed, or inserted as claimed, by worker. The run waits
// for a slot. adopt returns nil if it has yielded the run. A run that was never started and never woken has no history.
// The histories of the others, and the inputs that the claim left out, are read beside the claims.
func (c *claimer) adopt(worker uuid.UUID, r *store.ClaimedRun) *held {
	h := c.work.hold(r, !r.Fresh || r.Wakeups > 0 || r.Input == nil)
	c.mu.Lock()
	old, reserved := c.roster.addLocked(h)
	drains := reserved && c.draining // the session may have given up its other runs already
	declaredDead := worker != c.ID()
	c.mu.Unlock()
	if old != nil { // its lease ended, and this worker has claimed the run again
		old.Abandon(standing.ErrLeaseLost)
	}
	switch {
	case declaredDead: // since the claim: no coordinator releases runs that the old worker ID gets from now on
		h.Stop(standing.ErrLeaseLost)
		return nil
	case drains:
		h.Stop(standing.ErrShutdown)
		return nil
	}
	return h
}

// dispatch executes h, or ends it if there is a reason not to execute it.
func (c *claimer) dispatch(h *held) {
	handler := c.work.handlers[h.Type][h.Version] // nil: the claim asks only for versions with a handler
	c.mu.Lock()
	if !h.CrashLoopSuspect() { // it may have been taken for one, and has made progress
		c.suspects.endLocked(h)
	}
	fenced, left := c.fenced, !c.claims.Active(h.Queue)
	c.mu.Unlock()
	switch {
	case fenced:
		h.Stop(standing.ErrLeaseLost)
	case left:
		h.Begin(nil)
	default:
		h.Begin(handler)
	}
}

// Offer makes the session claim after that time, once it has a free slot, and returns how many it has now. It returns
// zero for another queue, and for a workflow or version without a handler; "" and zero stand for any.
func (c *claimer) Offer(queue, typ string, version int, after time.Duration) int {
	handlers := c.work.handlers[typ]
	if typ != "" && (handlers == nil || version != 0 && handlers[version] == nil) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.claims.Active(queue) {
		return 0
	}
	sooner := true
	if after > 0 {
		_, sooner = c.claims.DueAt(queue, time.Now().Add(after))
	} else {
		c.claims.Hint(queue) // if there is no free slot, once there is one
	}
	if sooner {
		goroutine.Signal(c.wake)
	}
	if !c.openLocked() || !c.claims.IsRegistered(queue) {
		return 0
	}
	return c.claims.FreeSlots()
}

// aboutNow is how soon a run must be due to be announced at once.
const aboutNow = 200 * time.Millisecond

// suspended makes the claim loop claim when the run is due. It reports whether others should be notified, too: because
// the run is due about now (the estimate of the database's clock lags, so a run that is due may seem not to be), or
// because this worker will not be there when it is. The claims learn when the run's key is due only by a claim.
func (c *claimer) suspended(queue string, keyed bool, p *store.Suspension) (announce bool) {
	if p.AvailableAt.IsZero() {
		return false
	}
	left := p.AvailableAt.Sub(c.Now())
	due := time.Now().Add(left)
	c.mu.Lock()
	defer c.mu.Unlock()
	claims, sooner := c.claims.DueAt(queue, due)
	if sooner && keyed {
		c.claims.Hint(queue)
	}
	if sooner {
		goroutine.Signal(c.wake)
	}
	return c.draining || !claims || left <= aboutNow
}

// forget forgets the run, whose last write is written or given up, and wakes the loops that wait for a slot or for the
// last run. over says that the run is over.
func (c *claimer) forget(h *held, over bool) {
	c.mu.Lock()
	c.roster.removeLocked(h)
	c.suspects.endLocked(h)
	c.keyFreedLocked(h.Queue, store.FreedKey{Key: h.Key, Ended: over})
	c.mu.Unlock()
	c.signalFreed()
}
