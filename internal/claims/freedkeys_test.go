package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// The next claim from a queue looks at its freed keys. After a claim without an answer, and for keys that other claims
// had locked, the one after it does.
func TestFreedKeys(t *testing.T) {
	t.Parallel()
	group := store.FreedKey{Key: store.Key{Name: "a", Group: true}}
	for name, tt := range map[string]struct {
		answer *store.Claim
		want   []store.FreedKey // by the claim after it
	}{
		"answered":   {&store.Claim{Now: start, Reached: reached(start)}, nil},
		"unanswered": {nil, []store.FreedKey{a, group}},
		"failed":     {&store.Claim{}, []store.FreedKey{a, group}},
		"lost":       {&store.Claim{Now: start}, []store.FreedKey{a, group}},
		"locked": {
			&store.Claim{Now: start, Reached: reached(start), Keys: store.Keys{Busy: []store.FreedKey{group}}},
			[]store.FreedKey{group},
		},
		"only": {&store.Claim{Now: start, Keys: store.Keys{Only: true}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := settled(t)
			for _, key := range []store.FreedKey{a, group, a} {
				p.KeyFreed("q", key, true, start)
			}
			p.KeyFreed("other", a, true, start)
			claim := plan(t, p, 0)
			if got := claim.Request.Keys.Freed; len(got) != 2 {
				t.Errorf("the claim looks at %v", got)
			}
			if tt.answer == nil {
				p.Unanswered(claim, start)
				p.Ended(claim, 0, start)
			} else {
				end(p, claim, *tt.answer, 0, 0)
			}
			left := p.TakeFreed()
			slices.SortFunc(left["q"], func(x, y store.FreedKey) int {
				return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
			})
			if !slices.Equal(left["q"], tt.want) || len(left["other"]) != 1 || p.AnyFreed() {
				t.Errorf("%v are left, want %v, and the other queue's", left, tt.want)
			}
		})
	}
}

// Keys of which no claim has come for long are left to other workers, and those of a queue from which this worker does
// not claim at once.
func TestKeysAreLeft(t *testing.T) {
	t.Parallel()
	p := settled(t)
	if next, leave := p.KeyFreed("q", a, true, start); !next || leave {
		t.Errorf("next %t, leave %t", next, leave)
	}
	for name, free := range map[string]func() (next, leave bool){
		"another queue": func() (next, leave bool) { return p.KeyFreed("other", a, true, start) },
		"a drain":       func() (next, leave bool) { return p.KeyFreed("q", b, false, start) },
	} {
		if next, leave := free(); next || !leave {
			t.Errorf("%s: next %t, leave %t", name, next, leave)
		}
	}
	late := start.Add(2 * longestFreed)
	if p.FreedOverdue(start) || !p.FreedOverdue(late) {
		t.Error("keys are overdue at once, or never")
	}
	for queue, keys := range p.TakeFreed() {
		p.KeepFreed(queue, keys, late)
	}
	if p.FreedOverdue(late) || !p.AnyFreed() {
		t.Error("keys are overdue, although they were taken since")
	}
	p.queues[0].keys.limited = true
	if next, _ := p.KeyFreed("q", store.FreedKey{}, true, late); !next {
		t.Error("a limited queue's slot was freed, and no claim looks")
	}
}

// A claim for freed keys alone leaves out the rest, unless it has to count for the queue, or something else is due.
func TestClaimForFreedKeysOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*queue)
		took   time.Duration // by full claims
		only   bool
	}{
		"freed":             {func(*queue) {}, time.Second, true},
		"a full claim":      {func(*queue) {}, 0, false},
		"a hint":            {func(q *queue) { q.hint() }, time.Second, false},
		"the next claim":    {func(q *queue) { q.next = start }, time.Second, false},
		"a limited queue":   {func(q *queue) { q.keys.limited = true }, time.Second, false},
		"both wait":         {func(q *queue) { q.keys.both = true }, time.Second, false},
		"a rewind answered": {func(q *queue) { q.cursor.rewind = &rewind{answered: true} }, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := settled(t)
			p.queues[0].cursor.took = tt.took
			p.queues[0].next = start.Add(poll)
			p.DueAt("q", start.Add(2*time.Minute))
			p.KeyFreed("q", a, true, start)
			tt.change(p.queues[0])
			claim := plan(t, p, 0)
			keys := claim.Request.Keys
			if keys == nil || keys.Only != tt.only || tt.only && keys.Plain != 0 {
				t.Errorf("keys %+v, want only %t", keys, tt.only)
			}
			if q := p.queues[0]; (q.keys.limited || q.keys.both) && claim.Request.Since == nil {
				t.Error("the claim searches from the front")
			}
			if known := !p.queues[0].knownDue.IsZero(); known != tt.only {
				t.Errorf("the claim leaves known runs to the next: %t", known)
			}
			if !tt.only {
				return
			}
			end(p, claim, store.Claim{Now: start, Keys: store.Keys{Only: true}}, 0, 0)
			if wait := p.Plan(at(0), false).Wait; wait != poll {
				t.Errorf("the next claim comes in %v, want %v as without this one", wait, poll)
			}
		})
	}
}
