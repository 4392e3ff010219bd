package kagzi

import "github.com/kagzi/kagzi/internal/valid"

// Patched reports whether this run takes the new code path, where the code of a version was changed: true unless the
// run passed this place before, in the old code. It decides by the history: false if that has a record behind this
// place on this branch: of a step, sleep or child, of a [WaitSignal] that has a [Timeout] or has read its message, or
// of anything in a branch or group. A WaitSignal without a Timeout has no record until it has read its message, and a
// compensation does not count. A run that is behind this place, and has no other record there, takes the new path: use
// a [Version] if that may happen. The answer is recorded under change, and is the same in every replay and every
// attempt of the run.
//
//	if kagzi.Patched(ctx, "check-stock") {
//		… // new runs
//	} // else as it was
//
// change names one place. The rules of [Step]'s names apply to it; a step may have the same name. A further call on the
// same branch, in a loop for instance, returns the same answer. Other branches decide for themselves: to have one
// answer for several branches, call Patched before they begin.
//
// An invalid change, and a Context that belongs to another goroutine, fail the run for good with [kind.BadRequest];
// Patched panics if the Context is nil. Once the branch is cancelled, nothing is recorded.
func Patched(ctx Context, change string) bool {
	b, _, err := branchOf(ctx)
	if err != nil {
		panic(err) // there is no run to fail
	}
	return b.Patched(change, valid.StepName("change", change))
}
