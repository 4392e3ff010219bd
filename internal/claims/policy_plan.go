package claims

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// mostInputAhead bounds the bytes of each input of a claim that takes runs ahead of free slots: there may be many. A
// larger one is read with the history, once its run has a slot.
const mostInputAhead = 64 << 10

// A Config has the settings of a Policy.
type Config struct {
	Types        []store.WorkflowVersions // that the worker can execute
	Slots        int                      // how many runs it executes at once
	PollInterval time.Duration
	FailurePause time.Duration // the pause after a claim that failed; at random up to twice as long
	Random       *rand.Rand

	Room *Room  // from which the policy borrows its slots; nil: it has Slots of its own
	Wake func() // called when a slot of Room is free for which the policy waits. It must not call the policy.
}

// A Policy decides what one worker claims next, and when. It knows the worker's queues, their keys and cursors, and its
// slots. The caller guards it.
type Policy struct {
	cfg      Config
	queues   queueList
	slots    slots
	freed    freedKeys
	claiming *queue  // the queue of the claim under way; nil: none is
	got      float64 // by the queue from which the last claim came: see queueList.claimed
}

// New returns a policy without queues.
func New(cfg Config) *Policy {
	p := &Policy{
		cfg:   cfg,
		freed: freedKeys{keys: map[string]map[store.Key]bool{}, since: map[string]time.Time{}},
	}
	if cfg.Room == nil {
		p.slots.free = cfg.Slots
	} else {
		p.slots.loan = &loan{room: cfg.Room, wake: cfg.Wake}
	}
	return p
}

// Plan returns what the worker does next. After a plan that claims, Ended is called before the next Plan. A worker that
// is fenced claims nothing.
func (p *Policy) Plan(at Moment, fenced bool) Plan {
	due, wait := p.queues.due(at.Now, p.cfg.PollInterval)
	if len(due) == 0 || fenced {
		p.slots.rest(at.Now)
	}
	switch {
	case len(due) == 0:
		return Plan{Wait: wait}
	case fenced:
		return Plan{}
	}
	p.slots.measure(at.Now)
	if !p.slots.borrow(p.cfg.Slots, at.Now) {
		return Plan{}
	}
	wanted := p.slots.wanted()
	if wanted == 0 {
		return Plan{}
	}
	q, n := due.next(wanted, p.slots.free)
	if q == nil {
		return Plan{}
	}
	return p.plan(q, n, at)
}

// PlanFrom returns the plan to claim up to n runs from the queue now. Tests use it.
func (p *Policy) PlanFrom(queue string, n int, at Moment) Plan {
	return p.plan(p.queues.named(queue), n, at)
}

// plan returns the plan to claim up to n runs from q.
func (p *Policy) plan(q *queue, n int, at Moment) Plan {
	q.claims++
	plan := Plan{
		Claims: true,
		Request: store.ClaimRequest{
			Queue: q.name, Types: p.shuffled(), Limit: n, LowFirst: q.lowFirst(), Ahead: p.cfg.PollInterval,
		},
		hinted: q.state == hinted,
	}
	req, pace := &plan.Request, p.pace()
	if q.state == hinted || q.state == freed {
		q.keys.backoff = 0
	}
	only := q.state == freed && !q.keys.limited && !q.keys.both && at.Now.Before(q.next) &&
		!q.cursor.searchesMore(at.Now, pace)
	if !only {
		plan.full, plan.Rewind = q.cursor.begin(req, at, pace)
	}
	full := plan.full || plan.Rewind
	q.keys.prepare(req, ask{
		freed: p.freed.take(q.name), full: full, hinted: plan.hinted, only: only, free: p.slots.free,
		odd: p.cfg.Random.IntN(2),
	}, at)
	if req.Keys != nil {
		if wait := q.cursor.beginKeys(req.Keys, full, at.Now, pace); wait > 0 {
			req.Ahead = min(req.Ahead, wait)
		}
	}
	q.begin(req.Keys != nil && req.Keys.Only)
	p.claiming = q
	if req.Limit > p.slots.free {
		req.MostInput = mostInputAhead
	}
	return plan
}

