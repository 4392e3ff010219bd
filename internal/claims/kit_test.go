package claims

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

const (
	poll    = time.Minute
	failure = 250 * time.Millisecond
	spread  = 300 * time.Microsecond // of answers that tests make
)

var (
	start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	types = []store.WorkflowVersions{{Type: "wf", Versions: []int{1}, Default: 1}}
	pairs = (&store.ClaimRequest{Types: types}).Pairs()
	a, b  = store.FreedKey{Key: store.Key{Name: "a"}}, store.FreedKey{Key: store.Key{Name: "b"}}
)

// at is so long after start, by both clocks.
func at(d time.Duration) Moment { return Moment{Now: start.Add(d), Database: start.Add(d)} }

// newPolicy returns the policy of a worker with ten slots and registered queues, which have the same share.
func newPolicy(queues ...string) *Policy {
	p := New(Config{
		Types: types, Slots: 10, PollInterval: poll, FailurePause: failure, Random: rand.New(rand.NewPCG(1, 2)),
	})
	shares := map[string]int{}
	for _, name := range queues {
		shares[name] = 1
	}
	p.SetQueues(shares, start)
	p.Registered(queues)
	return p
}

// nothing is the answer to a claim that found no due run, and none that will be.
func nothing(d time.Duration) store.Claim {
	return store.Claim{Now: at(d).Database, Reached: reached(at(d).Database)}
}

func reached(to time.Time) map[store.Pair]time.Time {
	all := map[store.Pair]time.Time{}
	for _, pair := range pairs {
		all[pair] = to
	}
	return all
}

func runs(n int) []*store.ClaimedRun { return make([]*store.ClaimedRun, n) }

// plan returns the plan at that time, which has to claim.
func plan(t *testing.T, p *Policy, d time.Duration) *Plan {
	t.Helper()
	plan := p.Plan(at(d), false)
	if !plan.Claims {
		t.Fatalf("after %v no claim is due for %v", d, plan.Wait)
	}
	return &plan
}

// end gives the plan's claim its answer, and ends it.
func end(p *Policy, plan *Plan, claim store.Claim, took, d time.Duration) {
	p.Answered(plan, &claim, took, at(d))
	p.Ended(plan, len(claim.Runs), at(d).Now)
}

// settled returns a policy of one queue, q, whose full claim at the start has found nothing.
func settled(t *testing.T) *Policy {
	t.Helper()
	p := newPolicy("q")
	end(p, plan(t, p, 0), nothing(0), 0, 0)
	return p
}
