package crash_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A slotChange is the state of a run after a transaction that changed it, as the audit has it.
type slotChange struct {
	Begun, At   time.Time // when the transaction began and committed, by the database's clock
	Seq         int64
	Run         string
	Queue       string
	Scope, Key  string // an empty scope is that of groups
	Status      string
	Lease       string
	Priority    int
	Slot        int
	AvailableAt time.Time
}

// A limitChange is a limit of a queue (Key is empty) or of each of its keys ("*") from a commit on.
type limitChange struct {
	At         time.Time
	Queue, Key string
	Most       int
}

// An executed is the execution of a step, by the clock of the process.
type executed struct {
	Run, Lease string
	Begin      time.Time
}

// holds reports whether the run has a slot.
func (c slotChange) holds() bool {
	return c.Slot == 1 && c.Status == "RUNNING" || c.Slot == 2 && (c.Status == "RUNNING" || c.waits())
}

func (c slotChange) waits() bool { return c.Status == "PENDING" || c.Status == "SLEEPING" }

// A taking is a change by which a run gets a slot.
type taking struct {
	slotChange
	before slotChange            // the run until then
	others map[string]slotChange // the runs when the transaction committed
}

// takings calls f with each taking, in order of the commits. Slots that are given up at the time of a taking are given
// up before.
func takings(changes []slotChange, f func(taking)) {
	slices.SortStableFunc(changes, func(a, b slotChange) int { return cmp.Compare(a.Seq, b.Seq) })
	type key struct {
		run string
		at  time.Time
	}
	last := map[key]slotChange{}
	for _, c := range changes {
		last[key{c.Run, c.At}] = c
	}
	var merged []slotChange
	for _, c := range last {
		merged = append(merged, c)
	}
	slices.SortFunc(merged, func(a, b slotChange) int {
		held := func(c slotChange) int {
			if c.holds() {
				return 1
			}
			return 0
		}
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(held(a), held(b)), cmp.Compare(a.Seq, b.Seq))
	})
	now := map[string]slotChange{}
	for _, c := range merged {
		before := now[c.Run]
		now[c.Run] = c
		if c.holds() && !before.holds() {
			f(taking{c, before, now})
		}
	}
}

// tooMany returns the takings beyond a limit. The limit is the highest one in force while the transaction was open.
func tooMany(changes []slotChange, limits []limitChange) (found []string) {
	highest := func(queue, key string, from, to time.Time) int {
		most, before := 0, 1<<30
		for _, l := range limits {
			switch {
			case l.Queue != queue || l.Key != key || l.At.After(to):
			case l.At.After(from):
				most = max(most, l.Most)
			default:
				before = l.Most // in order of time
			}
		}
		return max(most, before)
	}
	takings(changes, func(t taking) {
		check := func(what string, most int, same func(slotChange) bool) {
			n := 0
			for _, c := range t.others {
				if c.holds() && same(c) {
					n++
				}
			}
			if n > most {
				found = append(found, fmt.Sprintf("%v: run %s is the %dth of %s, of which %d may run", t.At, t.Run, n,
					what, most))
			}
		}
		check("queue "+t.Queue, highest(t.Queue, "", t.Begun, t.At), func(c slotChange) bool {
			return c.Queue == t.Queue
		})
		switch {
		case t.Key == "":
		case t.Scope == "":
			check("group "+t.Key, 1, func(c slotChange) bool { return c.Scope == "" && c.Key == t.Key })
		default:
			check("key "+t.Key+" of "+t.Queue, highest(t.Queue, "*", t.Begun, t.At), func(c slotChange) bool {
				return c.Scope == t.Scope && c.Key == t.Key
			})
		}
	})
	return found
}

// outOfOrder returns the takings of keys that are sequences, for which another run of the key was before. What was
// committed less than a second before the transaction began, the claim may have seen or not.
func outOfOrder(changes []slotChange, sequence func(slotChange) bool) (found []string) {
	takings(changes, func(t taking) {
		if !sequence(t.slotChange) {
			return
		}
		for _, c := range t.others {
			if c.Run == t.Run || c.Scope != t.Scope || c.Key != t.Key || c.holds() || !c.waits() ||
				c.AvailableAt.IsZero() || c.AvailableAt.After(t.Begun) || c.At.Add(time.Second).After(t.Begun) {
				continue
			}
			if cmp.Or(cmp.Compare(c.Priority, t.Priority), c.AvailableAt.Compare(t.before.AvailableAt),
				strings.Compare(c.Run, t.Run)) < 0 {
				found = append(found, fmt.Sprintf("%v: run %s of key %s was taken, but run %s was before it", t.At,
					t.Run, t.Key, c.Run))
			}
		}
	})
	return found
}

// tooFast returns the takings of a queue that follow another one before its rate allows that.
func tooFast(changes []slotChange, queue string, every time.Duration) (found []string) {
	var times []time.Time
	takings(changes, func(t taking) {
		if t.Queue == queue {
			times = append(times, t.Begun)
		}
	})
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		if d := times[i].Sub(times[i-1]); d < every {
			found = append(found, fmt.Sprintf("%v: a start of queue %s %v after the last one", times[i], queue, d))
		}
	}
	return found
}