// shuffled returns the worker's types in random order, so that none is preferred.
func (p *Policy) shuffled() []store.WorkflowVersions {
	types := slices.Clone(p.cfg.Types)
	p.cfg.Random.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	return types
}

func (p *Policy) pace() pace { return pace{p.cfg.PollInterval, len(p.queues)} }

// Answered takes from the answer to the plan's claim what later plans need to know. took is the time from the request
// to the answer. Answered returns the queues whose workers are to be woken: keys have become due there that the claim
// did not take. Those of its own queue have heard of it before if the line was longer than the claim. An answer without
// Now is that to a claim that failed.
func (p *Policy) Answered(plan *Plan, claim *store.Claim, took time.Duration, at Moment) (announce []string) {
	q, req, failed := p.claiming, &plan.Request, claim.Now.IsZero()
	lost := claim.Reached == nil && !claim.Keys.Only // the answer, and with it when the next run is due
	if lost {
		p.Unanswered(plan, at.Now)
	}
	// a limited queue without room was not searched: what the claims have missed is left to the next one
	searched := !claim.Limited || len(claim.Reached) > 0
	if plan.full && searched && (!lost || failed) {
		q.cursor.fullEnded(took, at.Now)
	}
	if req.Keys != nil {
		q.cursor.keysEnded(req.Keys, took, at.Now, p.pace())
	}
	if failed {
		q.failed(req)
		plan.outcome = outcome{state: backlog, pause: p.cfg.FailurePause + p.random(p.cfg.FailurePause)}
		return nil
	}
	if len(claim.Runs) > 0 {
		q.most = min(2*q.most, MostClaimed)
	}
	if lost {
		return nil
	}
	p.slots.claimed(took)
	q.cursor.advance(claim.Reached)
	a := answer{Plan: plan, claim: claim, at: at, wait: req.Ahead, spread: p.random(time.Millisecond)}
	if !claim.Next.IsZero() {
		// The estimate lags behind the database's clock, so the run is due by then.
		a.wait = min(a.wait, max(claim.Next.Sub(at.Database), 0)+a.spread)
	}
	plan.outcome = q.answered(a, p.cfg.PollInterval)
	p.freed.add(req.Queue, at.Now, claim.Keys.Busy...)
	for _, name := range claim.Keys.Announce {
		if name != req.Queue || claim.Keys.Looked < req.Keys.Keyed {
			announce = append(announce, name)
		}
	}
	return announce
}

// random returns a random time below d.
func (p *Policy) random(d time.Duration) time.Duration {
	return time.Duration(p.cfg.Random.Int64N(int64(d)))
}

// Unanswered notes that the plan's claim got no answer: the next one looks at the freed keys at which this one may not
// have looked.
func (p *Policy) Unanswered(plan *Plan, now time.Time) {
	if plan.Request.Keys != nil {
		p.freed.add(plan.Request.Queue, now, plan.Request.Keys.Freed...)
	}
}

// Ended ends the plan's claim, which took n runs. The worker has them by now: they wait for slots, or have them. Ended
// returns the pause before the next claim from the queue if no hint comes.
func (p *Policy) Ended(plan *Plan, n int, now time.Time) (pause time.Duration) {
	q := p.claiming
	var due queueList
	if n == 0 {
		due, _ = p.queues.due(now, p.cfg.PollInterval)
	}
	p.got = p.queues.claimed(q, n, p.got, due)
	q.end(plan.outcome, now)
	p.claiming = nil
	return plan.outcome.pause
}

// Rewound takes what a rewind has found, which took so long: for each pair, when the first run became due that the
// claims have missed. The next claim begins there, and comes now if there is any.
func (p *Policy) Rewound(queue string, missed map[store.Pair]time.Time, took time.Duration) {
	q := p.queues.named(queue)
	if q == nil || q.cursor.rewind == nil {
		return
	}
	*q.cursor.rewind = rewind{answered: true, missed: missed, took: took}
	if len(missed) > 0 {
		q.hint()
	}
}
