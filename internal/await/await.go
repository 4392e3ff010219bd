// Package await has tests wait for something that must happen soon.
package await

import (
	"testing"
	"time"
)

// Patience is how long a test waits before it fails. It only costs time when a test fails, so it is long enough for a
// machine that is thirty times slower than a developer's.
const Patience = 3 * time.Minute

// True waits until cond returns true, and fails the test if that takes longer than Patience. what says in the failure
// what the test has waited for.
func True(t testing.TB, what string, cond func() bool) {
	t.Helper()
	TrueWithin(t, Patience, what, cond)
}

// TrueWithin is True with another time than Patience.
func TrueWithin(t testing.TB, most time.Duration, what string, cond func() bool) {
	t.Helper()
	if !BecomesTrue(most, cond) {
		t.Fatalf("waited %v in vain: %s", most, what)
	}
}

// BecomesTrue reports whether cond returns true within most. It calls cond every 5 ms, or less often if cond takes
// long, so that cond runs for a tenth of the time: many tests wait at once, and the work that they wait for needs the
// processors.
func BecomesTrue(most time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	for {
		begun := time.Now()
		if cond() {
			return true
		}
		pause := time.NewTimer(min(max(5*time.Millisecond, 9*time.Since(begun)), 250*time.Millisecond))
		select {
		case <-pause.C:
		case <-deadline.C:
			pause.Stop()
			return cond()
		}
	}
}

// Receive returns the next value from ch, and fails the test if none comes within Patience.
func Receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("nothing came for %v", Patience)
		panic("unreachable")
	}
}

// Opened returns when ch is closed or has a value, or when the test is over. Code of a workflow waits with it for its
// test: a failed test lets go of what it holds, so its worker can end.
func Opened[T any](t testing.TB, ch <-chan T) {
	select {
	case <-ch:
	case <-t.Context().Done():
	}
}
