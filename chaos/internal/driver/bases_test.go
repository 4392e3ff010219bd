package driver

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// In each clash one of the faults that join is under way, unless another must be alone. The plans of other servers do
// not depend on them.
func TestFaultsThatJoin(t *testing.T) {
	t.Parallel()
	all := []fault.Fault{
		{Name: "F1 kill"},
		{Name: "F7 away", Away: true},
		{Name: "F18 alone", Alone: true},
		{Name: "F28 move", Local: true, Joins: true},
		{Name: "F28 kill a mover", Local: true, Joins: true},
	}
	joins := func(i Injection) bool { return i.Fault.Joins }
	alone := func(i Injection) bool { return i.Fault.Alone }
	for seed := range uint64(50) {
		o := Options{Seed: seed, Duration: time.Minute}
		p, err := Make(o, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Clash {
			if slices.ContainsFunc(c.Faults, joins) == slices.ContainsFunc(c.Faults, alone) {
				t.Errorf("seed %d: %v", seed, c.Faults)
			}
		}
		if again, err := Make(o, all); err != nil || again.String() != p.String() {
			t.Errorf("seed %d has two plans: %v", seed, err)
		}
		o.Faults = regexp.MustCompile("F1 ")
		with, err := Make(o, all)
		without, failed := Make(o, all[:1])
		if err != nil || failed != nil || with.String() != without.String() {
			t.Errorf("seed %d: a fault that was not chosen changes the plan", seed)
		}
	}
}
