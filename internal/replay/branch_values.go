package replay

import (
	"runtime"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A ValueSpec describes a change of a value of the run.
type ValueSpec struct {
	Name    string
	BadName error // why Name is invalid, or nil

	// Encode fills in the value. later says that err may be over soon. It is not called for a change that the table
	// has, or whose successor it has.
	Encode func(row *store.StepRow) (later bool, err error)
}

// SetValue changes a value of the run. The change goes with the run's next write, or soon with one of its own. See
// doc_values.go.
func SetValue(b *Branch, spec ValueSpec) error {
	defer b.operate().done()
	if !b.owned() {
		return b.foreign()
	}
	b.e.exitIfStopped()
	if spec.BadName != nil {
		return b.Misuse(failure.Wrap(spec.BadName, "set value"))
	}
	id := b.prefix + store.ValueID(spec.Name)
	if err := checkPath(id); err != nil {
		return b.Misuse(err)
	}
	number := b.count(id, b.lastSet, b.pastHistory.Load())
	if number == 0 {
		return nil
	}
	if err := b.cancelled(); err != nil {
		return err
	}
	r := b.newRecord(id, store.KindValue, store.Completed, 1, 1)
	r.Sequence, r.EndedAt = number, b.afterNow(b.e.Now())
	if later, err := spec.Encode(&r.StepRow); later {
		b.e.unwritable(err)
	} else if err != nil {
		return b.Misuse(failure.Wrap(err, "set value %q", spec.Name))
	}
	return b.deferValue(r)
}

// lastSet returns the number of the last change that the history has. Another attempt of the run sets its values anew.
func (r *recorder) lastSet(id string) int64 {
	if row := r.recordOf(id); row != nil && row.RunAttempt == r.runAttempt() {
		return row.Sequence
	}
	return 0
}

// deferValue keeps the record for the run's next write.
func (r *recorder) deferValue(rec *store.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.ending.underWayLocked():
		runtime.Goexit()
	case r.isOver():
		return errBranchCancelled
	}
	r.deferLocked(rec, nil)
	return nil
}
