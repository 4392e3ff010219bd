package replay

import (
	"cmp"
	"encoding/json"
	"runtime"
	"strconv"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// patchID precedes a change's name in the ID of its record. Names of steps and branches do not contain '#'.
const patchID = "#patched:"

// Patched reports whether this run takes the new code path at a change. badName is why the change's name is invalid, or
// nil. See doc_replay.go.
func (b *Branch) Patched(change string, badName error) bool {
	defer b.operate().done()
	if !b.owned() {
		b.e.fail(failure.BadRequest(failure.Wrap(b.foreign(), "Patched %s", text.Quote(change))))
		return false // the engine must not exit a goroutine that is not its own
	}
	b.e.exitIfStopped()
	if badName = cmp.Or(badName, checkPath(b.prefix+change)); badName != nil {
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
	if row := b.recordOf(id); row != nil {
		if err := json.Unmarshal(row.Output, &answer); err != nil || row.Kind != store.KindMarker {
			b.e.nondeterministic(id, "the record of Patched %q is unreadable: %s %.60q", id, row.Kind, row.Output)
		}
		return answer
	}
	if !b.e.beginsNew() { // the run is over: an answer true would be recorded
		return false
	}
	answer = b.reached >= b.own
	if b.ctx.Err() != nil || b.hasLost() || b.closed {
		return answer
	}
	r := b.newRecord(id, store.KindMarker, store.Completed, 1, 1)
	r.Output = strconv.AppendBool(nil, answer)
	if !answer {
		r.EndedAt = b.now // so that a fork from a later step copies it
		b.deferRecord(r)  // without the record, the history gives the same answer
		return false
	}
	_ = b.begins()
	// No later step may be recorded before the answer true: a replay that found the steps without the answer would take
	// the old path. If the lease is lost, record exits the goroutine.
	b.record(r)
	b.e.exitIfStopped()
	return true
}
