package kagzi

// Patched reports whether to take the new way at a place where the code of a version was changed: true unless the run had
// come past this place before, by the old code. It asks the history: false if that has steps or branches of this branch
// that the function has not come to yet. The answer is recorded under change, and is the same in every replay and every
// attempt of the run.
//
//	if kagzi.Patched(ctx, "check-stock") {
//		… // new runs
//	} // else as it was
//
// change names one place and is subject to the rules of [Step]'s names; it may be the same as that of a step. Called
// again on the same branch, in a loop for instance, it says the same. Another branch decides for itself: to have one answer
// for several, ask before they begin.
//
// A change that is not valid, and a Context that belongs to another goroutine, fail the run, which is then not tried again,
// with [kind.BadRequest]; a nil Context panics. Once the branch is cancelled nothing is recorded.
func Patched(ctx Context, change string) bool {
	b, _, err := branchOf(ctx)
	if err != nil {
		panic(err) // there is no run to fail
	}
	return b.Patched(change, validateStepName("change", change))
}
