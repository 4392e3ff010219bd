package kagzi

import (
	"encoding/json"
	"runtime"
	"strconv"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// patchID precedes a change's name in the ID of its record. No name of a step or branch contains '#'.
const patchID = "#patched:"

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
// with [KindBadRequest]; a nil Context panics. Once the branch is cancelled nothing is recorded.
func Patched(ctx Context, change string) bool {
	b, err := branchOf(ctx)
	if err != nil {
		panic(err) // there is no run to fail
	}
	if !b.owned() {
		b.e.fail(failure.BadRequest(failure.Wrap(b.foreign(), "Patched %s", text.Quote(change))))
		return false // whatever this goroutine is, the engine must not end it
	}
	b.e.exitIfStopped()
	if err := validateStepName("change", change); err != nil {
		b.e.fail(failure.BadRequest(failure.Wrap(err, "Patched")))
		runtime.Goexit()
	}
	answer, ok := b.patches[change]
	if !ok {
		answer = b.patched(b.prefix + patchID + change)
		if b.patches == nil {
			b.patches = map[string]bool{}
		}
		b.patches[change] = answer
	}
	return answer
}

// patched returns the recorded answer, or decides and records it.
func (b *branch) patched(id string) (answer bool) {
	if row := b.e.history[id]; row != nil {
		if err := json.Unmarshal(row.Output, &answer); err != nil || row.Kind != store.KindMarker {
			b.e.nondeterministic("the record of Patched %q is unreadable: %s %.60q", id, row.Kind, row.Output)
		}
		return answer
	}
	if !b.e.mode.begins() { // the run is over: had its code come here and said yes, that would be recorded
		return false
	}
	answer = b.met >= b.own
	if b.ctx.Err() != nil || b.muted() || b.closed {
		return answer
	}
	r := b.e.newRecord(id, store.KindMarker, store.Completed, 1, 1)
	r.Output = strconv.AppendBool(nil, answer)
	if !answer {
		r.EndedAt = b.now // a fork from a step after it has it
		b.deferRecord(r)  // until it is written the history says the same
		return false
	}
	_ = b.begins()
	// What follows from true must not be recorded before it: a replay that found steps and not the answer would take the
	// run for an old one. And a run that others execute is given no answer.
	b.record(r)
	b.e.exitIfStopped()
	return true
}
