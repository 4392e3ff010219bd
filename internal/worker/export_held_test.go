package worker

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/store"
)

// Limits that tests go beyond.
const (
	MostWrites = mostWrites
	MostBytes  = mostBytes
)

// A HeldSession has neither heartbeater nor loops: the test calls their passes, and flushes the executions' writes
// itself.
type HeldSession struct {
	s     *Session
	Come  chan HeldExecution // receives the executions that have something to write
	Again chan HeldExecution // receives those that are requeued because of a lock, after HoldRetries

	first   string        // queue
	rewinds bool          // a rewind has begun with the last claim
	passed  time.Duration // how much later it is than the clock says: see PassLateClaims
}

// A HeldExecution is an execution of a HeldSession. Equal ones are the same execution.
type HeldExecution struct{ h *held }

// NewHeldSession registers a worker and returns its session.
func NewHeldSession(ctx context.Context, cfg Config) (*HeldSession, error) {
	h := &HeldSession{s: New(cfg), Come: make(chan HeldExecution, 100), Again: make(chan HeldExecution, 100)}
	h.s.writes.writer, h.first = sendingTo(h.Come), h.s.Queues()[0]
	reg := cfg.Registration(h.s.ID())
	reg.Queues, _ = h.s.queuesToRegister()
	h.s.queuesRegistered(reg.Queues)
	return h, h.s.Store.Workers.Register(ctx, h.s.Store.Pool(), reg)
}

// sendingTo returns a batcher that sends the executions to the test.
func sendingTo(ch chan<- HeldExecution) *batch.Batcher[*held] {
	return batch.New(batch.Config[*held]{Flush: func(hs []*held) {
		for _, h := range hs {
			ch <- HeldExecution{h}
		}
	}})
}

// HoldRetries leaves executions that are requeued because of a lock to the test. It is called before anything is
// claimed.
func (h *HeldSession) HoldRetries() { h.s.writes.retries = sendingTo(h.Again) }

// KeepAhead lets runs wait for a slot for as long as it takes. It is called before anything is claimed.
func (h *HeldSession) KeepAhead() { h.s.slots.longest = time.Hour }

// Claim is one pass of the claim loop, for up to n runs of the first queue. It returns the pause before the next.
func (h *HeldSession) Claim(ctx context.Context, n int) time.Duration {
	select {
	case <-h.s.wake:
	default:
	}
	plan := h.plan(n, h.s.moment())
	h.rewinds = plan.Rewind
	return h.s.claim(ctx, &plan)
}

func (h *HeldSession) plan(n int, at claims.Moment) claims.Plan {
	h.s.lock()
	defer h.s.unlock()
	return h.s.claims.PlanFrom(h.first, n, at)
}

// answer tells the policy of claims that a full claim, which took so long, was answered so long ago, and reached that
// far.
func (h *HeldSession) answer(took, ago time.Duration, reached map[store.Pair]time.Time) {
	at := h.s.moment()
	plan := h.plan(1, claims.Moment{Now: at.Now.Add(24 * time.Hour), Database: at.Database})
	h.s.lock()
	defer h.s.unlock()
	if plan.Rewind {
		h.s.claims.Rewound(h.first, nil, took)
	}
	then := claims.Moment{Now: at.Now.Add(-ago), Database: at.Database}
	h.s.claims.Answered(&plan, &store.Claim{Now: at.Database, Reached: reached}, took, then)
	h.s.claims.Ended(&plan, 0, at.Now)
}

// SetQueues changes the queues of the session.
func (h *HeldSession) SetQueues(shares map[string]int) { h.s.SetQueues(shares) }

// Taken returns how many slots and places before them the runs of the first queue have.
func (h *HeldSession) Taken() int {
	h.s.lock()
	defer h.s.unlock()
	return h.s.claims.Taken(h.first)
}

// Register returns the queues that the next heartbeat writes to the worker's row.
func (h *HeldSession) Register() (active, left []string) {
	return h.s.queuesAt(time.Now().Add(h.passed))
}

// PassLateClaims lets so much time pass since queues were left that no claim can bring runs of them any more.
func (h *HeldSession) PassLateClaims() { h.passed += store.LateClaims + time.Second }

// LastFullClaim makes the last full claims such that ended so long ago and took d.
func (h *HeldSession) LastFullClaim(d, ago time.Duration) {
	for _, took := range []time.Duration{0, d, d} { // the shorter of two counts
		h.answer(took, ago, map[store.Pair]time.Time{})
	}
}

// Rewinds reports whether a rewind has begun with the last claim. It waits for its end.
func (h *HeldSession) Rewinds() bool {
	h.s.unfinished.Wait()
	return h.rewinds
}

