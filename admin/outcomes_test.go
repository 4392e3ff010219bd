package admin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// Intervals that are too short, too long or too many are refused before the database is asked.
func TestOutcomesOfWrongIntervals(t *testing.T) {
	k := kit.New(t)
	for name, c := range map[string]struct {
		length time.Duration
		n      int
	}{
		"a negative length": {-time.Hour, 1}, "no length": {0, 1}, "a second": {time.Second, 1},
		"two years": {732 * 24 * time.Hour, 1}, "none": {time.Hour, 0}, "negative": {time.Hour, -1},
		"too many": {time.Hour, 101},
	} {
		out, err := admin.New(k.Client).Outcomes(k.Ctx, c.length, c.n)
		if !errors.Is(err, kind.BadRequest) || out.Intervals != nil {
			t.Errorf("%s: %d intervals, %v", name, len(out.Intervals), err)
		}
	}
	out, err := admin.New(k.Client).Outcomes(k.Ctx, time.Minute, 100)
	if err != nil || len(out.Intervals) != 100 || !out.KeptSince.IsZero() {
		t.Fatalf("%d intervals of a minute, kept since %v, %v", len(out.Intervals), out.KeptSince, err)
	}
	for i, o := range out.Intervals {
		if o.Until.Sub(o.From) != time.Minute || i > 0 && o.From != out.Intervals[i-1].Until ||
			o.Started() != (admin.Tally{}) {
			t.Errorf("interval %d: %+v", i, o)
		}
	}
}

// A sum of which one part may be larger may be larger.
func TestTalliesAddUp(t *testing.T) {
	t.Parallel()
	some, more := admin.Tally{Runs: 2}, admin.Tally{Runs: 20_000, More: true}
	if got := (admin.Outcome{Completed: more, Failed: some, Active: some}).Started(); got != (admin.Tally{
		Runs: 20_004,
		More: true,
	}) {
		t.Errorf("started %+v", got)
	}
	if got := some.Plus(some); got != (admin.Tally{Runs: 4}) {
		t.Errorf("two and two are %+v", got)
	}
}
