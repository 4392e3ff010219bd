package kagzi

import "github.com/kagzi/kagzi/internal/valid"

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