// withoutSlot returns the runs that were claimed without a slot, and the executions of runs that had none. A zombie
// that executes a run that it once held is left out: see the limits of leases.
func withoutSlot(changes []slotChange, executions []executed) (found []string) {
	byRun := map[string][]slotChange{}
	for _, c := range changes {
		byRun[c.Run] = append(byRun[c.Run], c)
		if c.Status == "RUNNING" && c.Slot == 0 {
			found = append(found, fmt.Sprintf("%v: run %s of queue %s is RUNNING without a slot", c.At, c.Run, c.Queue))
		}
	}
	for _, e := range executions {
		var last slotChange
		held := false
		for _, c := range byRun[e.Run] {
			if !c.At.After(e.Begin) {
				last, held = c, held || c.Lease == e.Lease && c.holds()
			}
		}
		if !last.holds() && !held {
			found = append(found, fmt.Sprintf("%v: run %s is executed and has no slot, it is %q", e.Begin, e.Run,
				last.Status))
		}
	}
	return found
}

// The checks find what they are for.
func TestFlowChecks(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(10_000 + ms)) }
	seq := int64(0)
	change := func(ms int, run, queue, key, status string, slot int) slotChange {
		seq++
		return slotChange{
			Begun: at(ms - 1), At: at(ms), Seq: seq, Run: run, Queue: queue, Scope: queue, Key: key,
			Status: status, Lease: "lease of " + run, Priority: 2, Slot: slot, AvailableAt: at(ms),
		}
	}
	group := func(c slotChange) slotChange {
		c.Scope = ""
		return c
	}
	limits := []limitChange{{at(-100), "q", "", 2}, {at(-100), "q", "*", 1}, {at(50), "q", "", 3}}
	sequence := func(slotChange) bool { return true }
	for name, tc := range map[string]struct {
		check func() []string
		want  int
	}{
		"WithinTheLimits": {func() []string {
			return tooMany([]slotChange{
				change(1, "a", "q", "k", "RUNNING", 1), change(2, "b", "q", "l", "RUNNING", 1),
				change(3, "a", "q", "k", "SLEEPING", 0), change(3, "c", "q", "k", "RUNNING", 1),
			}, limits)
		}, 0},
		"KeyTwice": {func() []string {
			return tooMany([]slotChange{change(1, "a", "q", "k", "RUNNING", 1), change(2, "b", "q", "k", "RUNNING", 1)},
				limits)
		}, 1},
		"KeyTwiceWhileItSleeps": {func() []string {
			return tooMany([]slotChange{
				change(1, "a", "q", "k", "RUNNING", 2), change(2, "a", "q", "k", "SLEEPING", 2),
				change(3, "b", "q", "k", "RUNNING", 2),
			}, limits)
		}, 1},
		"QueueFull": {func() []string {
			return tooMany([]slotChange{
				change(1, "a", "q", "k", "RUNNING", 1), change(2, "b", "q", "l", "RUNNING", 1),
				change(3, "c", "q", "m", "RUNNING", 1),
			}, limits)
		}, 1},
		"QueueWithAHigherLimitSince": {func() []string {
			return tooMany([]slotChange{
				change(1, "a", "q", "k", "RUNNING", 1), change(2, "b", "q", "l", "RUNNING", 1),
				change(60, "c", "q", "m", "RUNNING", 1),
			}, limits)
		}, 0},
		"GroupTwice": {func() []string {
			return tooMany([]slotChange{
				group(change(1, "a", "q", "k", "RUNNING", 2)),
				group(change(2, "b", "other", "k", "RUNNING", 2)),
			}, limits)
		}, 1},
		"InOrder": {func() []string {
			return outOfOrder([]slotChange{
				change(1, "a", "q", "k", "PENDING", 0),
				change(2, "b", "q", "k", "PENDING", 0), change(2000, "a", "q", "k", "RUNNING", 2),
			}, sequence)
		}, 0},
		"OutOfOrder": {func() []string {
			return outOfOrder([]slotChange{
				change(1, "a", "q", "k", "PENDING", 0),
				change(2, "b", "q", "k", "PENDING", 0), change(2000, "b", "q", "k", "RUNNING", 2),
			}, sequence)
		}, 1},
		"OutOfOrderByALateCommit": {func() []string {
			return outOfOrder([]slotChange{
				change(1, "a", "q", "k", "PENDING", 0),
				change(2, "b", "q", "k", "PENDING", 0), change(900, "b", "q", "k", "RUNNING", 2),
			}, sequence)
		}, 0},
		"TooFast": {func() []string {
			return tooFast([]slotChange{
				change(1, "a", "q", "k", "RUNNING", 1), change(10, "b", "q", "k", "RUNNING", 1),
				change(21, "c", "q", "k", "RUNNING", 1),
			}, "q", 10*time.Millisecond)
		}, 1},
		"WithoutSlot": {func() []string {
			return withoutSlot([]slotChange{change(1, "a", "q", "k", "RUNNING", 0), change(1, "b", "q", "l", "RUNNING",
				1)}, []executed{{"a", "lease of a", at(2)}, {"b", "lease of b", at(2)}, {"b", "lease of b", at(0)}})
		}, 3},
	} {
		if got := tc.check(); len(got) != tc.want {
			t.Errorf("%s: found %q, want %d", name, got, tc.want)
		}
	}
}
