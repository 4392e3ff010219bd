package kagzi

import (
	"cmp"
	"errors"
	"slices"
	"strings"

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
// that it was stopped: then it returns the failure that is recorded, with those below the branch that its text quotes.
func (b *branch) asRecorded(err error) error {
	if err == nil || b.row == nil || !isCancelled(err) || errorText(err) == b.row.Error {
		return err
	}
	f := &recordedFailure{b.row, b.quoted(b.row.Error)}
	if b.row.Permanent {
		return Permanent(f)
	}
	return f
}

// quoted returns the failures of steps and children below the branch that the text quotes, in the order of their records.
func (b *branch) quoted(text string) (causes []error) {
	var rows []*store.StepRow
	for id, row := range b.e.history {
		if strings.HasPrefix(id, b.prefix) && row.Status == store.Failed && row.WakeAt.IsZero() && !b.e.forgot(row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *store.StepRow) int { return cmp.Compare(a.Position, b.Position) })
	for _, row := range rows {
		switch row.Kind {
		case store.KindFunction:
			if err := newStepError(row); strings.Contains(text, trimKagzi(err.Error())) {
				causes = append(causes, err)
			}
		case store.KindChild: // its record does not say of which workflow it is
			if id := row.ChildRunID.String(); strings.Contains(text, id) {
				causes = append(causes, &RunError{Run: RunID(id), Status: childStatus(row), Kind: Kind(row.ErrorKind), Message: row.Error, step: row.StepID})
			}
		}
	}
	return causes
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
