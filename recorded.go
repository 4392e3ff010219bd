package kagzi

import (
	"encoding/json"

	"github.com/kagzi/kagzi/internal/failure"
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
	if err == nil || b.row == nil || !b.e.s.cfg.Errors.Classify(err).Cancelled || failure.Text(err) == b.row.Error {
		return err
	}
	f := &recordedFailure{row: b.row}
	var ids []string
	_ = json.Unmarshal(b.row.Output, &ids) // written by newFailure
	for _, id := range ids {
		row := b.e.history[id]
		if row != nil && row.Status == store.Failed && (row.Kind == store.KindFunction || row.Kind == store.KindChild) {
			f.causes = append(f.causes, b.e.s.cfg.Errors.Recorded(row, "")) // the record of a child does not say of which workflow it is
		}
	}
	if b.row.Permanent {
		return Permanent(f)
	}
	return f
}