// Woken reports whether the claim loop was woken since the last claim.
func (h *HeldSession) Woken() bool { return len(h.s.wake) > 0 }

// Hear notes an answer of the database that has just come, as that to a heartbeat.
func (h *HeldSession) Hear() { Heard(h.s) }

// Active returns how many runs the next heartbeat reports as executed.
func (h *HeldSession) Active() int { return newHeartbeater(h.s).newHeartbeat().Active }

// Fence stops all executions, as a heartbeater does when no heartbeat was answered for too long.
func (h *HeldSession) Fence() { Fence(h.s, "test") }

// Waiting returns how many claimed runs wait for a slot, and how many slots are free.
func (h *HeldSession) Waiting() (waiting, free int) {
	h.s.lock()
	defer h.s.unlock()
	return h.s.claims.Waiting(), h.s.claims.FreeSlots()
}

// PlaceInAFreedSlot frees a slot, and reports whether a run can have it before startWaiting is called.
func (h *HeldSession) PlaceInAFreedSlot(run *store.NewRun) bool {
	if slices.Contains(h.s.Queues(), h.first) {
		h.answer(0, 0, map[store.Pair]time.Time{}) // the next claim comes after a PollInterval
	}
	h.s.lock()
	h.s.claims.Free(run.Queue)
	h.s.unlock()
	p := h.s.Reserve(run)
	if p != nil {
		p.Free()
	}
	h.s.lock()
	defer h.s.unlock()
	h.s.claims.Wait(run.Queue, 1)
	h.s.claims.Begin()
	return p != nil
}

// InputsAhead returns how many bytes of inputs the runs have that wait for a slot.
func (h *HeldSession) InputsAhead() (bytes int) {
	h.s.lock()
	defer h.s.unlock()
	for _, e := range h.s.slots.waiting {
		bytes += len(e.Input)
	}
	return bytes
}

// Reached makes the claims begin in d from now.
func (h *HeldSession) Reached(d time.Duration) {
	reached := map[store.Pair]time.Time{}
	plan := store.ClaimRequest{Types: h.s.cfg.Types}
	for _, pair := range plan.Pairs() {
		reached[pair] = h.s.Now().Add(d)
	}
	h.answer(0, 0, reached)
}

// Refresh asks the table about runs that the session executes, as its refresh loop does for a notification.
func (h *HeldSession) Refresh(ids ...uuid.UUID) {
	var held []store.HeldRun
	for _, id := range ids {
		if e := h.s.of(id); e != nil {
			held = append(held, e.lease())
		}
	}
	h.s.readStates(held)
}

// Flush writes the enqueued writes of the executions, together.
func (h *HeldSession) Flush(all ...HeldExecution) {
	var hs []*held
	for _, x := range all {
		hs = append(hs, x.h)
	}
	h.s.writes.flush(hs)
}

// Executes reports whether the session executes anything.
func (h *HeldSession) Executes() bool { return len(h.s.held()) > 0 }

// WaitForBatches returns when the session's batchers are empty.
func (h *HeldSession) WaitForBatches() {
	h.s.writes.writer.Wait()
	h.s.writes.retries.Wait()
}

// Run returns the run's ID.
func (x HeldExecution) Run() string { return x.h.RunID.String() }

// Superseded reports whether the session has claimed the execution's run again.
func (x HeldExecution) Superseded() bool {
	return x.h.by.(*Session).of(x.h.RunID) != x.h
}

// Writes returns how many enqueued writes of the execution are not settled.
func (x HeldExecution) Writes() int { return len(x.h.Unsettled()) }

// Records returns how many of the writes record the end of a step, or start a child. The others suspend a waiting run,
// or show a step that takes long.
func (x HeldExecution) Records() (records int) {
	for _, r := range x.h.Unsettled() {
		if r != nil && (r.Start != nil || r.Status != store.Running) {
			records++
		}
	}
	return records
}

// BeginsWith returns the status in the record of the first write.
func (x HeldExecution) BeginsWith() string { return x.h.Unsettled()[0].Status }

// ClaimUnanswered claims, discards the answer, and resolves the claim once. It returns how many runs were claimed, and
// whether any of them could not be yielded.
func ClaimUnanswered(ctx context.Context, s *Session, n int) (claimed int, locked bool, err error) {
	req := store.ClaimRequest{
		Queue: s.Queues()[0], Types: s.cfg.Types, Limit: n, Worker: s.ID(), Lease: uuid.New(),
		LeaseTimeout: s.cfg.LeaseTimeout,
	}
	claimed = len(s.sender.claimRuns(ctx, req).Runs)
	_, err = s.sender.disownClaimed(lastResolve, req)
	s.unfinished.Wait()
	s.lock()
	defer s.unlock()
	return claimed, len(s.orphans.runs) > 0, err
}
