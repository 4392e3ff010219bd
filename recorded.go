package kagzi

import (
	"encoding/json"
	"errors"

	"github.com/kagzi/kagzi/store"
)

// A recordedFailure is what a branch failed with, in a replay whose code does not come to it any more: nothing begins on a
// branch that has failed, and so it stops at a step that the code has got since.
type recordedFailure struct {
	row    *store.StepRow
	causes []error
}

func (f *recordedFailure) Error() string   { return f.row.Error }
func (f *recordedFailure) Unwrap() []error { return f.causes }
func (f *recordedFailure) As(target any) bool {
	kind, ok := target.(*Kind)
	if ok {
		*kind = Kind(f.row.ErrorKind)
	}
	return ok
}

// asRecorded returns err, with which the function of the branch has ended, unless the branch has failed before and err says
// that it was stopped: then it returns the failure that is recorded, with those in its chain.
func (b *branch) asRecorded(err error) error {
	if err == nil || b.row == nil || !isCancelled(err) || errorText(err) == b.row.Error {
		return err
	}
	f := &recordedFailure{row: b.row}
	var ids []string
	_ = json.Unmarshal(b.row.Output, &ids) // written by newFailure
	for _, id := range ids {
		switch row := b.e.history[id]; {
		case row == nil || row.Status != store.Failed:
		case row.Kind == store.KindFunction:
			f.causes = append(f.causes, newStepError(row))
		case row.Kind == store.KindChild: // its record does not say of which workflow it is
			f.causes = append(f.causes, &RunError{Run: RunID(row.ChildRunID.String()), Status: childStatus(row), Kind: Kind(row.ErrorKind), Message: row.Error, step: id})
		}
	}
	if b.row.Permanent {
		return Permanent(f)
	}
	return f
}

// isCancelled reports whether err, or anything in its chain, is of KindCancelled.
func isCancelled(err error) (is bool) {
	defer func() { _ = recover() }() // a method of a user's error
	return errors.Is(err, KindCancelled)
}

// newStepError is the failure that row records.
func newStepError(row *store.StepRow) *StepError {
	return &StepError{Step: row.StepID, Attempts: row.Attempt - row.FirstAttempt + 1, Kind: Kind(row.ErrorKind), Message: row.Error, permanent: row.Permanent}
}
