package claims

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A tenants is several policies that share a room. Each has a queue from which a claim is due, unless it rests.
type tenants struct {
	t      *testing.T
	room   *Room
	at     time.Time
	policy map[string]*Policy
	woken  map[string]bool
}

func newTenants(t *testing.T, slots int, names ...string) *tenants {
	s := &tenants{t: t, room: NewRoom(slots), at: start, policy: map[string]*Policy{}, woken: map[string]bool{}}
	for _, name := range names {
		s.policy[name] = New(Config{Slots: slots, Room: s.room, Wake: func() { s.woken[name] = true }})
	}
	return s
}

// borrows lets the policies ask for slots, and returns what each has then: "a:3 b-" if b waits for a turn.
func (s *tenants) borrows(names ...string) string {
	var out []string
	for _, name := range names {
		p := s.policy[name]
		delete(s.woken, name)
		if p.slots.borrow(p.cfg.Slots, s.at) {
			out = append(out, fmt.Sprintf("%s:%d", name, p.slots.free))
		} else {
			out = append(out, name+"-")
		}
	}
	return strings.Join(out, " ")
}

// begins lets n runs of the policy begin, and ends lets them end.
func (s *tenants) begins(name string, n int) {
	p := s.policy[name]
	p.slots.waiting += n
	for range n {
		if !p.Begin() {
			s.t.Fatalf("%s has no slot for a run", name)
		}
	}
}

func (s *tenants) ends(name string, n int) {
	for range n {
		s.policy[name].Free("")
	}
}

func (s *tenants) want(got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s, want %s", got, want)
	}
}

func (s *tenants) wantFree(n int) {
	s.t.Helper()
	if got := s.room.unused(); got != n {
		s.t.Errorf("%d slots are free, want %d", got, n)
	}
}

// One policy alone has all slots, as one with slots of its own.
func TestRoomOfOne(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 10, "a")
	s.want(s.borrows("a"), "a:10")
	s.begins("a", 10)
	s.want(s.borrows("a"), "a:0")
	s.ends("a", 4)
	s.at = s.at.Add(time.Minute)
	s.want(s.borrows("a"), "a:4")
	s.policy["a"].slots.rest(s.at)
	s.wantFree(4)
	s.ends("a", 6)
	s.wantFree(10)
}

// While others wait, a turn has its share, and ends after a while. Those that wait are woken once they can begin.
func TestTurnsOfARoom(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 10, "a", "b", "c", "d")
	s.want(s.borrows("a"), "a:10")
	s.begins("a", 10)
	s.want(s.borrows("b", "c", "d"), "b- c- d-")
	s.ends("a", 1) // in its turn it keeps the slot
	s.want(s.borrows("b"), "b-")
	s.at = s.at.Add(turnTime)
	s.want(s.borrows("a"), "a-") // but it is next, because a fresh one had the last turn
	if !s.woken["a"] || !s.woken["b"] || s.woken["c"] {
		t.Errorf("woken: %v, want a and b", s.woken)
	}
	s.want(s.borrows("b", "c"), "b:1 c-") // no slot is free for c
	s.ends("a", 9)
	s.want(s.borrows("b", "c", "a", "d"), "b:5 c- a:5 d-")
	s.policy["b"].slots.rest(s.at)
	s.want(s.borrows("d", "c"), "d- c:5")
}

// A policy without work for a while comes before those with backlogs, until such policies have taken as much time as a
// turn.
func TestFreshBeforeBacklogs(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 1, "a", "b", "c", "d", "e") // so there is one turn at a time
	s.want(s.borrows("a", "b"), "a:1 b-")
	s.at = s.at.Add(turnTime)
	s.want(s.borrows("a", "b"), "a- b-") // a fresh one had the last turn
	s.want(s.borrows("a"), "a:1")
	s.at = s.at.Add(turnTime)
	s.want(s.borrows("a", "b"), "a- b:1")
	for _, light := range []string{"c", "d"} {
		s.want(s.borrows(light), light+"-")
		s.policy["b"].slots.rest(s.at)
		s.want(s.borrows("a", light), "a- "+light+":1")
		s.at = s.at.Add(turnTime / 2)
		s.want(s.borrows("b"), "b-")
		s.policy[light].slots.rest(s.at)
		if light == "c" {
			s.want(s.borrows("a", "b"), "a- b:1")
		}
	}
	s.want(s.borrows("b", "a"), "b- a:1") // fresh ones have had the time of a turn
}

// A policy that ends gives back what it has, and lets the next one begin.
func TestCloseOfAPolicyInARoom(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 3, "a", "b")
	s.want(s.borrows("a"), "a:3")
	s.begins("a", 2)
	s.want(s.borrows("b"), "b-")
	s.policy["a"].Close(s.at)
	s.wantFree(3)
	if !s.woken["b"] {
		t.Error("b was not woken")
	}
	s.want(s.borrows("b"), "b:3")
	s.ends("a", 2) // of runs that do not count any more
	s.policy["b"].Close(s.at)
	s.wantFree(3)
}

// A run that begins without a claim takes a slot only if no other policy waits for one.
func TestReservationsInARoom(t *testing.T) {
	t.Parallel()
	s := newTenants(t, 1, "a", "b", "c")
	if !s.policy["a"].slots.borrowOne() {
		t.Fatal("no slot for a")
	}
	s.policy["a"].slots.free--
	s.want(s.borrows("b"), "b-")
	s.ends("a", 1)
	if s.policy["c"].slots.borrowOne() {
		t.Error("c overtook b")
	}
	s.want(s.borrows("b"), "b:1")
}
