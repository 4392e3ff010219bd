package claims

import (
	"testing"
	"time"
)

// A policy that has its share while others wait is not woken by its own call, again and again, because a slot is free
// that it may not take.
func TestPolicyWithItsShareDoesNotSpin(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 10, "a", "b", "c", "d")
	s.want(s.borrows("d"), "d:10")
	s.begins("d", 3)
	s.policy["d"].slots.rest(s.at) // d goes on with 3 runs
	s.want(s.borrows("a"), "a:7")
	s.begins("a", 7)
	s.want(s.borrows("b"), "b-")
	s.ends("d", 1)
	s.want(s.borrows("b", "c"), "b:1 c-") // b claims for a while
	s.ends("d", 1)
	s.want(s.borrows("a"), "a:0")
	for range 3 {
		s.want(s.borrows("a"), "a:0")
		if s.woken["a"] {
			t.Fatal("a was woken by its own call, and would call again at once")
		}
	}
	s.policy["c"].slots.rest(s.at) // no other waits any more
	if !s.woken["a"] {
		t.Error("a was not woken for the free slot")
	}
	s.want(s.borrows("a"), "a:1")
}

// The same if those that wait have all begun their turns.
func TestPolicyWithItsShareIsWoken(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 10, "a", "b", "d")
	s.want(s.borrows("d"), "d:10")
	s.begins("d", 8)
	s.policy["d"].slots.rest(s.at)
	s.want(s.borrows("a"), "a:2")
	s.begins("a", 2)
	s.want(s.borrows("b"), "b-")
	s.ends("d", 7)
	s.want(s.borrows("a"), "a:3") // its share
	s.begins("a", 3)
	s.want(s.borrows("a"), "a:0")
	s.policy["b"].cfg.Slots = 1
	s.want(s.borrows("b"), "b:1")
	if !s.woken["a"] {
		t.Error("a was not woken for the free slots")
	}
	s.want(s.borrows("a"), "a:3")
}

// A slot that was freed for a run which has been given back meanwhile does not stay with a policy that rests.
func TestSlotOfARunThatWasGivenBack(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 1, "a", "b")
	s.want(s.borrows("a"), "a:1")
	s.begins("a", 1)
	p := s.policy["a"]
	p.Wait("", 1) // claimed ahead
	p.slots.rest(s.at.Add(time.Millisecond))
	s.want(s.borrows("b"), "b-")
	p.Free("")     // the run ends, and before the next one begins,
	p.GiveBack("") // that has waited for too long
	if p.Begin() {
		t.Error("a run begins")
	}
	s.wantFree(1)
	if !s.woken["b"] {
		t.Error("b was not woken")
	}
}
