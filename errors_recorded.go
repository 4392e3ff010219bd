package kagzi

import (
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/kinds"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// language makes and reads this package's errors for the engine: see replay.Errors.
type language struct{ *payloads.Coder }

func (l language) Classify(err error) failure.Class {
	after, _ := kinds.After(err)
	details, undetailed := l.Details(err)
	return failure.Class{
		Kind: KindOf(err), Permanent: kinds.IsPermanent(err), Marked: kinds.IsMarked(err), After: after,
		Cancelled: isCancelled(err),
		Cause:     causeOf(err), Details: details, Undetailed: undetailed,
	}
}

// causeOf returns which of the exported errors that refuse an operation err is, "" for none of them. It is stored.
func causeOf(err error) (cause string) {
	defer func() { _ = recover() }() // a method of a user's error
	switch {
	case errors.Is(err, store.ErrIDConflict):
		return "ID conflict"
	case errors.Is(err, ErrPayloadTooLarge):
		return "payload too large"
	}
	return ""
}

// refusedOperation is the error of row, the record of an operation that was refused.
func refusedOperation(row *store.StepRow) error {
	var causes []error
	switch string(row.Output) {
	case `"ID conflict"`:
		causes = append(causes, ErrIDConflict)
	case `"payload too large"`:
		causes = append(causes, ErrPayloadTooLarge)
	}
	err := failure.Explain(strings.TrimPrefix(row.Error, "kagzi: "), causes...)
	switch row.Kind {
	case store.KindChild:
		err = failure.Wrap(err, "child %q", row.StepID)
	case store.KindPublish:
		err = failure.Wrap(err, "publish %q", row.StepID)
	}
	return &refusal{&failure.Error{Kind: kind.Kind(row.ErrorKind), Err: err, Permanent: row.Permanent}, row.StepID}
}

// isCancelled reports whether err, or anything in its chain, is of kind.Cancelled.
func isCancelled(err error) (is bool) {
	defer func() { _ = recover() }() // a method of a user's error
	return errors.Is(err, kind.Cancelled)
}

func (language) About(err error) (id string, others []error) {
	switch err := err.(type) {
	case *StepError:
		return err.Step, nil
	case *RunError:
		return err.step, nil
	case *refusal:
		return err.step, nil
	case *BranchError:
		for _, other := range err.others {
			others = append(others, other)
		}
		return err.id, others
	}
	return "", nil
}

func (l language) Recorded(row *store.StepRow, workflow string, wrong func(error)) error {
	switch {
	case row.Kind == store.KindPublish, row.Kind == store.KindMarker, row.Kind == store.KindChild &&
		row.ChildRunID == uuid.Nil:
		return refusedOperation(row)
	case row.Kind != store.KindChild:
		attempts := row.Attempt - row.FirstAttempt + 1
		if store.IsWait(row.Kind) {
			attempts = 0 // a wait makes none
		}
		return &StepError{
			Step: row.StepID, Attempts: attempts, Kind: kind.Kind(row.ErrorKind), Message: row.Error,
			permanent: row.Permanent, details: l.DetailsOf(row.Output, wrong),
		}
	}
	status, details := store.ReadChildFailure(row.Output)
	return &RunError{
		Run: RunID(row.ChildRunID.String()), Workflow: workflow, Status: Status(status),
		Kind: kind.Kind(row.ErrorKind), Message: row.Error, step: row.StepID, details: l.DetailsOf(details, wrong),
	}
}

// A refusal is the recorded error of an operation that was refused.
type refusal struct {
	error
	step string
}

func (e *refusal) Unwrap() error { return e.error }

func (language) RecordedBranch(row *store.StepRow, causes []error) error {
	f := &recordedFailure{row, causes}
	if row.Permanent {
		return Permanent(f)
	}
	return f
}

// A recordedFailure is the failure of a branch in a replay that no longer reaches it: nothing begins on a branch that
// has failed, so the branch stops at a step that was added to the code since.
type recordedFailure struct {
	row    *store.StepRow
	causes []error
}

func (f *recordedFailure) Error() string   { return f.row.Error }
func (f *recordedFailure) Unwrap() []error { return f.causes }
func (f *recordedFailure) As(target any) bool {
	k, ok := target.(*kind.Kind)
	if ok {
		*k = kind.Kind(f.row.ErrorKind)
	}
	return ok
}

func (language) Branch(f replay.BranchFailure) error { return newBranchError(f) }

func newBranchError(f replay.BranchFailure) *BranchError {
	e := &BranchError{Name: f.Name, Index: f.Index, Err: f.Err, id: f.ID}
	for _, other := range f.Others {
		e.others = append(e.others, newBranchError(other))
	}
	return e
}

func (language) Branches(fs []replay.BranchFailure) error {
	all := make(BranchErrors, len(fs))
	for i, f := range fs {
		all[i] = newBranchError(f)
	}
	return all
}
