package gantt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

// runAt returns the ID of a run that was started then.
func runAt(d time.Duration) kagzi.RunID {
	hex := fmt.Sprintf("%012x", at(d).UnixMilli())
	return kagzi.RunID(hex[:8] + "-" + hex[8:] + "-7000-8000-000000000000")
}

// compensation makes one that was registered then. Its run is under way from the second time to the third.
func compensation(step string, registered, from, to time.Duration, status kagzi.Status) kagzi.StepAttempt {
	a := kagzi.StepAttempt{
		Step: step + "#compensation", Type: "COMPENSATION", Attempt: 1, Status: status, StartedAt: at(registered),
	}
	if from > 0 {
		a.Child = runAt(from)
	}
	if to > 0 {
		a.EndedAt = at(to)
	}
	return a
}

// A compensation is under way as long as its run, however long ago it was registered.
func TestCompensationsBeginWithTheirRuns(t *testing.T) {
	now := at(9 * time.Hour)
	never := compensation("a", time.Second, 0, 0, kagzi.StatusPending)
	odd := compensation("a", time.Second, 5*time.Hour, 0, kagzi.StatusRunning)
	odd.Child = "no UUID at all"
	other := compensation("a", time.Second, 5*time.Hour, 0, kagzi.StatusRunning)
	other.Child = "01987654-0000-4000-8000-000000000000" // without a time
	early := compensation("a", 6*time.Hour, 5*time.Hour, 7*time.Hour, kagzi.StatusCompleted)
	for name, c := range map[string]struct {
		a    kagzi.StepAttempt
		want Span
	}{
		"registered": {never, Span{}}, "no time": {odd, Span{}}, "another version": {other, Span{}},
		"no compensation": {attempt("a", 1, 0, time.Hour, kagzi.StatusCompleted), Span{}},
		"under way": {
			compensation("a", time.Second, 5*time.Hour, 0, kagzi.StatusRunning),
			Span{at(5 * time.Hour), now},
		},
		"over": {
			compensation("a", time.Second, 5*time.Hour, 6*time.Hour, kagzi.StatusFailed),
			span(5*time.Hour, 6*time.Hour),
		},
		"a clock that is behind": {early, span(6*time.Hour, 7*time.Hour)},
	} {
		if got := Undoing(c.a, now); got != c.want {
			t.Errorf("%s: from %v to %v", name, got.From, got.To)
		}
	}
}

// The compensations stand in the order in which they run; those that are not needed are left out.
func TestCompensationsAreInTheirOrder(t *testing.T) {
	gone := compensation("gone", 6*time.Second, 0, time.Hour, kagzi.StatusCancelled)
	steps := Steps([]kagzi.StepAttempt{
		attempt("flight", 1, 0, time.Second, kagzi.StatusCompleted),
		compensation("flight", time.Second, 0, 0, kagzi.StatusPending),
		compensation("hotel", 2*time.Second, 0, 0, kagzi.StatusPending),
		compensation("car", 3*time.Second, 5*time.Hour+time.Second, 0, kagzi.StatusRunning),
		compensation("seat", 4*time.Second, 5*time.Hour, 5*time.Hour+time.Second, kagzi.StatusCompleted),
		gone,
	})
	var got []string
	for _, s := range Undo(steps, at(6*time.Hour)) {
		got = append(got, strings.TrimSuffix(s.Name, "#compensation"))
	}
	if got := strings.Join(got, " "); got != "seat car hotel flight" {
		t.Errorf("they run as %s", got)
	}
	if from := UndoneFrom(steps); from != at(5*time.Hour) {
		t.Errorf("they began at %v", from)
	}
	if from := UndoneFrom(steps[:2]); !from.IsZero() {
		t.Errorf("without a run they began at %v", from)
	}
}
