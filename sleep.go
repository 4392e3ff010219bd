package kagzi

import (
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
)

// Sleep returns when d has passed, in whatever process. Meanwhile the run holds no goroutine, slot or connection,
// unless d is short or another branch is executing. It returns an error only if the call is wrong or the branch was
// cancelled. It returns at once if d is zero or negative. A sleep of more than a hundred years lasts a hundred years.
func Sleep(ctx Context, name string, d time.Duration) error {
	d = min(max(d, 0), duration.Longest)
	return sleep(ctx, name, duration.Check("duration", d), func(time.Time) time.Duration { return d })
}

// SleepUntil returns once t has passed, by the database's clock, or after a hundred years. The zero time is refused.
// Otherwise it is like [Sleep].
func SleepUntil(ctx Context, name string, t time.Time) error {
	var invalid error
	if t.IsZero() {
		invalid = errors.New("kagzi: the time is zero: give the time to sleep until")
	}
	return sleep(ctx, name, invalid, func(now time.Time) time.Duration {
		return min(max(t.Sub(now), 0), duration.Longest)
	})
}

// sleep waits for the duration that length returns for the database's time when the sleep begins. invalid is the error
// of a wrong argument, or nil.
func sleep(ctx Context, name string, invalid error, length func(now time.Time) time.Duration) error {
	b, _, err := branchOf(ctx)
	if err != nil {
		return err
	}
	return b.Sleep(replay.SleepSpec{
		Name: name, BadName: valid.StepName("sleep", name), Invalid: invalid,
		Length: length,
	})
}

// Patched reports whether this run takes the new code path at a place where the code of a version was changed: true
// unless the run passed this place before, in the old code.
//
//	if kagzi.Patched(ctx, "check-stock") {
//		… // new runs
//	} // else as it was
//
// It decides by the records behind this place on this branch: docs/versions.md says which count. The answer is recorded
// under change, for every replay, attempt and further call on the branch. Other branches decide for themselves.
//
// The rules of [Step]'s names apply to change; a step may have the same name. A wrong call fails the run for good with
// [kind.BadRequest]; Patched panics if the Context is nil.
func Patched(ctx Context, change string) bool {
	b, _, err := branchOf(ctx)
	if err != nil {
		panic(err) // there is no run to fail
	}
	return b.Patched(change, valid.StepName("change", change))
}
