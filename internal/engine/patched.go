package engine

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

// Patched reports whether this run takes the new code path at a change; badName says what is wrong with the change's name.
func (b *Branch) Patched(change string, badName error) bool {
	if !b.owned() {
		b.e.fail(failure.BadRequest(failure.Wrap(b.foreign(), "Patched %s", text.Quote(change))))
		return false // whatever this goroutine is, the engine must not end it
	}
	b.e.exitIfStopped()
	if badName != nil {
		b.e.fail(failure.BadRequest(failure.Wrap(badName, "Patched")))
		runtime.Goexit()
	}
	answer, ok := b.patches[change]
	if !ok {
		answer = b.decidePatch(b.prefix + patchID + change)
		if b.patches == nil {
			b.patches = map[string]bool{}
		}
		b.patches[change] = answer
	}
	return answer
}

// decidePatch returns the recorded answer, or decides and records it.
func (b *Branch) decidePatch(id string) (answer bool) {
	if row := b.e.history[id]; row != nil {
		if err := json.Unmarshal(row.Output, &answer); err != nil || row.Kind != store.KindMarker {
			b.e.nondeterministic("the record of Patched %q is unreadable: %s %.60q", id, row.Kind, row.Output)
		}
		return answer
	}
	if !b.e.mode.begins() { // the run is over: had its code come here and said yes, that would be recorded
		return false
	}
	answer = b.reached >= b.own
	if b.ctx.Err() != nil || b.hasLost() || b.closed {
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
