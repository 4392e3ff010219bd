package claims

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// What a claim finds decides when the next one comes, and whether a run may begin without a claim until then.
func TestNextClaimAfterAnAnswer(t *testing.T) {
	t.Parallel()
	past, soon := at(-time.Second).Database, at(3*time.Second).Database
	full := store.Claim{Now: start, Runs: runs(10), Reached: reached(start)}
	few := store.Claim{Now: start, Runs: runs(2), Reached: reached(start)}
	next, overdue, keyed, limited := nothing(0), nothing(0), nothing(0), nothing(0)
	next.Next, overdue.Next, keyed.Keys.Next, limited.Limited = soon, past, past, true
	for name, tt := range map[string]struct {
		claim    store.Claim
		state    state
		from, to time.Duration
		polls    bool
	}{
		"nothing is due":           {nothing(0), idle, poll, poll, true},
		"some runs":                {few, idle, poll, poll, true},
		"as many as were asked":    {full, backlog, 0, 0, false},
		"the next run is due":      {next, idle, 3 * time.Second, 3*time.Second + time.Millisecond, false},
		"the next is due by now":   {overdue, idle, 0, time.Millisecond, false},
		"a key is due":             {keyed, backlog, 0, 0, false},
		"the queue has limits":     {limited, backlog, 0, 0, false},
		"the answer was lost":      {store.Claim{Now: start, Runs: runs(1)}, backlog, 0, 0, false},
		"the claim has failed":     {store.Claim{}, backlog, failure, 2 * failure, false},
		"the clock is not to move": {store.Claim{Now: start}, backlog, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicy("q")
			end(p, plan(t, p, 0), tt.claim, 0, 0)
			q := p.queues[0]
			wait := q.next.Sub(start)
			if q.state != tt.state || wait < tt.from || wait > tt.to || q.polls != tt.polls {
				t.Errorf("state %d, the next claim in %v, polls %t; want %d, %v to %v, %t", q.state, wait, q.polls,
					tt.state, tt.from, tt.to, tt.polls)
			}
			if got, want := p.Drained(start), tt.state.drained(); got != want {
				t.Errorf("drained: %t, want %t", got, want)
			}
		})
	}
}

// A hint, or a freed key, makes the next claim come at once, also one that comes while a claim is under way. Until then
// no run begins without a claim.
func TestStatesOfAQueue(t *testing.T) {
	t.Parallel()
	hint := func(p *Policy) { p.Hint("q") }
	hintAll := func(p *Policy) { p.HintAll() }
	other := func(p *Policy) { p.Hint("other") }
	free := func(p *Policy) { p.KeyFreed("q", a, true, start) }
	drains := func(p *Policy) { p.KeyFreed("q", a, false, start) }
	unkeyed := func(p *Policy) { p.KeyFreed("q", store.FreedKey{}, true, start) }
	due := func(p *Policy) { p.DueAt("q", start) }
	soon := func(p *Policy) { p.DueAt("q", start.Add(2*time.Second)) }
	for name, tt := range map[string]struct {
		events []func(*Policy)
		state  state
	}{
		"nothing":                     {nil, idle},
		"hint":                        {[]func(*Policy){hint}, hinted},
		"hint for all":                {[]func(*Policy){hintAll}, hinted},
		"hint for another":            {[]func(*Policy){other}, idle},
		"freed key":                   {[]func(*Policy){free}, freed},
		"freed key of a drain":        {[]func(*Policy){drains}, idle},
		"slot of a run without a key": {[]func(*Policy){unkeyed}, idle},
		"freed key and hint":          {[]func(*Policy){free, hint}, hinted},
		"hint and freed key":          {[]func(*Policy){hint, free}, hinted},
		"a run that is due later":     {[]func(*Policy){soon}, idle},
		"a hint, and such a run":      {[]func(*Policy){hint, soon, due}, hinted},
	} {
		for _, during := range []bool{false, true} {
			p := newPolicy("q")
			claim := plan(t, p, 0)
			if during {
				apply(p, tt.events)
			}
			end(p, claim, nothing(0), 0, 0)
			if !during {
				apply(p, tt.events)
			}
			if got := p.queues[0].state; got != tt.state {
				t.Errorf("%s, during a claim %t: state %d, want %d", name, during, got, tt.state)
			}
			at := at(time.Second)
			if tt.state == idle != p.Drained(at.Now) || tt.state == idle != (p.Plan(at, false).Wait > 0) {
				t.Errorf("%s, during a claim %t: a claim is due or not, want the contrary", name, during)
			}
		}
	}
}

func apply(p *Policy, events []func(*Policy)) {
	for _, event := range events {
		event(p)
	}
}

