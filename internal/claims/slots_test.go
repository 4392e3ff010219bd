package claims

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                 string
		free, waiting, freed int
		times                int // of Ahead, in which freed slots were freed
		want                 int
	}{
		{"nothing was executed", 10, 0, 0, 1, 10},
		{"no slot is free", 0, 0, 0, 1, 0},
		{"long runs", 1, 0, 3, 100, 1},
		{"short runs", 1, 0, 100, 1, 101},
		{"short runs for long", 1, 0, 1000, 10, 101},
		{"most wait", 0, 51, 100, 1, 0},
		{"half have begun", 0, 50, 100, 1, 50},
		{"runs that were short", 0, 50, 10, 100, 0},
	} {
		s := slots{
			free: tt.free, waiting: tt.waiting, freed: tt.freed, counted: start.Add(-Ahead * time.Duration(tt.times)),
		}
		s.measure(start)
		if got := s.wanted(); got != tt.want {
			t.Errorf("%s: claims %d runs, want %d", tt.name, got, tt.want)
		}
	}
}

// A slow server gets fewer and larger claims. One late answer changes nothing.
func TestWindow(t *testing.T) {
	t.Parallel()
	p := newPolicy("q")
	for i, tt := range []struct {
		took, window time.Duration // what a claim takes, and the window after it
		ahead        int           // of 4,000 slots that are freed in a second
	}{
		{time.Millisecond, Ahead, 100},
		{time.Minute, Ahead, 100},
		{20 * time.Millisecond, 40 * time.Millisecond, 160},
		{time.Minute, 40 * time.Millisecond, 160},
		{time.Minute, mostAhead, 400},
		{time.Millisecond, Ahead, 100},
	} {
		plan := p.PlanFrom("q", 1, at(0))
		p.Answered(&plan, &store.Claim{Now: start, Reached: map[store.Pair]time.Time{}}, tt.took, at(0))
		p.Ended(&plan, 0, start)
		p.slots.freed, p.slots.counted = 400, start
		p.slots.measure(start.Add(100 * time.Millisecond))
		if got := p.LongestWait(); got != 4*tt.window || p.slots.ahead != tt.ahead {
			t.Errorf("claim %d: %d runs may wait, for %s; want %d, and %s", i, p.slots.ahead, got, tt.ahead,
				4*tt.window)
		}
	}
}

// Runs that wait begin while slots are free, and a slot goes back to its queue's share.
func TestSlots(t *testing.T) {
	t.Parallel()
	p := newPolicy("q")
	p.Wait("q", 12)
	begun := 0
	for p.Begin() {
		begun++
	}
	if begun != 10 || p.FreeSlots() != 0 || p.Waiting() != 2 || p.Taken("q") != 12 {
		t.Errorf("%d begun, %d free, %d wait, %d taken", begun, p.FreeSlots(), p.Waiting(), p.Taken("q"))
	}
	p.GiveBack("q")
	p.Free("q")
	if p.FreeSlots() != 1 || p.Waiting() != 1 || p.Taken("q") != 10 || !p.Begin() || p.Begin() {
		t.Errorf("%d free, %d wait, %d taken", p.FreeSlots(), p.Waiting(), p.Taken("q"))
	}
	if p.slots.measure(start.Add(Ahead)); p.slots.freed != 0 {
		t.Error("freed slots are counted twice")
	}
	p.Free("q")
	p.Free("q")
	if p.slots.measure(start.Add(2 * Ahead)); p.slots.ahead != 2 {
		t.Errorf("two slots were freed, and %d runs may wait", p.slots.ahead)
	}
	if p.Free("other"); p.FreeSlots() != 3 {
		t.Error("the slot of a forgotten queue is lost")
	}
}

// A slot is kept for a run that begins without a claim only if no due run comes first.
func TestReserve(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Policy)
		want   bool
	}{
		"a free slot":          {func(*Policy) {}, true},
		"a run waits":          {func(p *Policy) { p.Wait("q", 1) }, false},
		"no slot is free":      {func(p *Policy) { p.slots.free = 0 }, false},
		"a hint came":          {func(p *Policy) { p.Hint("q") }, false},
		"a key was freed":      {func(p *Policy) { p.KeyFreed("q", a, true, start) }, false},
		"the queue has limits": {func(p *Policy) { p.queues[0].keys.limited = true }, false},
		"a claim is due":       {func(p *Policy) { p.queues[0].next = start }, false},
		"a claim is under way": {func(p *Policy) { p.PlanFrom("q", 1, at(0)) }, false},
		"the queue was left":   {func(p *Policy) { p.SetQueues(nil, start) }, false},
		"it is not registered": {func(p *Policy) { p.queues[0].registered = false }, false},
		"another queue is due": {func(p *Policy) {
			p.SetQueues(map[string]int{"q": 1, "other": 1}, start)
			p.Registered([]string{"other"})
		}, false},
		"another is not registered": {func(p *Policy) { p.SetQueues(map[string]int{"q": 1, "other": 1}, start) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := settled(t)
			tt.change(p)
			free := p.FreeSlots()
			got := p.Reserve("q", start)
			if got != tt.want || got != (p.FreeSlots() < free) {
				t.Errorf("reserved: %t, and %d slots are free of %d", got, p.FreeSlots(), free)
			}
		})
	}
}
