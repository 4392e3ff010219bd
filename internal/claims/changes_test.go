package claims

import (
	"slices"
	"testing"

	"github.com/kagzi/kagzi/store"
)

// A queue that the worker has left is forgotten once no claim can bring a run of it any more, and the worker holds
// none.
func TestForgottenQueues(t *testing.T) {
	t.Parallel()
	none := func(string) bool { return false }
	for name, tt := range map[string]struct {
		change func(*Policy)
		holds  func(string) bool
		passed bool
		left   bool
	}{
		"at once":              {func(*Policy) {}, none, false, true},
		"later":                {func(*Policy) {}, none, true, false},
		"held":                 {func(*Policy) {}, func(queue string) bool { return queue == "q" }, true, true},
		"with a slot":          {func(p *Policy) { p.Wait("q", 1) }, none, true, true},
		"a claim is under way": {func(p *Policy) { p.PlanFrom("q", 1, at(0)) }, none, true, true},
		"a claim has ended": {func(p *Policy) {
			late := p.PlanFrom("q", 1, at(0))
			p.Ended(&late, 0, start)
		}, none, true, false},
	} {
		p := settled(t)
		if left := p.SetQueues(map[string]int{"other": 1}, start); !slices.Equal(left, []string{"q"}) {
			t.Errorf("%q are left", left)
		}
		tt.change(p)
		now := start
		if tt.passed {
			now = now.Add(store.LateClaims + 1)
		}
		p.Forget(now, tt.holds)
		active, left := p.Names()
		if !slices.Equal(active, []string{"other"}) || slices.Contains(left, "q") != tt.left {
			t.Errorf("%s: claims from %q, and has left %q", name, active, left)
		}
	}
}

// From a queue to which the worker returns it claims at once, and from a new one once that is registered.
func TestReturnToAQueue(t *testing.T) {
	t.Parallel()
	p := settled(t)
	p.SetQueues(nil, start)
	if p.Active("q") || p.Plan(at(poll), false).Wait == 0 {
		t.Error("the worker claims from a queue that it has left")
	}
	if p.SetQueues(map[string]int{"q": 3, "other": 1}, start); !p.Active("q") || !p.IsRegistered("q") {
		t.Error("the worker does not return")
	}
	claim := plan(t, p, 0)
	if claim.Request.Queue != "q" || p.queues[0].share != 3 {
		t.Errorf("it claims from %q, with the share %d", claim.Request.Queue, p.queues[0].share)
	}
	end(p, claim, nothing(0), 0, 0)
	if p.Plan(at(0), false).Claims || p.IsRegistered("other") {
		t.Error("the worker claims from a queue that is not registered")
	}
	if !p.Registered([]string{"q", "other", "third"}) || p.Registered([]string{"other"}) {
		t.Error("a queue is registered twice, or not at all")
	}
	if got := plan(t, p, 0).Request.Queue; got != "other" {
		t.Errorf("it claims from %q", got)
	}
}

// A queue with limits gets no run ahead of free slots: the run would hold a slot of the queue while it waits.
func TestLimitedQueuesTakeNothingAhead(t *testing.T) {
	t.Parallel()
	for free, want := range map[int]string{3: "limited", 0: "other"} {
		p := newPolicy("limited", "other")
		p.queues[0].keys.limited = true
		p.queues[1].got = 1
		p.slots = slots{free: free, ahead: 20, counted: start}
		if claim := plan(t, p, 0); claim.Request.Queue != want || free > 0 && claim.Request.Limit > free {
			t.Errorf("with %d free slots: %d runs of %q", free, claim.Request.Limit, claim.Request.Queue)
		}
	}
}