// A run that this process has suspended or started is claimed when it is due. It may not be in the answer to a claim
// that was under way.
func TestRunThatIsKnownToBeDue(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		p := newPolicy("q")
		claim := plan(t, p, 0)
		if !during {
			end(p, claim, nothing(0), 0, 0)
		}
		for _, after := range []time.Duration{2 * time.Second, time.Second, time.Hour} {
			claims, sooner := p.DueAt("q", start.Add(after))
			if want := !during && after != time.Hour; !claims || !during && sooner != want {
				t.Errorf("after %v: the worker claims %t, sooner than before %t, want %t", after, claims, sooner, want)
			}
		}
		if during {
			end(p, claim, nothing(0), 0, 0)
		}
		if wait := p.Plan(at(0), false).Wait; wait != time.Second {
			t.Errorf("during a claim %t: the next claim comes in %v, want a second", during, wait)
		}
		p.Idle(nil, start)
		if !p.Plan(at(time.Second), false).Claims {
			t.Errorf("during a claim %t: no claim when the run is due", during)
		}
		if claims, _ := p.DueAt("other", start); claims {
			t.Error("the worker claims from a queue that it does not have")
		}
	}
}

// A worker does not poll while it hears that its queue is idle, and polls PollInterval after it last heard so, or when
// a run is due that it has suspended since.
func TestLedPoll(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	for name, tt := range map[string]struct {
		interval, suspended time.Duration
		busy                []string
		next                store.Claim
		want                time.Duration
	}{
		"idle":                 {interval, 0, []string{"other"}, nothing(0), interval},
		"busy":                 {interval, 0, []string{"other", "q"}, nothing(0), 0},
		"an interval too long": {time.Minute, 0, nil, nothing(0), 0},
		"suspended":            {interval, interval + time.Second, nil, nothing(0), time.Second},
		"known to be due": {interval, 0, nil, func() store.Claim {
			claim := nothing(0)
			claim.Next = start.Add(time.Second)
			return claim
		}(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicy("q")
			p.cfg.PollInterval = tt.interval
			end(p, plan(t, p, 0), tt.next, 0, 0)
			if tt.suspended > 0 {
				p.DueAt("q", start.Add(tt.suspended))
			}
			now := at(tt.interval)
			p.Idle(tt.busy, now.Now)
			if got := p.Plan(now, false); got.Wait != tt.want || got.Claims != (tt.want == 0) {
				t.Errorf("the poll is put off by %v, want %v", got.Wait, tt.want)
			}
		})
	}
}

// A claim takes half as many runs after one that failed, and twice as many after one that took some.
func TestSizeOfClaims(t *testing.T) {
	t.Parallel()
	p, now := newPolicy("q"), time.Duration(0)
	for i, tt := range []struct {
		claim store.Claim
		limit int
	}{
		{store.Claim{}, 10},
		{store.Claim{}, 5},
		{store.Claim{}, 2},
		{store.Claim{}, 1},
		{nothing(0), 1},
		{store.Claim{Now: start, Runs: runs(1), Reached: reached(start)}, 1},
		{nothing(0), 2},
	} {
		now += time.Hour
		claim := plan(t, p, now)
		if claim.Request.Limit != tt.limit {
			t.Errorf("claim %d is for %d runs, want %d", i, claim.Request.Limit, tt.limit)
		}
		end(p, claim, tt.claim, 0, now)
	}
}

// A worker without a free slot, or that is fenced, plans nothing until that changes.
func TestPlanWithoutSlots(t *testing.T) {
	t.Parallel()
	p := newPolicy("q")
	if got := p.Plan(at(0), true); got.Claims || got.Wait != 0 {
		t.Errorf("a fenced worker plans %+v", got)
	}
	p.Wait("q", 10)
	for p.Begin() {
		continue
	}
	if got := p.Plan(at(0), false); got.Claims || got.Wait != 0 {
		t.Errorf("without a slot the worker plans %+v", got)
	}
	p.Free("q")
	if got := plan(t, p, 0); got.Request.Limit != 1 {
		t.Errorf("with one free slot the claim is for %d runs", got.Request.Limit)
	}
}

// Keys that a claim left although they are due are announced: those of other queues, and those of its own if the line
// was no longer than the claim.
func TestAnnouncedQueues(t *testing.T) {
	t.Parallel()
	for looked, want := range map[int]int{9: 2, 10: 1} {
		p := settled(t)
		p.KeyFreed("q", a, true, start)
		claim := plan(t, p, poll)
		answer := nothing(poll)
		answer.Keys.Looked, answer.Keys.Announce = looked, []string{"q", "other"}
		if got := p.Answered(claim, &answer, 0, at(poll)); len(got) != want || got[len(got)-1] != "other" {
			t.Errorf("the claim looked at %d keys: %q are announced", looked, got)
		}
	}
}

// A request takes the lowest priority first once in sixteen times, has large inputs read later if it takes runs ahead
// of free slots, and prefers no type.
func TestRequest(t *testing.T) {
	t.Parallel()
	p, lowFirst := newPolicy("q"), 0
	for i := range 32 {
		claim := p.PlanFrom("q", 10+i%2, at(0))
		if claim.Request.LowFirst {
			lowFirst++
		}
		if ahead := claim.Request.MostInput > 0; ahead != (i%2 == 1) {
			t.Errorf("a claim of %d runs leaves out large inputs: %t", claim.Request.Limit, ahead)
		}
		end(p, &claim, nothing(0), 0, 0)
	}
	if lowFirst != 2 {
		t.Errorf("%d of 32 claims take the lowest priority first", lowFirst)
	}
}
